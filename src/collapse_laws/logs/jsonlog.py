"""JSON logs: lines of objects (verl's file logger and other trainers) and whole files (TRL's trainer_state.json).

verl's file logger writes `{"step": 3, "data": {...}}`, several lines for one step. Others nest metrics in objects, or
write one metric a line as {"name": ..., "value": ...}. A damaged line is counted and left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from collapse_laws.errors import UserError
from collapse_laws.logs.numbers import as_number
from collapse_laws.logs.sources import read_text
from collapse_laws.logs.table import MetricTable

# objects whose name says nothing about the metric inside
_ENVELOPES = frozenset({"data", "metrics", "log", "logs", "values", "scalars", "payload", "stats"})
_NAME_KEYS = ("name", "metric", "key", "tag")
_MAX_DEPTH = 6


class JsonLines:
    """Parses one line after another into a table."""

    def __init__(self, table: MetricTable) -> None:
        self.table = table
        self.damaged = 0

    def feed(self, line: str) -> None:
        """Add the object of a line; a blank line is nothing, anything else is counted as damaged."""
        line = line.strip()
        if not line:
            return
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            self.damaged += 1
            return
        if not isinstance(value, dict) or not put_object(self.table, value):
            self.damaged += not isinstance(value, dict)


def put_object(table: MetricTable, value: Mapping[str, Any]) -> bool:
    """One row from an object; False where it holds no number."""
    table.start_row()
    named = next((value[key] for key in _NAME_KEYS if isinstance(value.get(key), str)), None)
    if named is not None and "value" in value:
        number = as_number(value["value"])
        if number is not None:
            table.put(named, number)
        value = {key: item for key, item in value.items() if key not in ("value", *_NAME_KEYS)}
    return _flatten(table, value, "", 0)


def _flatten(table: MetricTable, value: Mapping[str, Any], prefix: str, depth: int) -> bool:
    found = False
    for key, item in value.items():
        kind = type(item)
        if kind is float or kind is int or kind is str:
            number = as_number(item)
            if number is not None:
                table.put(prefix + key, number)
                found = True
        elif kind is dict and depth < _MAX_DEPTH:
            inner = prefix if key in _ENVELOPES else f"{prefix}{key}/"
            found |= _flatten(table, item, inner, depth + 1)
        elif item is None and table.keeps(prefix + key):
            continue
    return found


def read_json_lines(lines: Iterable[str], table: MetricTable) -> list[str]:
    """Fill the table; returns notes."""
    parser = JsonLines(table)
    for line in lines:
        parser.feed(line)
    return [f"{parser.damaged} damaged line(s) left out"] if parser.damaged else []


def load_document(path: Path, encoding: str) -> Any:
    """A whole JSON file; UserError where it is none."""
    try:
        return json.loads(read_text(path, encoding))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not complete JSON ({' '.join(str(error).split())[:120]}).") from None


def read_document(document: Any, path: Path, table: MetricTable) -> list[str]:
    """Rows of a whole-file log: trainer_state.json, a list of objects, or an object of equally long lists."""
    if isinstance(document, dict):
        for key in ("log_history", "history", "logs", "metrics", "records", "rows", "data"):
            if isinstance(document.get(key), list):
                document = document[key]
                break
    if isinstance(document, dict):
        document = _rows_of_columns(document)
    if not isinstance(document, list):
        raise UserError(f"{path} is JSON but no log: a list of objects, one a step, is readable.")
    skipped = 0
    for value in document:
        if isinstance(value, dict):
            put_object(table, value)
        else:
            skipped += 1
    return [f"{skipped} entries that are no objects left out"] if skipped else []


def _rows_of_columns(document: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    columns = {key: item for key, item in document.items() if isinstance(item, list) and item}
    longest = max((len(item) for item in columns.values()), default=0)
    whole = {key: item for key, item in columns.items() if len(item) == longest}
    if not whole:
        return [dict(document)]  # one row
    return [dict(zip(whole, values, strict=True)) for values in zip(*whole.values(), strict=True)]
