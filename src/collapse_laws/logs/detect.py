"""What kind of log a file is, by its first 64 KiB."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from collapse_laws.errors import UserError
from collapse_laws.logs.csvlog import looks_like_csv
from collapse_laws.logs.keys import role_of
from collapse_laws.logs.sources import text_encoding
from collapse_laws.logs.tensorboard import is_event_file

WANDB_MAGIC = b":W&B"
_TEXT_FIELDS = ("log", "message", "msg")  # Docker's and structured loggers' names for the line that was printed


def detect(path: Path, head: bytes) -> str:
    """The kind of a file, by its content. UserError for a binary of no known kind."""
    if head.startswith(WANDB_MAGIC):
        raise UserError(
            f"{path} is an offline W&B file, for which no maintained reader exists; upload it with `wandb sync` and "
            "export its reward chart as CSV."
        )
    if is_event_file(head):
        return "tensorboard"
    text = head.decode(text_encoding(path, head), errors="replace").replace("\r\n", "\n").replace("\r", "\n")
    if text.lstrip()[:1] in ("{", "[") and _is_document(text):
        return "trl_trainer_state" if '"log_history"' in text else "json"
    lines = [line for line in text.splitlines()[:400] if line.strip()]
    complete = lines[:-1] if len(lines) > 1 and len(head) >= 60_000 else lines
    objects = sum(_object_of(line) is not None for line in complete[:50])
    if objects and 2 * objects > min(len(complete), 50):
        return "jsonl"
    if looks_like_csv(lines):
        return "csv"
    return "text"


def text_field(text: str) -> str | None:
    """The field whose text is the printed line, where the objects of the lines wrap a text log and hold no reward
    themselves; None for lines of metrics.
    """
    objects = [value for line in text.splitlines() if (value := _object_of(line)) is not None]
    for field in _TEXT_FIELDS:
        if objects and all(isinstance(value.get(field), str) for value in objects):
            return None if any(map(_holds_reward, objects)) else field
    return None


def unwrapped(lines: Iterable[bytes], field: str) -> Iterator[bytes]:
    """The texts of a field as lines; a line that is no such object is left out."""
    for line in lines:
        value = _object_of(line.decode("utf-8", "replace"))
        text = value.get(field) if value is not None else None
        if isinstance(text, str):
            yield from (text.rstrip("\r\n") + "\n").replace("\r", "\n").encode("utf-8", "replace").splitlines(True)


def _holds_reward(value: Any, depth: int = 0) -> bool:
    return any(
        (isinstance(item, dict) and depth < 3 and _holds_reward(item, depth + 1))
        or (isinstance(item, int | float) and (role_of(key) or ("",))[0] == "reward")
        for key, item in value.items()
    )


def _object_of(line: str) -> dict[str, Any] | None:
    line = line.strip().rstrip(",")
    if not (line.startswith("{") and line.endswith("}")):
        return None
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _is_document(text: str) -> bool:
    """Whether a text that begins with a bracket is one JSON value, not lines of them; a long text's end is not at
    hand.
    """
    first, _, rest = text.lstrip().partition("\n")
    value = _object_of(first)
    if value is not None and rest.strip():
        return False
    if first.startswith("{'"):
        return False
    if value is not None:
        return "log_history" in value or any(isinstance(item, list) or is_numbered(item) for item in value.values())
    return first.strip() in ("{", "[") or first.lstrip().startswith(('{"', "[{", "[ {"))


def is_numbered(item: Any) -> bool:
    """Whether an object's names are row numbers, as pandas writes a column."""
    return isinstance(item, dict) and len(item) > 1 and all(key.isdecimal() for key in item)
