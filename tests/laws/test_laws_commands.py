"""extract, laws and simulate on records that are really written: from run record to laws.json."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from collapse_laws.cli import main
from collapse_laws.collapse import classify_run
from collapse_laws.laws.observation import NOT_DECIDED
from collapse_laws.laws.results import record_digest
from collapse_laws.outcome import LABELS
from collapse_laws.runrecord import RunWriter, finish, read_run
from collapse_laws.study import load_study

ROOT = Path(__file__).resolve().parents[2]
BUDGET, PRODUCT = 0.16, 0.015  # clock, and S*eta from which a run collapses


def by_the_laws(cell):
    return round(BUDGET / cell.lr) if cell.sync_interval > 1 and cell.sync_interval * cell.lr >= PRODUCT else None


def write_study(root, intervals=(8, 16), rates=("4e-3", "2e-3", "1e-3", "5e-4"), onset=by_the_laws, run=True):
    """params.yaml of one block under `root` and, with `run`, the record of each of its cells; the cells."""
    params = yaml.safe_load((ROOT / "params.yaml").read_text())
    study = params["studies"]["proxy"]
    study["blocks"] = {
        "grid": {
            "extent": "core",
            "arm": ["recomputed"],
            "model": [next(iter(study["models"]))],
            "sync_interval": list(intervals),
            "lr": list(rates),
            "seed": [3],
        }
    }
    study.pop("recorded", None)
    params |= {"study": "proxy", "studies": {"proxy": study}}
    (root / "workflow/schemas").mkdir(parents=True)
    shutil.copy(ROOT / "workflow/schemas/params.schema.yaml", root / "workflow/schemas")
    (root / "params.yaml").write_text(yaml.safe_dump(params))
    cells = load_study(root / "params.yaml").cells
    for cell in cells if run else ():
        write_run(root, cell, onset(cell))
    return cells


def write_run(root, cell, onset, nan_at=None, **changed):
    work = root / "work" / cell.name
    updates = cell.horizon_updates if onset is None else onset // cell.sync_interval * cell.sync_interval + 64
    writer = RunWriter(work)
    for t in range(updates):
        reward = 0.03 if onset is not None and t >= onset else 0.7 - 0.3 * np.exp(-t * cell.lr / 0.05)
        index, lag = divmod(t, cell.sync_interval)
        if lag == 0:
            given = None if index == nan_at else reward
            writer.snapshots.append({"M": index, "t": t, "reward_mean": given, "n": 64 * cell.sync_interval})
        if t % 97 == 0:  # the criterion takes the sum of the rates from the manifest's where rows are few
            writer.steps.append({"t": t, "snapshot": index, "lag": lag, "lr": 97 * cell.lr, "reward_mean": reward})
    writer.close()
    names = "study scale trainer arm model sync_interval lr seed".split()
    manifest = {
        **{name: getattr(cell, name) for name in names},
        "schema_version": 1,
        "cell": cell.name,
        "ratio": cell.settings["ratio"],
        "settings": cell.settings,
        "settings_digest": cell.digest,
        "source_fingerprint": None,
        "horizon_updates": cell.horizon_updates,
        "updates": updates,
        "stop_reason": "horizon" if onset is None else "collapse",
        "versions": {"python": "3.11"},
        "hardware": {},
        "timings": {"wall_seconds": 2.5},
    } | changed
    finish(work, root / "runs/proxy" / cell.name, manifest)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def laws(root):
    assert main(["laws"]) == 0
    (group,) = json.loads((root / "results/proxy/laws.json").read_text())["groups"]
    return group


def test_from_records_to_laws(here, capsys):
    cells = write_study(here)
    assert main(["extract"]) == 0
    for cell in cells:
        found = json.loads((here / f"results/proxy/cells/{cell.name}.json").read_text())
        outcome, onset = found["outcome"], by_the_laws(cell)
        assert outcome["label"] == ("survived" if onset is None else "collapsed"), cell.name
        if onset is not None:
            assert outcome["onset_low"] < onset <= outcome["onset_high"]
            assert outcome["onset_high"] - outcome["onset_low"] == cell.sync_interval
        assert found["settings_digest"] == cell.digest
        assert (found["sync_interval"], found["lr"], found["ratio"]) == (cell.sync_interval, cell.lr, "recomputed")
        assert found["run"]["updates"] == outcome["updates"]
        assert found["run"]["wall_seconds"] == 2.5
        assert [row["rho"] for row in found["sensitivity"]] == [0.35, 0.5, 0.65, 0.8]
        assert found["crosschecks"]["bayes"]["probability"] == pytest.approx(float(onset is not None), abs=0.2)
    group = laws(here)
    assert group["counts"] == {label: {"collapsed": 5, "survived": 3}.get(label, 0) for label in LABELS}
    product = group["boundary"]["product"]
    assert (product["stable_max"], product["collapsed_min"], product["refuted"]) == (0.008, 0.016, False)
    assert group["clock"]["c2"][0] < BUDGET <= group["clock"]["c2"][1]
    assert group["clock"]["consistent"] is True
    assert "law (ii)" in capsys.readouterr().out


def test_extract_refuses_a_record_of_other_settings(here, capsys):
    cells = write_study(here, intervals=(8,), rates=("4e-3",))
    text = (here / "params.yaml").read_text()
    (here / "params.yaml").write_text(text.replace("clip_high: 0.2", "clip_high: 0.28"))
    assert main(["extract", "--cell", cells[0].name]) == 2
    message = capsys.readouterr().err
    assert cells[0].digest in message
    assert load_study(here / "params.yaml").cells[0].digest in message
    assert len(message.strip().splitlines()) == 1
    (here / "params.yaml").write_text(text)
    assert main(["extract", "--cell", cells[0].name]) == 0
    (here / "params.yaml").write_text(text.replace("clip_high: 0.2", "clip_high: 0.28"))
    assert main(["laws"]) == 2
    assert "other settings" in capsys.readouterr().err


def test_extract_names_what_is_missing(here, capsys):
    cells = write_study(here, run=False)
    for arguments, said in (
        ([], "no finished run"),
        (["--cell", cells[0].name], "missing"),
        (["--cell", "nothing"], "no cell"),
        (["--out", "x.json"], "give --cell"),
    ):
        assert main(["extract", *arguments]) == 2
        message = capsys.readouterr().err
        assert said in message
        assert len(message.strip().splitlines()) == 1


def test_a_record_elsewhere_and_one_with_a_reward_that_is_not_finite(here):
    (cell,) = write_study(here, intervals=(8,), rates=("1e-3",), run=False)
    write_run(here, cell, None, nan_at=7)
    shutil.move(here / "runs", here / "elsewhere")
    record = here / "elsewhere/proxy" / cell.name
    assert main(["extract", "--cell", cell.name, "--run", str(record), "--out", "found.json"]) == 0
    outcome = json.loads(Path("found.json").read_text())["outcome"]
    assert outcome["label"] == "failed"
    assert "batch 7" in outcome["reason"]


@pytest.mark.parametrize(
    ("given", "counts", "said"),
    [
        ({"onset": lambda cell: None}, {"survived": 8}, "All 8 runs survived"),
        ({"onset": lambda cell: round(BUDGET / cell.lr)}, {"collapsed": 8}, "All 8 runs collapsed"),
        ({"intervals": (8,), "rates": ("4e-3",)}, {"collapsed": 1}, "All 1 runs collapsed"),
        ({"intervals": (8,), "rates": ("5e-4",)}, {"survived": 1}, "All 1 runs survived"),
        ({"intervals": (1,)}, {"survived": 4}, "No run of this model survived or collapsed"),
        ({"run": False}, {}, "No run of this model survived or collapsed"),
        ({"intervals": (8,)}, {"collapsed": 2, "survived": 2}, "All runs share one S"),
    ],
    ids=["all stable", "all collapsed", "one collapsed", "one stable", "S=1 only", "no cells", "one S"],
)
def test_laws_of_studies_that_decide_nothing(here, capsys, given, counts, said):
    cells = write_study(here, **given)
    if given.get("run", True):
        assert main(["extract"]) == 0
    group = laws(here)
    assert {label: number for label, number in group["counts"].items() if number} == counts
    assert group["not_run"] == (0 if counts else len(cells))
    assert group["boundary"]["verdict"] == group["clock"]["verdict"] == NOT_DECIDED
    assert said in group["boundary"]["reason"]
    assert NOT_DECIDED in capsys.readouterr().out
    if not counts.get("collapsed"):
        assert group["clock"]["c2"] is None
        assert group["boundary"]["product"]["collapsed_min"] is None
    if counts == {"collapsed": 1}:
        low, high = group["clock"]["c2"]
        assert low < BUDGET <= high
        assert group["clock"]["b"] == [None, None]


def test_laws_names_a_damaged_cell(here, capsys):
    (cell,) = write_study(here, intervals=(8,), rates=("4e-3",))
    assert main(["extract"]) == 0
    path = here / f"results/proxy/cells/{cell.name}.json"
    path.write_text(path.read_text()[:50])
    assert main(["laws"]) == 2
    assert "is not JSON" in capsys.readouterr().err


def test_simulate_writes_its_check(here, capsys):
    assert main(["simulate", "--studies", "2", "--seed", "4", "--jobs", "1", "--main-only", "--out", "v"]) == 0
    found = json.loads(Path("v/validation.json").read_text())
    (design,) = found["designs"]
    assert found["scale"] == "theory"
    assert (design["studies"], design["truth"]["alpha"]) == (2, 1.0)
    rows = pd.read_csv("v/studies.csv")
    assert rows["study"].tolist() == [4, 5]
    for name in ("alpha", "b", "c", "c2"):
        assert design[name]["coverage"] == rows[f"{name}_covered"].mean()
    assert "not training" in capsys.readouterr().out


def test_simulate_writes_records_that_classify(here, capsys):
    grid = ["--sync-intervals", "8", "32", "--rates", "1e-6", "1e-7", "--seeds", "0", "1"]
    assert main(["simulate", "--records", "records", *grid]) == 0
    assert len(capsys.readouterr().out.strip().splitlines()) == 8
    labels = {}
    for directory in sorted(Path("records").iterdir()):
        record = read_run(directory)
        assert (record.manifest["scale"], record.manifest["trainer"]) == ("theory", "theory")
        outcome = classify_run(record, 3.2e-5)
        labels[record.sync_interval, record.lr] = outcome.label
        if outcome.label == "collapsed":
            assert 2.0e-5 < outcome.collapse_step * record.lr < 6.5e-5
    assert labels == {(8, 1e-6): "collapsed", (8, 1e-7): "survived", (32, 1e-6): "collapsed", (32, 1e-7): "collapsed"}


@pytest.mark.parametrize("wrong", [["--rates", "2"], ["--rates", "fast"], ["--jobs", "0"], ["--sync-intervals", "0"]])
def test_simulate_names_bad_input(here, capsys, wrong):
    assert main(["simulate", "--records", "records", *wrong]) == 2
    assert "allowed" in (message := capsys.readouterr().err) or "at least 1" in message or "not a" in message


def test_a_run_made_again_has_the_same_digest_however_long_it_took(tmp_path):
    def digest(name, seconds, reward=0.5):
        writer = RunWriter(tmp_path / name)
        writer.steps.append({"t": 0, "snapshot": 0, "lag": 0, "lr": 1e-3, "reward_mean": reward, "seconds": seconds})
        writer.close()
        return record_digest(tmp_path / name)

    assert digest("once", 0.25) == digest("again", 17.5)
    assert digest("other", 0.25, reward=0.6) != digest("once", 0.25)
