"""Our own run records: a finished or running run's directory, or one of its files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from collapse_laws.runrecord import MANIFEST, SNAPSHOTS, STEPS, RunRecord, read_run

_STEP_MARKS = (b'"t":', b'"snapshot":', b'"lag":')
_SNAPSHOT_MARKS = (b'"M":', b'"t":', b'"reward_mean":')


def is_record_directory(path: Path) -> bool:
    """Whether a directory holds both row files of a run record."""
    return (path / STEPS).is_file() and (path / SNAPSHOTS).is_file()


def record_of_file(path: Path, head: bytes) -> Path | None:
    """The record's directory, where a file is a part of one."""
    if not is_record_directory(path.parent):
        return None
    line = head.split(b"\n", 1)[0]
    if path.name == MANIFEST or all(mark in line for mark in _STEP_MARKS):
        return path.parent
    return path.parent if all(mark in line for mark in _SNAPSHOT_MARKS) else None


def is_snapshot_row(head: bytes) -> bool:
    """Whether a lone file holds a record's snapshot rows, which have no learner updates between them."""
    try:
        row = json.loads(head.split(b"\n", 1)[0])
    except ValueError:
        return False
    return isinstance(row, dict) and {"M", "t", "reward_mean"} <= set(row) and "lag" not in row


def read_record(directory: Path) -> tuple[RunRecord, int | None]:
    """The record and its S, from run.json or else from the snapshots' own t/M; None where neither tells."""
    record = read_run(directory, in_progress=True)
    if record.sync_interval is not None:
        return record, int(record.sync_interval)
    later = record.snapshots[record.snapshots["M"] > 0]
    if not later.empty:
        return record, int(np.median(later["t"].to_numpy() // later["M"].to_numpy()))
    return record, None
