"""JSON logs: lines of objects (verl's file logger and other trainers) and whole files (TRL's trainer_state.json).

verl's file logger writes `{"step": 3, "data": {...}}`, several lines for one step. Others nest metrics in objects, or
write one metric a line as {"name": ..., "value": ...}. A damaged line is counted and left out.
"""

from __future__ import annotations

import itertools
import json
import re
from array import array
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from collapse_laws.errors import UserError
from collapse_laws.logs.detect import is_numbered
from collapse_laws.logs.keys import SPLIT_KEYS, is_held_out, role_of
from collapse_laws.logs.numbers import as_number, position
from collapse_laws.logs.sources import read_text
from collapse_laws.logs.table import MetricTable
from collapse_laws.logs.templates import Place, read_lines

# objects whose name says nothing about the metric inside
_ENVELOPES = frozenset({"data", "metrics", "log", "logs", "values", "scalars", "payload", "stats"})
_NAME_KEYS = ("name", "metric", "key", "tag")
_MAX_DEPTH = 6
# a name, a text, or a number, in the order of a JSON line
_TOKEN = re.compile(rb'("(?:[^"\\]|\\.)*"\s*:\s*)|"(?:[^"\\]|\\.)*"|(-?[0-9][-+0-9.eE]*|NaN|-?Infinity)')


_OPEN_LIST = re.compile(r"\s*\[?")
_BETWEEN = re.compile(r"[\s,]*")


class JsonLines:
    """Parses one line after another into a table."""

    separator = b","
    waiting = False

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
            value = _item_of_list(line)
        if not isinstance(value, dict) or not put_object(self.table, value):
            self.damaged += not isinstance(value, dict)

    def places(self, line: str) -> list[Place] | None:
        """Where an object's line holds its numbers; None where a text names a metric or holds its number."""
        ordinal = itertools.count()

        def number_it(_: str) -> float:
            return float(next(ordinal))

        try:
            value = json.loads(line)
            numbered = json.loads(line, parse_float=number_it, parse_int=number_it, parse_constant=number_it)
        except (ValueError, RecursionError):
            return None
        if not isinstance(value, dict) or any(isinstance(value.get(k), str) for k in _NAME_KEYS):
            return None
        spots = _spots(line)
        names = [key for key, _ in _kept(self.table, value)]
        which = _kept(self.table, _without_texts(numbered))
        if len(spots) != next(ordinal) or names != [key for key, _ in which]:
            return None
        places = [Place(key, *spots[int(number)]) for key, number in which]
        return places or None

    def storage(self, key: str) -> tuple[array, array]:
        """Where the table keeps a key's values."""
        return self.table.storage(key)

    def put_lines(self, columns: tuple[tuple[array, array], ...], numbers: list[list[float]]) -> None:
        """Objects, one a row, by their numbers."""
        first = self.table.rows
        self.table.rows += len(numbers[0])
        for (column, values), found in zip(columns, numbers, strict=True):
            column.extend(range(first, self.table.rows))
            values.extend(found)

    def glance(self, line: str) -> None:
        """No line is known to hold nothing."""


def _item_of_list(line: str) -> Any:
    """The object of a line that ends with a comma, None for anything else."""
    try:
        return json.loads(line[:-1]) if line.endswith(",") else None
    except (ValueError, RecursionError):
        return None


class _Kept(MetricTable):
    """A table that lists what it is given, in order."""

    def __init__(self, table: MetricTable) -> None:
        super().__init__()
        self.given: list[tuple[str, float]] = []
        self._keeps = table.keeps

    def put(self, key: str, value: float) -> None:
        if self._keeps(key):
            self.given.append((key, value))


def _kept(table: MetricTable, value: Mapping[str, Any]) -> list[tuple[str, float]]:
    kept = _Kept(table)
    put_object(kept, value)
    return kept.given


def _without_texts(value: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _without_texts(item) if isinstance(item, dict) else item
        for key, item in value.items()
        if not isinstance(item, str)
    }


