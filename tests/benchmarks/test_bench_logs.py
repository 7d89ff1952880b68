"""Logs of a million lines with 48 metrics each: diagnose takes 10 s of CPU and 1 GiB at most, watch 1 ms a line."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from collapse_laws.advise.calibration import published_brackets
from collapse_laws.advise.watch import Watcher

LINES = 1_000_000
SECONDS, MEBIBYTES, WATCH_SECONDS = 10.0, 1024, 1e-3


def metrics(step: int) -> dict[str, float]:
    reward = 0.4 + 0.3 * (step % 97) / 97
    named = {
        "global_seqlen/mean": 69484.0,
        "actor/entropy": 0.12717542330663248,
        "actor/pg_loss": 0.0015367713087928682,
        "actor/pg_clipfrac": 0.005915462407927983,
        "actor/ppo_kl": 7.546045289555447e-05,
        "actor/grad_norm": 2.2294452892394176,
        "actor/lr": 1e-06,
        "training/global_step": step,
        "training/epoch": 0,
        "critic/score/mean": reward,
        "critic/score/max": 1.0,
        "critic/score/min": 0.0,
        "critic/rewards/mean": reward,
        "response_length/mean": 161.76217728490371,
    }
    timings = {f"timing_per_token_ms/stage_{i}": 0.0123456789 + i for i in range(48 - len(named))}
    return {**named, **timings}


def console_line(step: int) -> str:
    pairs = (
        f"{key}:np.float64({value!r})" if key == "actor/lr" else f"{key}:{value!r}"
        for key, value in metrics(step).items()
    )
    return f"\x1b[36m(TaskRunner pid=3165)\x1b[0m step:{step} - {' - '.join(pairs)}\n"


def console_with_bars(step: int) -> str:
    """Metrics and progress bar by turns."""
    if step % 2:
        return console_line(step // 2 + 1)
    filled = "\u2588" * (10 * step // LINES)
    at = f"{step // 2}/{LINES // 2}"
    return f"Training Progress: {100 * step // LINES:3d}%|{filled:10s}| {at} [1:10:40<6:31:06, 64.47s/it]\n"


def json_line(step: int) -> str:
    return json.dumps({"step": step, **metrics(step)}) + "\n"


KINDS: dict[str, Callable[[int], str]] = {
    "console": console_line,
    "console with bars": console_with_bars,
    "json": json_line,
}


@pytest.mark.parametrize("kind", KINDS)
def test_diagnose_a_million_lines(kind: str, tmp_path: Path, benchmark: BenchmarkFixture) -> None:
    path = tmp_path / "log"
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(map(KINDS[kind], range(1, LINES + 1)))
    spent = []

    def diagnose() -> None:
        program = [sys.executable, "-c", PROGRAM, str(path)]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(program, capture_output=True, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
        spent.append((cpu, json.loads(done.stderr)))

    try:
        benchmark.pedantic(diagnose, rounds=1)
    finally:
        path.unlink()  # two gigabytes
    cpu_seconds, kibibytes = spent[0]
    benchmark.extra_info.update(cpu_seconds=cpu_seconds, peak_mebibytes=kibibytes / 1024)
    assert cpu_seconds < SECONDS
    assert kibibytes / 1024 < MEBIBYTES


# its own peak memory: that of all children so far would count the larger of them
PROGRAM = """
import resource, sys
from collapse_laws.cli import main
code = main(["diagnose", sys.argv[1], "--sync-interval", "4", "--json"])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)
sys.exit(code)
"""


@pytest.mark.parametrize(("name", "kind"), [("console", "verl_console"), ("json", "jsonl")])
def test_watch_a_line(name: str, kind: str, benchmark: BenchmarkFixture) -> None:
    lines = [KINDS[name](step).rstrip("\n") for step in range(1, 20_001)]
    watcher = Watcher(Path("log"), kind, 4, None, published_brackets())

    def feed() -> None:
        for line in lines:
            watcher.feed(line)

    benchmark.pedantic(feed, rounds=1)
    benchmark.extra_info["seconds_per_line"] = benchmark.stats.stats.mean / len(lines)
    assert benchmark.stats.stats.mean / len(lines) < WATCH_SECONDS
