"""Read any known log: recognise its kind by content, choose its keys, make a run record of it, and say what was read.

Kinds: our run records, verl's file and console logs (synchronous and fully-async), TRL's trainer_state.json and printed
dictionaries, JSON lines and documents, CSV (W&B exports among them), TensorBoard events, plain `key=value` text. W&B's
offline .wandb files are recognised and declined: since W&B moved its writer out of Python no maintained reader of them
is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from collapse_laws.errors import UserError
from collapse_laws.logs import own
from collapse_laws.logs.build import build
from collapse_laws.logs.csvlog import metric_name, read_csv
from collapse_laws.logs.detect import WANDB_MAGIC, detect, text_field, unwrapped
from collapse_laws.logs.jsonlog import load_document, read_document, read_json_lines
from collapse_laws.logs.keys import ORDINAL
from collapse_laws.logs.numbers import check_sync_interval
from collapse_laws.logs.series import Series
from collapse_laws.logs.snapshots import SnapshotMeans
from collapse_laws.logs.sources import iter_lines, read_head, regular_file, text_encoding
from collapse_laws.logs.steps import growing_keys
from collapse_laws.logs.table import MetricTable
from collapse_laws.logs.tensorboard import event_files, read_events
from collapse_laws.logs.textlog import read_text_lines
from collapse_laws.runrecord import RunRecord

FORMATS = {
    "run_record": "a run record of this package (directory, or one of its files)",
    "verl_file": "verl's file logger",
    "verl_console": "verl's console output",
    "trl_trainer_state": "trainer_state.json of TRL and transformers",
    "text": "text: printed dictionaries (TRL), key=value or key: value lines",
    "jsonl": "JSON lines of any trainer",
    "json": "a JSON document: a list of objects, or an object of lists",
    "csv": "CSV of any trainer",
    "wandb_csv": "CSV export of a W&B chart",
    "tensorboard": "TensorBoard event file or directory",
}
_LOG_SUFFIXES = (".jsonl", ".ndjson", ".json", ".log", ".txt", ".out", ".csv", ".tsv", ".gz")
_MOST_FILES = 20  # in a directory, to be tried one after another
LINE_FORMATS = ("verl_file", "verl_console", "text", "jsonl", "csv", "wandb_csv")


@dataclass(frozen=True, slots=True)
class ReadLog:
    """A log as read. `record` follows the schema of our run records, with NaN where the log is silent.

    Without S (`sync_interval` None) the record's snapshots are the logged records themselves, as if S were their
    distance.
    """

    path: Path
    format: str
    record: RunRecord
    series: Series
    snapshots: SnapshotMeans
    sync_interval: int | None
    sync_interval_source: str  # given | log | unknown
    rows: int
    keys: dict[str, str]  # role -> key used
    exactness: str  # one sentence
    notes: tuple[str, ...]
    fully_async: bool = False
    counts_synchronisations: bool = False  # which cannot be turned into updates, for want of S
    stale: float | None = None  # largest count of stale trajectories that the log shows
    other_keys: tuple[str, ...] = field(default=())

    @property
    def steps(self) -> int:
        """Distinct records with a reward."""
        return int(self.series.reward.size)


def read_log(
    path: Path | str,
    *,
    format: str | None = None,
    reward_key: str | None = None,
    step_key: str | None = None,
    sync_interval: int | None = None,
) -> ReadLog:
    """Read a log of any known kind.

    `sync_interval` is S as the user gives it; where the log itself shows S (fully-async verl, our records) it may be
    left out. Raises UserError, one sentence, for a file that is missing, empty, binary, of no known kind, without
    rewards, or of two runs.
    """
    path = Path(path)
    if format is not None and format not in FORMATS:
        raise UserError(f"--format {format!r} is not known; allowed: {', '.join(FORMATS)}.")
    check_sync_interval(sync_interval)
    with regular_file(path) as file:
        log = _read(file, format, reward_key, step_key, sync_interval)
    if file == path:
        return log
    log.record.manifest["source"] = str(path)
    return replace(log, path=path)


def _read(
    path: Path, format: str | None, reward_key: str | None, step_key: str | None, sync_interval: int | None
) -> ReadLog:
    table = MetricTable(key for key in (reward_key, step_key) for key in _spellings(key))
    notes: list[str] = []
    if path.is_dir():
        found, files = _look_into(path, format)
        if found == "run_record":
            return build_record(path, sync_interval)
        if found == "tensorboard":
            notes += read_events(files, table)
            return _finish(path, found, table, notes, reward_key, step_key, sync_interval)
        if found is None:
            return _read_only_log(path, files, format, reward_key, step_key, sync_interval)
        path, format = files[0], found
    head = read_head(path)
    directory = own.record_of_file(path, head) if format in (None, "run_record") and not reward_key else None
    if directory is not None:
        return build_record(directory, sync_interval)
    kind = format or detect(path, head)
    if kind == "tensorboard":
        notes += read_events([path], table)
        return _finish(path, kind, table, notes, reward_key, step_key, sync_interval)
    encoding = text_encoding(path, head)
    if kind in ("json", "trl_trainer_state"):
        document, cut = load_document(path, encoding)
        notes += [*cut, *read_document(document, path, table)]
        if format is None and isinstance(document, dict) and isinstance(document.get("log_history"), list):
            kind = "trl_trainer_state"
        log = _finish(path, kind, table, notes, reward_key, step_key, sync_interval)
        return _hinted(log, table, lambda other: read_document(document, path, other))
    text = head.decode(encoding, errors="replace")
    lines = iter_lines(path, encoding)
    field = text_field(text) if kind == "jsonl" and format is None else None
    if field is not None:
        kind, lines = "text", unwrapped(lines, field)
        notes.append(f"each line is the text under {field!r} of a JSON object")
    found, key = _read_lines(path, text, lines, kind, table, notes, reward_key, format is not None)
    log = _finish(path, found, table, notes, key, step_key, sync_interval)
    first = [line.encode("utf-8", "replace") for line in text.splitlines(keepends=True)]
    return _hinted(log, table, lambda other: _read_lines(path, text, iter(first), kind, other, [], reward_key, True))


def _hinted(log: ReadLog, table: MetricTable, again: Callable[[MetricTable], Any]) -> ReadLog:
    """The log, with a note on what may be its step where none is known by name; `again` fills a table with its first
    rows, since the numbers of keys without a role are not kept.
    """
    if table.count(ORDINAL) or not {"step", "learner_step"}.isdisjoint(log.keys):
        return log
    first = MetricTable((*table.seen, log.keys["reward"]))
    again(first)
    keys = growing_keys(first, log.keys["reward"])
    if not keys:
        return log
    shown = " and ".join(map(repr, keys[:3]))
    note = f"{shown} {'grows' if len(keys) == 1 else 'grow'} as a step does: if it counts updates, give --step-key"
    return replace(log, notes=(*log.notes, f"{note} {keys[0]!r}"))


def _read_only_log(
    directory: Path,
    files: list[Path],
    format: str | None,
    reward_key: str | None,
    step_key: str | None,
    sync_interval: int | None,
) -> ReadLog:
    """The one readable log among the files of a directory; UserError for none or several."""
    read = []
    for file in files:
        try:
            read.append(_read(file, format, reward_key, step_key, sync_interval))
        except UserError:
            continue
    if len(read) == 1:
        return replace(read[0], notes=(f"read {read[0].path}, the only log there", *read[0].notes))
    if read:
        names = ", ".join(str(log.path.relative_to(directory)) for log in read[:5])
        raise UserError(f"{directory} holds {len(read)} logs ({names}); name the log file itself.")
    raise UserError(
        f"{directory} is a directory without a run record, trainer_state.json, TensorBoard events or one readable log; "
        "name the log file itself."
    )


def build_record(directory: Path, sync_interval: int | None) -> ReadLog:
    """Our own record; UserError where S contradicts its manifest."""
    from collapse_laws.logs.build import build_own

    return ReadLog(path=directory, format="run_record", **build_own(directory, sync_interval))


def _spellings(key: str | None) -> tuple[str, ...]:
    return () if key is None else (key, metric_name(key))


def _read_lines(
    path: Path,
    head: str,
    lines: Iterator[bytes],
    kind: str,
    table: MetricTable,
    notes: list[str],
    reward_key: str | None,
    forced: bool,
) -> tuple[str, str | None]:
    """Read a log of lines; returns its kind, refined by what was met, and the reward key as the table spells it."""
    if kind in ("jsonl", "verl_file"):
        notes += read_json_lines(lines, table)
        if not forced and '"data"' in head and any("critic/" in key for key in table.keys()):
            kind = "verl_file"
    elif kind in ("csv", "wandb_csv"):
        asked = [reward_key] if reward_key else []
        parser = read_csv(lines, path, table, asked)
        reward_key = metric_name(reward_key) if reward_key else None
        kind = "wandb_csv" if parser.exported else kind
        notes += [f"{parser.damaged} damaged row(s) left out"] if parser.damaged else []
    else:
        read_text_lines(lines, table)
        if not forced and any(key.startswith(("critic/", "actor/")) for key in table.keys()):
            kind = "verl_console"
    return kind, reward_key


def _finish(
    path: Path,
    kind: str,
    table: MetricTable,
    notes: list[str],
    reward_key: str | None,
    step_key: str | None,
    sync_interval: int | None,
) -> ReadLog:
    fields = build(str(path), table, notes, kind, reward_key, step_key, sync_interval)
    return ReadLog(path=path, format=kind, **fields)


def _look_into(directory: Path, format: str | None) -> tuple[str | None, list[Path]]:
    """What a directory holds: our record, TensorBoard events, TRL's trainer_state.json, or None and files that may be
    logs.
    """
    if own.is_record_directory(directory):
        return "run_record", []
    states = sorted(directory.glob("trainer_state.json")) or sorted(
        directory.glob("checkpoint-*/trainer_state.json"),
        key=lambda path: _number(path.parent.name),
    )
    if states and format != "tensorboard":
        return "trl_trainer_state", states[-1:]
    events = event_files(directory)
    if events:
        return "tensorboard", events
    offline = list(directory.glob("*.wandb"))
    if offline:
        detect(offline[0], WANDB_MAGIC)
    inside = sorted([*directory.glob("*"), *directory.glob("*/*")])
    files = [file for file in inside if file.suffix.lower() in _LOG_SUFFIXES and file.is_file()]
    return None, files if len(files) <= _MOST_FILES else []


def _number(name: str) -> int:
    digits = "".join(filter(str.isdigit, name))
    return int(digits[:18]) if digits else -1
