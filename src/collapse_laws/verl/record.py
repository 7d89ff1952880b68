"""The end of a verl run: its record, its manifest and its final policy."""

from __future__ import annotations

import os
import platform
import shutil
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from collapse_laws.fingerprint import training_fingerprint
from collapse_laws.runrecord import SCHEMA_VERSION, RunWriter, finish
from collapse_laws.study import Cell
from collapse_laws.verl import gpus
from collapse_laws.verl.adapter import snapshot_rows, step_rows, validation_reward
from collapse_laws.verl.branch import LINES, VERL_LOG, Branch, read_attempts
from collapse_laws.verl.data import RunData
from collapse_laws.verl.models import starting_model

PACKAGES = (
    "collapse-laws",
    "numpy",
    "torch",
    "transformers",
    "verl",
    "vllm",
    "ray",
    "tensordict",
    "flash-attn",
)


def export_final(states: Path, checkpoints: Path, version: int) -> int | None:
    """Copy the Hugging Face weights of verl's checkpoint `version` to `checkpoints`/final; the version, None where
    there are none.

    Whatever lay there is of an earlier run of the cell or of an end that was cut short, and goes: the policy that is
    evaluated has to be the one that this record tells of.
    """
    final, unfinished = checkpoints / "final", checkpoints / ".final"
    shutil.rmtree(unfinished, ignore_errors=True)
    weights = states / f"global_step_{version}" / "actor" / "huggingface"
    found = weights.is_dir()
    if found:
        checkpoints.mkdir(parents=True, exist_ok=True)
        shutil.copytree(weights, unfinished)
    shutil.rmtree(final, ignore_errors=True)
    if found:
        os.replace(unfinished, final)
    return version if found else None


def write_record(
    cell: Cell,
    branch: Branch,
    files: RunData,
    work: Path,
    model: Path,
    out: Path,
    reason: str,
    began: datetime,
    final_version: int | None,
) -> None:
    """Write rows and the attempts' own lines to `out`, and run.json last."""
    record = work / "record"
    shutil.rmtree(record, ignore_errors=True)  # of an earlier end that was cut short; the lines hold it all
    writer = RunWriter(record)
    for row in step_rows(branch, cell.sync_interval):
        writer.steps.append(row)
    for row in snapshot_rows(branch, cell.sync_interval, files.validation_sizes):
        writer.snapshots.append(row)
    writer.sync()
    writer.close()
    attempts = read_attempts(work / "attempts")
    (out / "attempts").mkdir(parents=True, exist_ok=True)
    for number in range(len(attempts)):
        for name, ending in ((LINES, "jsonl"), (VERL_LOG, "verl.jsonl")):
            source = work / "attempts" / f"{number:03d}" / name
            if source.exists():
                shutil.copyfile(source, out / "attempts" / f"{number:03d}.{ending}")
    starts = [attempt.version * cell.sync_interval for attempt in attempts]
    finish(record, out, manifest(cell, branch, files, model, reason, began, final_version, starts))


def manifest(
    cell: Cell,
    branch: Branch,
    files: RunData,
    model: Path,
    reason: str,
    began: datetime,
    final_version: int | None,
    starts: list[int],
) -> dict[str, Any]:
    """run.json: what was asked for, with what it was made, and how long it took."""
    return {
        "schema_version": SCHEMA_VERSION,
        **cell.identity(),
        "source_fingerprint": training_fingerprint("verl"),
        "horizon_updates": cell.horizon_updates,
        "updates": len(branch.updates),
        "stop_reason": reason,
        # learner updates behind the policy in checkpoints/: the trainer is ended between two of its checkpoints
        "final_checkpoint_updates": None if final_version is None else final_version * cell.sync_interval,
        "final_validation_reward": validation_reward(
            branch.validations.get(len(branch.updates) // cell.sync_interval, {}),
            files.validation_sizes,
        )[0],
        "starting_model": starting_model(model),
        "data": files.digests,
        "versions": {"python": platform.python_version(), **_versions()},
        "hardware": {
            "machine": platform.machine(),
            "cores": os.cpu_count(),
            "gpu": ", ".join(sorted(set(gpus.names()))) or None,
            "gpus": gpus.needed(cell) if cell.device == "cuda" else 0,
        },
        "timings": {
            "started": began.isoformat(timespec="seconds"),
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            "wall_seconds": round(sum(line["seconds"] for line in branch.updates), 2),
            "attempts_from_update": starts,
        },
    }


def _versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
