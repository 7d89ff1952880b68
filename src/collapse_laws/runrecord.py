"""The run record: what a training run leaves behind, whichever trainer made it.

A record is a directory `runs/<study>/<cell>/` with `steps.jsonl` (one row a learner update),
`snapshots.jsonl` (one row a rollout batch) and `run.json`, written last: a directory without it is
a run in progress. Rows are only appended. A missing value is null, never 0. Times are kept in
`seconds` and `run.json`'s `timings` alone, so that two runs with the same settings give otherwise
identical bytes.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import pandas as pd
import pyarrow as pa
import pyarrow.json

from collapse_laws.errors import UserError

SCHEMA_VERSION = 1

# name -> (kind, nullable); kind is int or float. The order is the order of the keys in a row.
STEP_COLUMNS: dict[str, tuple[type, bool]] = {
    "t": (int, False),  # learner update, 0-based
    "snapshot": (int, False),  # behaviour version used
    "lag": (int, False),  # updates since that snapshot
    "lr": (float, False),
    "loss": (float, True),
    "reward_mean": (float, True),  # over the batch of this update
    "grad_norm": (float, True),  # before clipping
    "grad_cos": (float, True),  # raw gradients of this and the previous update; null where invalid
    "clip_fraction": (float, True),  # of response tokens whose surrogate the clip holds
    "dual_clip_fraction": (float, True),
    "ratio_max": (float, True),  # learner to behaviour probability of a sampled token
    "kl_ref": (float, True),  # k3 estimate to the reference, nats a token
    "kl_behaviour": (float, True),  # k1 estimate to the behaviour snapshot, nats a token
    "entropy": (float, True),  # nats a token, of the behaviour snapshot that sampled
    "response_length": (float, True),  # tokens
    "degenerate_group_fraction": (float, True),  # groups whose rewards are all equal
    "displacement_rms": (float, True),  # of the parameters from the start, after this update
    "update_rms": (float, True),  # of this update divided by the learning rate
    "lag_displacement_rms": (float, True),  # of theta - phi; this and the next two where probed
    "stale_gap_rms": (float, True),  # of the gradient on stale minus the one on fresh rollouts
    "stale_feedback_cos": (float, True),  # above 0: the stale part pushes on along theta - phi
    "tokens": (int, True),  # response tokens in the batch
    "seconds": (float, True),
}
SNAPSHOT_COLUMNS: dict[str, tuple[type, bool]] = {
    "M": (int, False),  # index of the rollout batch, 0 for the start
    "t": (int, False),  # learner updates made before its rollouts, S*M
    "reward_mean": (float, True),
    "reward_se": (float, True),  # standard error over prompts
    "n": (int, True),  # rollouts
    "degenerate_group_fraction": (float, True),
    "truncated_fraction": (float, True),
    "response_length": (float, True),
    "entropy": (float, True),
    "displacement_rms": (float, True),  # of the snapshot from the start
    "cycle_cos": (float, True),  # of the last cycle's displacement and the one before
    "validation_reward": (
        float,
        True,
    ),  # greedy, on the frozen held-out prompts; null where not taken
    "validation_n": (int, True),
}
STEPS, SNAPSHOTS, MANIFEST = "steps.jsonl", "snapshots.jsonl", "run.json"
USER = "user"  # study, scale and arm of a record that a hook wrote of a run that belongs to no study
MANIFEST_KEYS = (
    "schema_version study cell scale trainer arm model sync_interval lr seed ratio settings settings_digest "
    "source_fingerprint horizon_updates updates stop_reason versions hardware timings"
).split()
STOP_REASONS = ("horizon", "collapse", "failed")


def settings_digest(settings: Mapping[str, Any]) -> str:
    """16 hex digits of the SHA-256 of the settings as canonical JSON: equal settings, equal digest."""
    text = json.dumps(settings, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def check_row(row: Mapping[str, Any], columns: Mapping[str, tuple[type, bool]]) -> dict[str, Any]:
    """The row in column order with non-finite numbers as null; raises ValueError on a wrong key, type or null."""
    unknown = set(row) - set(columns)
    if unknown:
        raise ValueError(f"unknown column {sorted(unknown)[0]!r}; allowed: {', '.join(columns)}")
    checked = {}
    for name, (kind, nullable) in columns.items():
        value = row.get(name)
        if value is not None:
            value = kind(value)
            if kind is float and not math.isfinite(value):
                value = None
        if value is None and not nullable:
            raise ValueError(f"column {name!r} must not be null")
        checked[name] = value
    return checked


class RowWriter:
    """Appends rows to one JSON-lines file; safe to reopen after a kill.

    On opening, a last line without its newline is cut off (it was being written when the process
    died). Rows whose `key` is not above that of the last complete row are skipped: a resumed run
    repeats the updates since its checkpoint, and they are already there. OSError (a full disk)
    passes through; complete rows stay.
    """

    def __init__(self, path: Path, columns: Mapping[str, tuple[type, bool]], key: str) -> None:
        self.path, self._columns, self._key = Path(path), columns, key
        self.last = -1
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.path.exists():
            self._recover()
        self._file: TextIO = open(self.path, "a", encoding="utf-8")

    def _recover(self) -> None:
        data = self.path.read_bytes()
        complete = data.rfind(b"\n") + 1
        if complete < len(data):
            os.truncate(self.path, complete)
        if complete:
            start = data.rfind(b"\n", 0, complete - 1) + 1
            self.last = json.loads(data[start:complete])[self._key]

    def append(self, row: Mapping[str, Any]) -> None:
        """Write one row and flush it, unless it is already there."""
        if row[self._key] <= self.last:
            return
        checked = check_row(row, self._columns)
        self._file.write(json.dumps(checked, separators=(",", ":"), allow_nan=False) + "\n")
        self._file.flush()
        self.last = row[self._key]

    def sync(self) -> None:
        """Force what was written to the disk, as before a checkpoint."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


