"""Sparse metrics of a log in the order of its rows, in typed arrays so that a million rows stay small."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping

import numpy as np

from collapse_laws.logs.keys import BAR_STEP, ORDINAL, TOTAL, role_of

# Keys without a role are only counted, for the sentence that names what a log holds; so many are remembered.
_KEYS_REMEMBERED = 300


class MetricTable:
    """Numbers by (row, key). Only keys with a role, or asked for by name, keep their values.

    `wanted` are the keys a user named. A row is what the log printed at once; several rows may belong to one step.
    """

    def __init__(self, wanted: Iterable[str] = ()) -> None:
        self.rows = 0
        self.seen: dict[str, int] = {}  # numeric keys without a role -> times seen
        self._wanted = frozenset(wanted) | {BAR_STEP, ORDINAL, TOTAL}
        self._columns: dict[str, tuple[array, array] | None] = {}

    def start_row(self) -> int:
        """Open a row; later `put`s go to it."""
        self.rows += 1
        return self.rows - 1

    def put(self, key: str, value: float) -> None:
        """Set a number of the open row."""
        try:
            column = self._columns[key]
        except KeyError:
            column = self._columns[key] = self._new_column(key)
        if column is None:
            if key in self.seen:
                self.seen[key] += 1
            elif len(self.seen) < _KEYS_REMEMBERED:
                self.seen[key] = 1
            return
        column[0].append(self.rows - 1)
        column[1].append(value)

    def keeps(self, key: str) -> bool:
        """Whether `put` would keep a value of this key; cheaper than parsing a number that is dropped."""
        try:
            return self._columns[key] is not None
        except KeyError:
            column = self._columns[key] = self._new_column(key)
            return column is not None

    def note(self, key: str) -> None:
        """Remember a key whose value was not parsed."""
        if key in self.seen:
            self.seen[key] += 1
        elif len(self.seen) < _KEYS_REMEMBERED:
            self.seen[key] = 1

    def storage(self, key: str) -> tuple[array, array]:
        """Rows and values of a key that is kept, to append to."""
        column = self._columns[key]
        assert column is not None
        return column

    def add(self, metrics: Mapping[str, float]) -> None:
        """One row with these numbers."""
        self.start_row()
        for key, value in metrics.items():
            self.put(key, value)

    def take(self) -> dict[str, float]:
        """The numbers put since the last `take`, the later of one key; they are forgotten here, so that a follower
        stays small.
        """
        taken = {}
        for key, column in self._columns.items():
            if column is not None and column[0]:
                taken[key] = column[1][-1]
                del column[0][:], column[1][:]
        return taken

    def keys(self) -> list[str]:
        """Keys that hold values, in order of appearance."""
        return [key for key, column in self._columns.items() if column is not None and column[0]]

    def count(self, key: str) -> int:
        column = self._columns.get(key)
        return len(column[0]) if column else 0

    def column(self, key: str) -> tuple[np.ndarray, np.ndarray]:
        """Row numbers and values of a key, in order."""
        column = self._columns.get(key)
        if column is None:
            return np.empty(0, dtype=np.int64), np.empty(0)
        return np.frombuffer(column[0], dtype=np.int64), np.frombuffer(column[1], dtype=np.float64)

    def dense(self, key: str) -> np.ndarray:
        """[rows] values of a key, NaN where a row lacks it; the last of several in one row."""
        values = np.full(self.rows, np.nan)
        rows, numbers = self.column(key)
        values[rows] = numbers
        return values

    def _new_column(self, key: str) -> tuple[array, array] | None:
        if len(self._columns) > 20_000:  # a file whose keys are data, not names
            self._columns = {k: c for k, c in self._columns.items() if c is not None}
        if key in self._wanted or role_of(key) is not None:
            return array("q"), array("d")
        return None
