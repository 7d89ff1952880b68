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
from collapse_laws.study import load_study

pytestmark = [pytest.mark.slurm, pytest.mark.slow]
CELL = "recomputed_tiny_S8_eta1e-3_seed11"


@pytest.fixture
def cluster() -> None:
    """A Slurm that answers."""
    if not shutil.which("sinfo") or subprocess.run(["sinfo", "-h"], capture_output=True).returncode:
        pytest.skip("needs Slurm: run `make slurm-up`")


def snakemake(*arguments: str) -> list[str]:
    quick = ("--slurm-init-seconds-before-status-checks", "1", "--latency-wait", "10")
    return [sys.executable, "-m", "snakemake", "--profile", "slurm", *quick, *arguments]


def start(project, *arguments: str) -> subprocess.Popen[bytes]:
    """Snakemake on the cluster, in the background."""
    environment = {**os.environ, "PYTHONPATH": str(project.root / "src")}
    with open(project.root / "driver.log", "w") as log:
        return subprocess.Popen(snakemake(*arguments), cwd=project.root, env=environment, stdout=log, stderr=log)


def end(driver: subprocess.Popen[bytes]) -> None:
    driver.terminate()
    driver.wait(timeout=60)


def wait_for(condition, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.2)


def release_requeued() -> bool:
    """Let a requeued job start at once; Slurm would hold it for two minutes."""
    queue = ["squeue", "--noheader", "--states=PENDING", "--format=%A %r"]
    waiting = subprocess.run(queue, check=True, capture_output=True, text=True).stdout.split()
    if "BeginTime" not in waiting:
        return False
    job = waiting[waiting.index("BeginTime") - 1]
    subprocess.run(["scontrol", "update", f"JobId={job}", "StartTime=now"], check=True)
    return True


@pytest.mark.usefixtures("cluster")
def test_smoke_study_to_table1(project):
    project.run(*snakemake("results/table1.csv", "--config", "study=smoke"))
    table = (project.root / "results/table1.csv").read_text(encoding="utf-8")
    assert table.count("\n") == 5
    assert list(project.root.glob(".snakemake/slurm_logs/rule_train/*"))


@pytest.mark.usefixtures("cluster")
def test_preempted_job_is_requeued_and_goes_on(project):
    project.edit("params.yaml", "updates: 16\n", "updates: 1600\n")
    resources = ("slurm_partition=gpu", "mem_mb=2000", "runtime=60")
    driver = start(project, f"runs/smoke/{CELL}/run.json", "--default-resources", *resources)
    try:
        rows: Path = project.root / "work/smoke" / CELL / "steps.jsonl"
        wait_for(lambda: rows.exists() and rows.read_bytes().count(b"\n") > 20, 240)
        urgent = [
            "sbatch",
            "--partition=urgent",
            "--exclusive",
            "--output=/dev/null",
            "--wrap=sleep 2",
        ]
        subprocess.run(urgent, check=True, cwd=project.root)
        wait_for(lambda: release_requeued() or driver.poll() is not None, 240)
        assert driver.wait(timeout=240) == 0, (project.root / "driver.log").read_text()
    finally:
        end(driver)
    record = read_run(project.root / "runs/smoke" / CELL)
    assert record.steps["t"].tolist() == list(range(1600))
    timings = json.loads((project.root / "runs/smoke" / CELL / "run.json").read_text())["timings"]
    assert timings["sessions"] == 2


@pytest.mark.usefixtures("cluster")
def test_paper_studys_jobs_are_accepted_with_eight_gpus_each(project):
    pytest.importorskip("verl", reason="needs the extra `verl`")
    names = [cell.name for cell in load_study(project.root / "params.yaml", "paper").cells]
    chosen = [next(name for name in names if f"_{model}_" in name) for model in ("llama3b", "qwen8b")]
    files = [f"work/check/paper/{name}.txt" for name in chosen]
    driver = start(project, *files)
    try:
        asked: set[str] = set()
        queue = ["squeue", "--noheader", "--states=all", "--Format=tres-per-job:40,tres-per-node:40,comment:200"]
        while driver.poll() is None:
            asked |= set(subprocess.run(queue, check=True, capture_output=True, text=True).stdout.splitlines())
            time.sleep(0.5)
        assert driver.returncode == 0, (project.root / "driver.log").read_text()
    finally:
        end(driver)
    for name, file in zip(chosen, files, strict=True):
        assert [line for line in asked if "gpu:8" in line and name in line]
        sentence = (project.root / file).read_text(encoding="utf-8")
        assert sentence == f"{name}: verl takes the configuration; 8 GPUs granted by Slurm.\n"
