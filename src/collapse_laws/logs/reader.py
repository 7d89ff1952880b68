"""Read any known log: recognise its kind by content, choose its keys, make a run record of it, and say what was read.

Kinds: our run records, verl's file and console logs (synchronous and fully-async), TRL's trainer_state.json and printed
dictionaries, JSON lines and documents, CSV (W&B exports among them), TensorBoard events, plain `key=value` text. W&B's
offline .wandb files are recognised and declined: since W&B moved its writer out of Python no maintained reader of them
is left.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from collapse_laws.errors import UserError
from collapse_laws.logs import own
from collapse_laws.logs.build import build
from collapse_laws.logs.csvlog import looks_like_csv, metric_name, read_csv
from collapse_laws.logs.jsonlog import load_document, read_document, read_json_lines
from collapse_laws.logs.numbers import check_sync_interval
from collapse_laws.logs.series import Series
from collapse_laws.logs.snapshots import SnapshotMeans
from collapse_laws.logs.sources import iter_lines, read_head, text_encoding
from collapse_laws.logs.table import MetricTable
from collapse_laws.logs.tensorboard import event_files, is_event_file, read_events
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
LINE_FORMATS = ("verl_file", "verl_console", "text", "jsonl", "csv", "wandb_csv")
_WANDB_MAGIC = b":W&B"


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
    table = MetricTable(key for key in (reward_key, step_key) for key in _spellings(key))
    notes: list[str] = []
    if path.is_dir():
        found, files = _look_into(path, format)
        if found == "run_record":
            return build_record(path, sync_interval)
        if found == "tensorboard":
            notes += read_events(files, table)
            return _finish(path, found, table, notes, reward_key, step_key, sync_interval)
        path, format = files[0], found
    head = read_head(path)
    directory = own.record_of_file(path, head) if format in (None, "run_record") and not reward_key else None
    if directory is not None:
        return build_record(directory, sync_interval)
    kind = format or detect(path, head)
    if kind == "tensorboard":
        notes += read_events([path], table)
    elif kind in ("json", "trl_trainer_state"):
        notes += read_document(load_document(path, text_encoding(path, head)), path, table)
    else:
        kind, reward_key = _read_lines(path, head, kind, table, notes, reward_key, format is not None)
    return _finish(path, kind, table, notes, reward_key, step_key, sync_interval)


def detect(path: Path, head: bytes) -> str:
    """The kind of a file, by its content. UserError for a binary of no known kind."""
    if head.startswith(_WANDB_MAGIC):
        raise UserError(
            f"{path} is an offline W&B file, for which no maintained reader exists; upload it with `wandb sync` and "
            "export its reward chart as CSV."
        )
    if is_event_file(head):
        return "tensorboard"
    text = head.decode(text_encoding(path, head), errors="replace")
    if text.lstrip()[:1] in ("{", "[") and _is_document(text):
        return "trl_trainer_state" if '"log_history"' in text else "json"
    lines = [line for line in text.splitlines()[:400] if line.strip()]
    complete = lines[:-1] if len(lines) > 1 and len(head) >= 60_000 else lines
    objects = sum(_is_object(line) for line in complete[:50])
    if objects and 2 * objects > min(len(complete), 50):
        return "jsonl"
    if looks_like_csv(lines):
        return "csv"
    return "text"


def build_record(directory: Path, sync_interval: int | None) -> ReadLog:
    """Our own record; UserError where S contradicts its manifest."""
    from collapse_laws.logs.build import build_own

    return ReadLog(path=directory, format="run_record", **build_own(directory, sync_interval))


def _spellings(key: str | None) -> tuple[str, ...]:
    return () if key is None else (key, metric_name(key))


def _is_object(line: str) -> bool:
    line = line.strip()
    if not (line.startswith("{") and line.endswith("}")):
        return False
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _is_document(text: str) -> bool:
    """Whether a text that begins with a bracket is one JSON value, not lines of them; a long text's end is not at
    hand.
    """
    first, _, rest = text.lstrip().partition("\n")
    if _is_object(first) and rest.strip():
        return False
    if first.startswith("{'"):
        return False
    if _is_object(first):
        value = json.loads(first)
        return "log_history" in value or any(isinstance(item, list) for item in value.values())
    return first.strip() in ("{", "[") or first.lstrip().startswith(('{"', "[{", "[ {"))


def _read_lines(
    path: Path,
    head: bytes,
    kind: str,
    table: MetricTable,
    notes: list[str],
    reward_key: str | None,
    forced: bool,
) -> tuple[str, str | None]:
    """Read a log of lines; returns its kind, refined by what was met, and the reward key as the table spells it."""
    lines = iter_lines(path, text_encoding(path, head))
    if kind in ("jsonl", "verl_file"):
        notes += read_json_lines(lines, table)
        if not forced and b'"data"' in head and any("critic/" in key for key in table.keys()):
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


def _look_into(directory: Path, format: str | None) -> tuple[str, list[Path]]:
    """What a directory holds: our record, TensorBoard events, or TRL's trainer_state.json; UserError for anything
    else.
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
        detect(offline[0], _WANDB_MAGIC)
    raise UserError(
        f"{directory} is a directory without a run record, trainer_state.json or TensorBoard events; name the log file "
        "itself."
    )


def _number(name: str) -> int:
    digits = "".join(filter(str.isdigit, name))
    return int(digits[:18]) if digits else -1
