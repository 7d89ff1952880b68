"""The analysis of a large study, and the theory on a million points.

The study has 1,000 runs of 2,000 rollout batches. `extract` reads every snapshots.jsonl, classifies the run at four
thresholds and cross-checks it; `laws` reads the 1,000 outcomes and fits both laws. Both are timed in one process, with
the files on disk; the rows of the single updates are few, since the analysis takes nothing but their learning rates
from them.
"""

from __future__ import annotations

import json
import resource
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
import yaml

from collapse_laws.cli import main
from collapse_laws.runrecord import RunWriter, write_json
from collapse_laws.study import load_study
from collapse_laws.theory import bias, calibration, closure, exit_clock, group_channel

ROOT = Path(__file__).resolve().parents[2]
BATCHES, BUDGET = 2000, 0.16
INTERVALS, SEEDS = (8, 16, 32, 64), 10
RATES = [f"{round(2.5e-4 * 1.12**k, 7):.6e}" for k in range(25)]


def snapshots(path, interval, lr, rng):
    """One snapshots.jsonl of a run that collapses at BUDGET/lr if S lr >= 0.02, with noise from run to run."""
    writer = RunWriter(path)
    threshold, radius = np.exp(0.1 * rng.normal(size=2))
    onset = BUDGET * radius / lr if interval * lr >= 0.02 * threshold else np.inf
    t = interval * np.arange(BATCHES)
    reward = np.where(t < onset, 0.7 - 0.3 * np.exp(-t * lr / 0.05), 0.03) + 0.005 * rng.normal(size=BATCHES)
    for index in range(BATCHES):
        writer.snapshots.append(
            {
                "M": index,
                "t": int(t[index]),
                "reward_mean": float(np.clip(reward[index], 0, 1)),
                "reward_se": 0.02,
                "n": 512,
                "degenerate_group_fraction": 0.31,
                "truncated_fraction": 0.01,
                "response_length": 11.5 + 0.1 * float(rng.normal()),
                "entropy": 0.52,
                "displacement_rms": 1e-3 * index,
                "cycle_cos": 0.4,
            }
        )
    writer.steps.append({"t": 0, "snapshot": 0, "lag": 0, "lr": 2.5 * BUDGET, "reward_mean": float(reward[0])})
    writer.close()


@pytest.fixture(scope="module")
def large_study(tmp_path_factory):
    """A study of 1,000 cells with its records; of the ten seeds of a point five share a series, to write it in time."""
    root = tmp_path_factory.mktemp("large")
    params = yaml.safe_load((ROOT / "params.yaml").read_text())
    study = params["studies"]["proxy"]
    study.pop("recorded", None)
    study["blocks"] = {
        "grid": {
            "extent": "core",
            "arm": ["recomputed"],
            "model": [next(iter(study["models"]))],
            "sync_interval": list(INTERVALS),
            "lr": RATES,
            "seed": list(range(SEEDS)),
        }
    }
    params |= {"study": "proxy", "studies": {"proxy": study}}
    (root / "workflow/schemas").mkdir(parents=True)
    shutil.copy(ROOT / "workflow/schemas/params.schema.yaml", root / "workflow/schemas")
    (root / "params.yaml").write_text(yaml.safe_dump(params))
    rng = np.random.default_rng(0)
    made = {}
    for cell in load_study(root / "params.yaml").cells:
        source = (cell.sync_interval, cell.lr, cell.seed % 2)
        directory = root / "runs/proxy" / cell.name
        if source in made:
            shutil.copytree(made[source], directory, copy_function=shutil.copyfile)
        else:
            snapshots(directory, cell.sync_interval, cell.lr, rng)
            made[source] = directory
        names = "study scale trainer arm model sync_interval lr seed".split()
        manifest = {name: getattr(cell, name) for name in names} | {
            "schema_version": 1,
            "cell": cell.name,
            "ratio": cell.settings["ratio"],
            "settings": cell.settings,
            "settings_digest": cell.digest,
            "source_fingerprint": None,
            "horizon_updates": BATCHES * cell.sync_interval,
            "updates": BATCHES * cell.sync_interval,
            "stop_reason": "horizon",
            "versions": {},
            "hardware": {},
            "timings": {},
        }
        write_json(directory / "run.json", manifest)
    return root


def test_study_of_a_thousand_runs(benchmark, large_study, monkeypatch, capsys):
    monkeypatch.chdir(large_study)
    spent = []

    def analyse():
        before = time.process_time()
        assert main(["extract"]) == 0
        assert main(["laws"]) == 0
        spent.append(time.process_time() - before)

    benchmark.pedantic(analyse, rounds=1)
    (group,) = json.loads(Path("results/proxy/laws.json").read_text())["groups"]
    assert sum(group["counts"].values()) == 1000
    assert min(group["counts"]["collapsed"], group["counts"]["survived"]) > 200
    assert group["clock"]["b_estimate"] == pytest.approx(1, abs=0.1)
    benchmark.extra_info |= {"cpu_seconds": spent[0], "peak_bytes": _peak_bytes()}
    assert spent[0] < 20  # of one core, so that a busy machine does not decide
    assert _peak_bytes() < 2 * 2**30


def _peak_bytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


POINTS = 1_000_000
RNG = np.random.default_rng(1)
UNIT, GAIN = RNG.uniform(0.01, 0.99, POINTS), RNG.uniform(0.2, 6.0, POINTS)
RATE, INTERVAL = RNG.uniform(5e-8, 1e-6, POINTS), RNG.integers(2, 65, POINTS)


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (lambda q: group_channel.channel(q, 16, 1e-6, 1), (UNIT,)),
        (lambda s, lr: bias.bias_sawtooth(77, s, lr, 3.0, 1.3), (INTERVAL, RATE)),
        (lambda g: closure.upper_fixed_point(g, closure.SIGN), (GAIN,)),
        (lambda g: closure.every_lag_map(0.7, g, 32, closure.SECOND_MOMENT), (GAIN,)),
        (lambda lr, d: exit_clock.non_exit_updates(1.0, 0.1, lr, 1.0, d), (RATE, UNIT)),
        (lambda s, lr: calibration.advise(s, lr, (1.6e-6, 3.2e-6), (3e-5, 3.2e-5)).regime, (INTERVAL, RATE)),
    ],
    ids=["channel", "sawtooth", "fixed point", "every lag", "non-exit", "rule"],
)
def test_theory_on_a_million_points(benchmark, function, arguments):
    found = benchmark.pedantic(function, args=arguments, rounds=3)
    assert found.shape == (POINTS,)
    assert benchmark.stats.stats.min < 5
