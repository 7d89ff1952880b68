"""CSV logs: W&B chart exports ("run - metric" columns with __MIN and __MAX twins), whole-history exports, other
trainers' tables.

The separator is the comma, semicolon or tab that splits the header most often. A long table (step, metric, value) is
read too.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from pathlib import Path

from collapse_laws.errors import UserError
from collapse_laws.logs.keys import SPLIT_KEYS, is_held_out, role_of
from collapse_laws.logs.numbers import parse_number
from collapse_laws.logs.table import MetricTable

_TWINS = ("__MIN", "__MAX")
_LONG_NAMES = {"metric", "name", "key", "tag", "variable"}


def separator(header: str) -> str:
    """The separator of a CSV header."""
    return max(",;\t", key=header.count)


def looks_like_csv(lines: list[str]) -> bool:
    """Whether the first lines are a table: a header of names and rows with as many cells, at least one of them a
    number.
    """
    rows = [line for line in lines if line.strip() and not line.startswith("#")][:6]
    if len(rows) < 2 or rows[0].lstrip().startswith(("{", "[")):
        return False
    mark = separator(rows[0])
    try:
        cells = list(csv.reader(rows, delimiter=mark))
    except csv.Error:
        return False
    if len(cells) < 2:  # an open quotation mark has swallowed the rest
        return False
    header = cells[0]
    if len(header) < 2 or any(parse_number(name) is not None for name in header if name):
        return False
    return all(
        len(row) == len(header) and any(parse_number(cell) is not None for cell in row if cell) for row in cells[1:-1]
    ) and any(parse_number(cell) is not None for cell in cells[1] if cell)


class CsvTable:
    """Parses one line after another; the first that is not a comment is the header."""

    def __init__(self, table: MetricTable, path: Path, wanted: Iterable[str] = ()) -> None:
        self.table = table
        self.damaged = 0
        self.exported = False  # W&B's chart export
        self._path = path
        self._wanted = frozenset(wanted)
        self._names: list[str | None] = []  # metric of each column, None for one that is not read
        self._splits: list[int] = []  # columns whose text may mark a row as one of evaluation
        self._width = 0
        self._mark = ","
        self._long: tuple[int, int] | None = None

    def feed(self, line: str) -> None:
        """Take in one line; a row with another number of cells is counted as damaged."""
        if not line.strip() or (line.startswith("#") and not self._names):
            return
        if not self._names:
            self._mark = separator(line)
            self._read_header(next(csv.reader([line], delimiter=self._mark)))
            return
        try:
            cells = next(csv.reader([line], delimiter=self._mark))
        except (csv.Error, StopIteration):
            self.damaged += 1
            return
        self.put_cells(cells)

    def put_cells(self, cells: list[str]) -> None:
        """One row."""
        if len(cells) != self._width:
            self.damaged += 1
            return
        self.table.start_row()
        prefix = "eval/" if any(is_held_out(cells[index]) for index in self._splits) else ""
        if self._long is not None:
            number = parse_number(cells[self._long[1]])
            if number is not None:
                self.table.put(prefix + cells[self._long[0]], number)
        for index, (name, cell) in enumerate(zip(self._names, cells, strict=True)):
            if name is None or not cell or (self._long is not None and index in self._long):
                continue
            number = parse_number(cell)
            if number is not None:
                self.table.put(prefix + name, number)

    def _read_header(self, header: list[str]) -> None:
        header = [name.strip() for name in header]
        self._width = len(header)
        self.exported = any(name.endswith(_TWINS) for name in header)
        split = [_split_run(name) for name in header]
        chosen = self._choose_run(split)
        self._names = [
            None if not metric or metric.endswith(_TWINS) or (chosen and run not in ("", chosen)) else metric
            for run, metric in split
        ]
        lower = [name.lower() for name in header]
        self._splits = [index for index, name in enumerate(lower) if name in SPLIT_KEYS]
        names = [index for index, name in enumerate(lower) if name in _LONG_NAMES]
        if names and "value" in lower:
            self._long = names[0], lower.index("value")

    def _choose_run(self, split: list[tuple[str, str]]) -> str:
        """The run whose columns are read, "" where there is one only; UserError where the user must choose."""
        runs = sorted({run for run, metric in split if run and _role_of_reward(metric)})
        asked = [run for run, metric in map(_split_run, self._wanted) if run]
        if asked:
            return asked[0]
        if len(runs) > 1:
            metric = next(metric for run, metric in split if run == runs[0] and _role_of_reward(metric))
            listed = ", ".join(repr(f"{run} - {metric}") for run in runs[:5])
            raise UserError(f"{self._path} holds {len(runs)} runs; choose one with --reward-key: {listed}.")
        return ""


def _split_run(name: str) -> tuple[str, str]:
    """("run", "metric") of a W&B column; the run's own name may hold " - " too."""
    run, mark, metric = name.rpartition(" - ")
    return (run, metric) if mark else ("", name)


def _role_of_reward(metric: str) -> tuple[str, int] | None:
    found = role_of(metric)
    return found if found and found[0] == "reward" else None


def metric_name(key: str) -> str:
    """The metric that a column's name stands for."""
    return _split_run(key)[1]


def read_csv(lines: Iterator[bytes], path: Path, table: MetricTable, wanted: Iterable[str]) -> CsvTable:
    """Fill the table; the parser tells what it met."""
    parser = CsvTable(table, path, wanted)
    for line in lines:
        parser.feed(line.decode("utf-8", "replace"))
    return parser