class RunWriter:
    """Both row files of a run in progress, in one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = Path(directory)
        self.steps = RowWriter(self.directory / STEPS, STEP_COLUMNS, "t")
        self.snapshots = RowWriter(self.directory / SNAPSHOTS, SNAPSHOT_COLUMNS, "M")

    def sync(self) -> None:
        self.steps.sync()
        self.snapshots.sync()

    def close(self) -> None:
        self.steps.close()
        self.snapshots.close()


def write_json(path: Path, value: Any) -> None:
    """Write JSON through a temporary file and a rename, so that a reader never sees half of it."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(value, file, indent=1, allow_nan=False)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def finish(work: Path, directory: Path, manifest: Mapping[str, Any]) -> None:
    """Copy a finished run's rows from `work` to `directory` and write its run.json last.

    `work` keeps its rows, so that a full disk between the two costs nothing. They may be one folder.
    """
    missing = [key for key in MANIFEST_KEYS if key not in manifest]
    if missing:
        raise ValueError(f"run.json lacks {', '.join(missing)}")
    if manifest["stop_reason"] not in STOP_REASONS:
        raise ValueError(f"stop_reason {manifest['stop_reason']!r}; allowed: {', '.join(STOP_REASONS)}")
    if Path(work) != Path(directory):
        directory.mkdir(parents=True, exist_ok=True)
        (directory / MANIFEST).unlink(missing_ok=True)  # an earlier record's must not stand over these rows
        for name in (STEPS, SNAPSHOTS):
            temporary = directory / f".{name}.{os.getpid()}"
            shutil.copyfile(Path(work) / name, temporary)
            os.replace(temporary, directory / name)
    write_json(directory / MANIFEST, manifest)


def empty_frame(columns: Mapping[str, tuple[type, bool]]) -> pd.DataFrame:
    """A frame without rows with the schema's columns and types."""
    return _typed(pd.DataFrame(columns=list(columns)), columns)


def _typed(frame: pd.DataFrame, columns: Mapping[str, tuple[type, bool]]) -> pd.DataFrame:
    frame = frame.reindex(columns=list(columns))
    types = {
        name: "float64" if kind is float else ("Int64" if nullable else "int64")
        for name, (kind, nullable) in columns.items()
    }
    return frame.astype(types)


def read_rows(path: Path, columns: Mapping[str, tuple[type, bool]]) -> pd.DataFrame:
    """One row file as a frame of the schema's columns and types; a half-written last line is left out.

    Columns the schema does not know are an error; a null is NaN. Raises UserError naming file and
    line.
    """
    try:
        lines = Path(path).read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        raise UserError(f"{path} is missing; a run record has {STEPS}, {SNAPSHOTS} and {MANIFEST}.") from None
    if lines and not lines[-1].endswith(b"\n"):
        lines.pop()
    frame = _read_plain(lines, columns)
    if frame is not None:
        return frame
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            rows.append(check_row(json.loads(line), columns))
        except (ValueError, TypeError, AttributeError) as error:
            raise UserError(f"{path}, line {number}, is not a row of a run record: {error}.") from None
    return _typed(pd.DataFrame(rows, columns=list(columns)), columns)


def _read_plain(lines: list[bytes], columns: Mapping[str, tuple[type, bool]]) -> pd.DataFrame | None:
    """The rows read all at once, ten times as fast; None where one of them needs a conversion or is at fault."""
    types = {name: pa.float64() if kind is float else pa.int64() for name, (kind, _) in columns.items()}
    options = pyarrow.json.ParseOptions(explicit_schema=pa.schema(types), unexpected_field_behavior="error")
    try:
        table = pyarrow.json.read_json(pa.BufferReader(b"".join(lines)), parse_options=options)
    except pa.ArrowInvalid:
        return None
    gaps = any(table[name].null_count for name, (_, nullable) in columns.items() if not nullable)
    return None if gaps or table.num_rows != len(lines) else _typed(table.to_pandas(), columns)


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A run as read: typed frames and the manifest (`{}` for a run in progress or a foreign log)."""

    steps: pd.DataFrame
    snapshots: pd.DataFrame
    manifest: dict[str, Any] = field(default_factory=dict)
    directory: Path | None = None

    @property
    def sync_interval(self) -> int | None:
        return self.manifest.get("sync_interval")

    @property
    def lr(self) -> float | None:
        return self.manifest.get("lr")


def read_manifest(directory: Path) -> dict[str, Any]:
    """run.json of a finished run; UserError where it is missing or damaged."""
    path = Path(directory) / MANIFEST
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path} is missing: the run has not finished.") from None
    except ValueError as error:
        raise UserError(f"{path} is not JSON ({error}).") from None
    if not isinstance(manifest, dict):
        raise UserError(f"{path} holds no JSON object.")
    missing = [key for key in MANIFEST_KEYS if key not in manifest]
    if missing:
        raise UserError(f"{path} lacks the key {missing[0]!r}: not a run record of schema {SCHEMA_VERSION}.")
    return manifest


def read_run(directory: Path, in_progress: bool = False) -> RunRecord:
    """The record in a directory; with `in_progress`, one without run.json is read too."""
    directory = Path(directory)
    manifest: dict[str, Any] = {}
    if not in_progress or (directory / MANIFEST).exists():
        manifest = read_manifest(directory)
    return RunRecord(
        steps=read_rows(directory / STEPS, STEP_COLUMNS),
        snapshots=read_rows(directory / SNAPSHOTS, SNAPSHOT_COLUMNS),
        manifest=manifest,
        directory=directory,
    )
