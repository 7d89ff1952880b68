"""A session of training: the lock, SIGTERM, the progress bar and the manifest around a `Learner`.

A run can be killed at any time: its rows are appended to `work`, its state is saved there every few
updates and at SIGTERM, and starting it again continues it to the same bytes, timings aside.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import shutil
import signal
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from collapse_laws.errors import UserError
from collapse_laws.fingerprint import learner_fingerprint
from collapse_laws.learner import STATE, Learner
from collapse_laws.policy import save_policy
from collapse_laws.runrecord import SCHEMA_VERSION, SNAPSHOTS, STEPS, finish, write_json
from collapse_laws.study import Cell


def train(cell: Cell, *, model_dir: Path, work: Path, checkpoints: Path, out: Path) -> str:
    """Run or resume a cell until its record stands in `out`; return the stop reason.

    model_dir: the starting checkpoint, also the reference of the KL term. work: state and rows of
    the run in progress. checkpoints: where the final policy goes. Raises UserError (no GPU, damaged
    or foreign state, a second start of a running cell) and Preempted after SIGTERM.
    """
    if cell.device == "cuda" and not torch.cuda.is_available():
        raise UserError(f"study {cell.study!r} trains on a GPU (device: cuda), and there is none here.")
    _check_start(cell, model_dir)
    work.mkdir(parents=True, exist_ok=True)
    with open(work / "lock", "w") as lock, torch.device(cell.device):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UserError(f"{cell.name} is being trained already: {work} is locked.") from None
        _claim(cell, work)
        started = datetime.now(UTC)
        learner = Learner(cell, model_dir, work, checkpoints)
        reason = _run(learner)
        save_policy(learner.model, learner.tokenizer, checkpoints / "final")
        finish(work, out, manifest(learner, reason, started))
    shutil.rmtree(work)
    return reason


def _check_start(cell: Cell, model_dir: Path) -> None:
    """UserError where `model_dir` was made by this package for other settings; a checkpoint from elsewhere may pass."""
    path = model_dir / "warmstart.json"
    if not path.exists():
        return
    try:
        found = json.loads(path.read_text(encoding="utf-8")).get("settings_digest")
    except (ValueError, AttributeError):
        raise UserError(f"{path} is damaged; remove {model_dir} and make it again with `warmstart`.") from None
    if found != cell.start_digest:
        raise UserError(
            f"{model_dir} was made with settings {found}, but {cell.name} starts from {cell.start_digest}, its task "
            "and model in params.yaml; restore those, or remove the folder and make it again with `warmstart`."
        )


def _claim(cell: Cell, work: Path) -> None:
    """Keep a run in progress to one learner: UserError where its state is another's.

    Rows without a state are from before the first checkpoint, of whatever settings there were then: they go.
    """
    path = work / "cell.json"
    mine = {"settings_digest": cell.digest, "source_fingerprint": learner_fingerprint()}
    if not (work / STATE).exists():
        for name in (STEPS, SNAPSHOTS):
            (work / name).unlink(missing_ok=True)
        write_json(path, mine)
        return
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else mine
    if found["source_fingerprint"] != mine["source_fingerprint"]:
        raise UserError(
            f"{work} holds a run of another learner ({found['source_fingerprint']}) than the present one "
            f"({mine['source_fingerprint']}); put the source back, or delete the folder to start from the beginning."
        )


def _run(learner: Learner) -> str:
    def stop(*_: object) -> None:
        learner.stop_requested = True  # the learner saves and stops after the update at hand

    before = signal.signal(signal.SIGTERM, stop)
    bar = tqdm(
        total=learner.cell.horizon_updates,
        initial=learner.progress.t,
        desc=learner.cell.name,
        unit="update",
        disable=None,  # only where a person looks
    )
    try:
        with bar:
            return learner.run(bar.update)
    finally:
        learner.writer.close()
        signal.signal(signal.SIGTERM, before)


def manifest(learner: Learner, reason: str, started: datetime) -> dict[str, Any]:
    """run.json of a run that has ended."""
    cell, progress = learner.cell, learner.progress
    packages = ("collapse-laws", "numpy", "torch", "transformers")
    return {
        "schema_version": SCHEMA_VERSION,
        **cell.identity(),
        "source_fingerprint": learner_fingerprint(),
        "horizon_updates": cell.horizon_updates,
        "updates": progress.t,
        "stop_reason": reason,
        "final_validation_reward": None if reason == "failed" else learner.sampler.validate(),
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in packages},
        },
        "hardware": {
            "machine": platform.machine(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "gpu": torch.cuda.get_device_name() if cell.device == "cuda" else None,
        },
        "timings": {
            "started": started.isoformat(timespec="seconds"),
            "wall_seconds": round(learner.seconds, 2),
            "sessions": progress.sessions,
        },
    }
