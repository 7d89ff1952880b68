"""A shortcut for long logs, whose lines repeat a few layouts: read the wanted numbers of a line whose layout was met before.

The layout of a line is what is left of it without the characters of numbers. A line of a new layout goes through the whole parser, which
also says where its wanted numbers stand; later lines of the same layout are searched for the texts before these numbers. Whatever does not
fit exactly (a text that is not there, something that is no number) goes through the whole parser again.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

_OF_NUMBERS = b"0123456789.+-eE"
_REMEMBERED = 64


@dataclass(frozen=True, slots=True)
class Place:
    """Where a line holds the number of a key: between two texts, after the places before it."""

    key: str
    before: bytes
    after: bytes


@dataclass(slots=True)
class Layout:
    """The wanted numbers of one layout; without places it is read by the parser each time."""

    fields: list[tuple[bytes, int, bytes]] = field(default_factory=list)
    columns: list[tuple[array, array]] = field(default_factory=list)
    used: bool = False

    def numbers(self, line: bytes) -> list[float] | None:
        """The numbers in the order of the places; None where the line does not fit."""
        at = 0
        found = []
        find = line.find
        try:
            for before, size, after in self.fields:
                at = find(before, at)
                if at < 0:
                    return None
                at += size
                end = find(after, at)
                found.append(float(line[at:end]))
                at = end
        except ValueError:
            return None
        return found


class LineParser(Protocol):
    """What a parser of lines offers beside `feed`."""

    def feed(self, line: str) -> None: ...

    def places(self, line: str) -> list[Place] | None:
        """Where this line, which `feed` has read, holds its numbers; None where the layout does not tell."""

    def put_numbers(self, columns: list[tuple[array, array]], numbers: list[float]) -> None:
        """Take in the numbers of a line as `feed` would."""

    def column(self, key: str) -> tuple[array, array]:
        """Where the table keeps the values of a key."""


def read_lines(lines: Iterable[bytes], parser: LineParser) -> bytes:
    """Feed all terminated lines (utf-8); returns the unterminated last one, b"" where there is none."""
    layouts: dict[bytes, Layout] = {}
    known = layouts.get
    put = parser.put_numbers
    for line in lines:
        shape = line.translate(None, _OF_NUMBERS)
        layout = known(shape)
        if layout is not None:
            layout.used = True
            if layout.fields:
                numbers = layout.numbers(line)
                if numbers is not None:
                    put(layout.columns, numbers)
                    continue
        elif not line.endswith(b"\n"):
            return line
        text = line.decode("utf-8", "replace")
        parser.feed(text)
        if layout is None and _has_room(layouts):
            layouts[shape] = _learn(line, text, parser)
    return b""


def _learn(line: bytes, text: str, parser: LineParser) -> Layout:
    places = parser.places(text)
    if not places:
        return Layout()
    layout = Layout(
        [(place.before, len(place.before), place.after) for place in places],
        [parser.column(place.key) for place in places],
    )
    return layout if layout.numbers(line) is not None else Layout()


def _has_room(layouts: dict[bytes, Layout]) -> bool:
    """Forget the layouts that never came again once there are many: those of lines with free text."""
    if len(layouts) >= _REMEMBERED:
        for shape in [shape for shape, layout in layouts.items() if not layout.used]:
            del layouts[shape]
    return len(layouts) < _REMEMBERED
