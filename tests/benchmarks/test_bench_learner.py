"""Speed of the local learner: against TRL, the cost of its probes, and its memory. Ratios of one run on one thread."""

from __future__ import annotations

import dataclasses
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from collapse_laws import probes
from collapse_laws.learner import Learner
from collapse_laws.seeding import generator
from collapse_laws.study import Cell, load_study
from collapse_laws.tasks.arithmetic import ChainArithmetic, character_tokenizer
from collapse_laws.warmstart import make_start

ROOT = Path(__file__).resolve().parents[2]
TRL_PYTHON = Path(os.environ.get("COLLAPSE_LAWS_TRL_PYTHON", ROOT / ".venv-trl" / "bin" / "python"))
UPDATES = 48


@pytest.fixture(scope="module")
def start(tmp_path_factory) -> Path:
    torch.set_num_threads(1)
    out = tmp_path_factory.mktemp("models") / "tiny"
    make_start(load_study(ROOT / "params.yaml", "proxy"), "tiny", out)
    return out


def proxy_cell(**settings) -> Cell:
    cell = load_study(ROOT / "params.yaml", "proxy").cell("vanilla_tiny_S16_eta4e-4_seed11")
    changed = {**cell.settings, "horizon_updates": UPDATES, "validation_every_updates": 10_000, **settings}
    return dataclasses.replace(cell, settings=changed)


def seconds_per_update(start: Path, folder: Path, **settings) -> float:
    learner = Learner(proxy_cell(**settings), start, folder / "work", folder / "checkpoints")
    began = time.perf_counter()
    learner.run(lambda: None)
    learner.writer.close()
    return (time.perf_counter() - began) / UPDATES


def test_three_times_trl(benchmark, start, tmp_path):
    """The same model, task, batch (32 prompts x 8 samples), response lengths and KL term as TRL's GRPOTrainer."""
    if not TRL_PYTHON.exists():
        pytest.skip("needs TRL in an environment of its own: make env-trl")
    tokenizer, problems = character_tokenizer(), ChainArithmetic().problems(2000, generator("data", 0))
    rows = {
        tokenizer.decode(prompt[:length]): tokenizer.decode(answer, skip_special_tokens=True)
        for prompt, length, answer in zip(problems.prompt, problems.prompt_length, problems.answer, strict=True)
    }
    file = tmp_path / "problems.json"
    file.write_text(json.dumps([{"prompt": p, "answer": a} for p, a in rows.items()]))
    script = Path(__file__).with_name("trl_grpo.py")

    def both(i: int = 0) -> tuple[float, float]:
        ours = seconds_per_update(start, tmp_path / f"{time.time_ns()}{i}")
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [TRL_PYTHON, script, start, file, "20"], capture_output=True, text=True, env=environment, check=True
        )
        theirs = json.loads(done.stdout.splitlines()[-1])
        assert 9 < theirs["response_length"] < 12
        return ours, theirs["seconds_per_update"]

    ours, theirs = benchmark.pedantic(both, rounds=1)
    pairs = [(ours, theirs), both(1), both(2)]
    ratios = sorted(theirs / ours for ours, theirs in pairs)
    benchmark.extra_info |= {"ours": [o for o, _ in pairs], "trl": [t for _, t in pairs], "ratios": ratios}
    assert ratios[1] >= 3, ratios


def test_probes_cost_under_a_tenth(benchmark, start, tmp_path, monkeypatch):
    def with_probes() -> float:
        return seconds_per_update(start, tmp_path / f"{time.time_ns()}")

    def without() -> float:
        with monkeypatch.context() as patch:
            patch.setattr(probes, "cosine", lambda *_: None)
            patch.setattr(probes, "rms", lambda *_: 0.0)
            return seconds_per_update(start, tmp_path / f"{time.time_ns()}", mechanism_every_updates=10_000)

    benchmark.pedantic(with_probes, rounds=1)
    pairs = [(with_probes(), without()) for _ in range(5)]
    cost = min(w for w, _ in pairs) / min(o for _, o in pairs) - 1
    benchmark.extra_info["cost"] = cost
    assert cost < 0.1


def test_memory_of_a_run(benchmark, start, tmp_path):
    command = [sys.executable, "-m", "collapse_laws", "train", "--params", ROOT / "params.yaml", "--study", "proxy"]
    command += ["--cell", "vanilla_tiny_S32_eta4e-3_seed11", "--model-dir", start, "--work", tmp_path / "work"]
    command += ["--checkpoints", tmp_path / "checkpoints", "--out", tmp_path / "run"]
    benchmark.pedantic(lambda: subprocess.run(command, check=True, capture_output=True), rounds=1)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024**2
    benchmark.extra_info["peak_gib"] = peak
    assert peak < 1
