"""The cluster's road on a real one-node Slurm, which tools/slurm-up.sh starts."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from collapse_laws.runrecord import read_run

pytestmark = [pytest.mark.slurm, pytest.mark.slow]
CELL = "recomputed_tiny_S8_eta1e-3_seed11"


@pytest.fixture
def cluster() -> None:
    """A Slurm that answers; in CI its absence is a failure."""
    up = shutil.which("sinfo") and not subprocess.run(["sinfo", "-h"], capture_output=True).returncode
    if not up:
        message = "needs Slurm: run `make slurm-up`"
        if os.environ.get("COLLAPSE_LAWS_NO_SKIP"):
            pytest.fail(message)
        pytest.skip(message)


def snakemake(*arguments: str) -> list[str]:
    quick = ("--slurm-init-seconds-before-status-checks", "1", "--latency-wait", "10")
    return [sys.executable, "-m", "snakemake", "--profile", "slurm", *quick, *arguments]


def wait_for(condition, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.2)


@pytest.mark.usefixtures("cluster")
def test_smoke_study_to_table1(project):
    project.run(*snakemake("results/table1.csv", "--config", "study=smoke"))
    table = (project.root / "results/table1.csv").read_text(encoding="utf-8")
    assert table.count("\n") == 5
    assert list(project.root.glob(".snakemake/slurm_logs/rule_train/*"))


@pytest.mark.usefixtures("cluster")
def test_preempted_job_is_requeued_and_goes_on(project):
    project.edit("params.yaml", "updates: 16\n", "updates: 2400\n")
    resources = ("slurm_partition=gpu", "mem_mb=2000", "runtime=60")
    environment = {**os.environ, "PYTHONPATH": str(project.root / "src")}
    with open(project.root / "driver.log", "w") as log:
        driver = subprocess.Popen(
            snakemake(f"runs/smoke/{CELL}/run.json", "--default-resources", *resources),
            cwd=project.root,
            env=environment,
            stdout=log,
            stderr=log,
        )
    try:
        rows: Path = project.root / "work/smoke" / CELL / "steps.jsonl"
        wait_for(lambda: rows.exists() and rows.read_bytes().count(b"\n") > 20, 240)
        urgent = [
            "sbatch",
            "--partition=urgent",
            "--cpus-per-task=16",
            "--output=/dev/null",
            "--wrap=sleep 2",
        ]
        subprocess.run(urgent, check=True, cwd=project.root)
        assert driver.wait(timeout=420) == 0, (project.root / "driver.log").read_text()
    finally:
        driver.terminate()
        driver.wait(timeout=60)
    record = read_run(project.root / "runs/smoke" / CELL)
    assert record.steps["t"].tolist() == list(range(2400))
    timings = json.loads((project.root / "runs/smoke" / CELL / "run.json").read_text())["timings"]
    assert timings["sessions"] == 2
