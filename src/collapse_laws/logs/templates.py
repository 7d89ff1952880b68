"""A shortcut for long logs, whose lines repeat a few layouts: take the wanted numbers where an earlier line had them.

The layout of a line is what is left of it without the characters of numbers. A line of a new layout goes through the
whole parser, which also says where its wanted numbers stand; later lines of the same layout are matched with a pattern
of the names before these numbers. Whatever does not fit (another name, something that is no number) goes through the
whole parser again.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

_OF_NUMBERS = b"0123456789.+-eE"
_NUMBER = re.compile(rb"[-+0-9.eE]+")
_REMEMBERED = 256
_BATCH = 512
_LONGEST = 1 << 14


@dataclass(frozen=True, slots=True)
class Place:
    """Where a line holds the number of a key: bytes start to end, its name from byte `name` on."""

    key: str
    name: int
    start: int
    end: int


@dataclass(slots=True)
class Layout:
    """How lines of one layout are read: by a pattern, by a glance, or (neither) by the whole parser."""

    pattern: re.Pattern[bytes] | None = None
    columns: tuple[tuple[array, array], ...] = ()
    glance: bool = False
    learned: bool = False  # lines of free text are each of their own layout: one is learned when it comes again


class LineParser(Protocol):
    """A parser of lines and, for the shortcut, what it knows of their layouts."""

    separator: bytes  # a byte that stands between the parts of a line
    waiting: bool  # a glance may add to the open row

    def feed(self, line: str) -> None:
        """Take in any line."""

    def glance(self, line: str) -> None:
        """Take in a line of a layout without metrics."""

    def places(self, line: str) -> list[Place] | None:
        """Where this line, which `feed` has read, holds its numbers; empty where no line of its layout holds any; None
        where the layout does not tell.
        """

    def put_lines(self, columns: tuple[tuple[array, array], ...], numbers: list[list[float]]) -> None:
        """Take in lines as `feed` would, by their numbers: [places][lines]."""

    def storage(self, key: str) -> tuple[array, array]:
        """Where rows and values of a key are kept."""


class _Batch:
    """Lines of one layout that wait to be put into the table together."""

    def __init__(self, parser: LineParser) -> None:
        self.layout: Layout | None = None
        self.found: list[tuple[bytes, ...]] = []
        self.lines: list[bytes] = []
        self._parser = parser

    def flush(self) -> None:
        if not self.found:
            return
        try:
            numbers = [list(map(float, texts)) for texts in zip(*self.found, strict=True)]
        except ValueError:
            for line in self.lines:
                self._parser.feed(line.decode("utf-8", "replace"))
        else:
            self._parser.put_lines(self.layout.columns, numbers)  # type: ignore[union-attr]
        self.found.clear()
        self.lines.clear()


def read_lines(lines: Iterable[bytes], parser: LineParser) -> bytes:
    """Feed all terminated lines (utf-8); returns the unterminated last one, b"" where there is none."""
    layouts: dict[bytes, Layout] = {}
    known = layouts.get
    batch = _Batch(parser)
    found, kept = batch.found, batch.lines
    for line in lines:
        shape = line.translate(None, _OF_NUMBERS)
        layout = known(shape)
        if layout is not None:
            if layout.pattern is not None:
                match = layout.pattern.match(line)
                if match is not None:
                    if layout is not batch.layout or len(found) >= _BATCH:
                        batch.flush()
                        batch.layout = layout
                    found.append(match.groups())
                    kept.append(line)
                    continue
            elif layout.glance and not parser.waiting:
                parser.glance(line.decode("utf-8", "replace"))
                continue
        batch.flush()
        if not line.endswith(b"\n"):
            return line
        text = line.decode("utf-8", "replace")
        parser.feed(text)
        if layout is None:
            if len(shape) <= _LONGEST and _has_room(layouts):
                layouts[shape] = Layout()
        elif not layout.learned:
            layouts[shape] = _learn(line, text, parser)
    batch.flush()
    return b""


def _learn(line: bytes, text: str, parser: LineParser) -> Layout:
    places = parser.places(text) if text.encode("utf-8", "replace") == line else None
    if not places:
        return Layout(glance=places is not None, learned=True)
    pattern = re.compile(_pattern(line, places, parser.separator), re.DOTALL)
    match = pattern.match(line)
    if match is None or match.groups() != tuple(line[p.start : p.end] for p in places):
        return Layout(learned=True)
    return Layout(pattern, tuple(parser.storage(place.key) for place in places), learned=True)


def _pattern(line: bytes, places: list[Place], separator: bytes) -> bytes:
    """Names and numbers of the places, and between them as many separators as this line has."""
    part = b"[^" + re.escape(separator) + b"]*"
    pattern, at = b"", 0
    for place in places:
        skipped = line[at : place.name].count(separator)
        pattern += (part + re.escape(separator)) * skipped + part
        text = line[place.start : place.end]
        number = _NUMBER.pattern if _NUMBER.fullmatch(text) else re.escape(text)  # NaN stays NaN
        pattern += re.escape(line[place.name : place.start]) + b"(" + number + b")"
        at = place.end
    return pattern


def _has_room(layouts: dict[bytes, Layout]) -> bool:
    """Forget the layouts that never came again once there are many."""
    if len(layouts) >= _REMEMBERED:
        for shape in [shape for shape, layout in layouts.items() if not layout.learned]:
            del layouts[shape]
    return len(layouts) < _REMEMBERED