def _spots(line: str) -> list[tuple[int, int, int]]:
    """For each number of a line, in bytes: where the name before it begins, where it begins and where it ends."""
    spots, name = [], 0
    for token in _TOKEN.finditer(line.encode()):
        if token.group(1):
            name = token.start()
        elif token.group(2):
            spots.append((name, *token.span(2)))
    return spots


def put_object(table: MetricTable, value: Mapping[str, Any]) -> bool:
    """One row from an object; False where it holds no number."""
    table.start_row()
    prefix = ""
    if not SPLIT_KEYS.isdisjoint(value) and any(map(is_held_out, map(value.get, SPLIT_KEYS))):
        prefix = "eval/"
    named = next((value[key] for key in _NAME_KEYS if isinstance(value.get(key), str)), None)
    if named is not None and "value" in value:
        number = as_number(value["value"])
        if number is not None:
            table.put(prefix + named, number)
        value = {key: item for key, item in value.items() if key not in ("value", *_NAME_KEYS)}
    return _flatten(table, value, prefix, 0)


def _flatten(table: MetricTable, value: Mapping[str, Any], prefix: str, depth: int) -> bool:
    found = False
    for key, item in value.items():
        kind = type(item)
        if kind is float or kind is int or kind is str:
            number = as_number(item)
            if number is None and kind is str and _is_step(key):
                number = position(item)
            if number is not None:
                table.put(prefix + key, number)
                found = True
        elif kind is dict and depth < _MAX_DEPTH:
            inner = prefix if key in _ENVELOPES else f"{prefix}{key}/"
            found |= _flatten(table, item, inner, depth + 1)
        elif item is None and table.keeps(prefix + key):
            continue
    return found


def _is_step(key: str) -> bool:
    found = role_of(key)
    return found is not None and found[0] == "step"


def read_json_lines(lines: Iterable[bytes], table: MetricTable) -> list[str]:
    """Fill the table; returns notes."""
    parser = JsonLines(table)
    parser.feed(read_lines(lines, parser).decode("utf-8", "replace"))
    return [f"{parser.damaged} damaged line(s) left out"] if parser.damaged else []


def load_document(path: Path, encoding: str) -> tuple[Any, list[str]]:
    """A whole JSON file and notes; UserError where it is none. Objects one after another and a list that is still being
    written are read as far as they are complete.
    """
    text = read_text(path, encoding)
    try:
        return json.loads(text), []
    except (ValueError, RecursionError) as error:
        values = _leading_objects(text)
        if not values:
            raise UserError(f"{path} is not complete JSON ({' '.join(str(error).split())[:120]}).") from None
        return values, [f"the file is no complete JSON document: {len(values)} complete objects were read"]


def _leading_objects(text: str) -> list[dict[str, Any]]:
    """The objects a text begins with, after the bracket of a list, with commas or blanks between them."""
    decoder, values = json.JSONDecoder(), []
    at = _BETWEEN.match(text, _OPEN_LIST.match(text).end()).end()  # type: ignore[union-attr]
    while text.startswith("{", at):
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            break
        values.append(value)
        at = _BETWEEN.match(text, at).end()  # type: ignore[union-attr]
    return values


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
    if document and all(map(is_numbered, document.values())):  # pandas: {"reward": {"0": 0.5, "1": 0.6}}
        numbers = sorted({number for item in document.values() for number in item}, key=lambda text: (len(text), text))
        return [{key: item.get(number) for key, item in document.items()} for number in numbers]
    columns = {key: item for key, item in document.items() if isinstance(item, list) and item}
    longest = max((len(item) for item in columns.values()), default=0)
    whole = {key: item for key, item in columns.items() if len(item) == longest}
    if not whole:
        return [dict(document)]  # one row
    return [dict(zip(whole, values, strict=True)) for values in zip(*whole.values(), strict=True)]
