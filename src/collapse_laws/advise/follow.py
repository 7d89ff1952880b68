"""The lines of a growing log: what kind they are of, and how a file that is written, rotated or truncated is read."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from collapse_laws.errors import UserError
from collapse_laws.logs.reader import LINE_FORMATS, detect
from collapse_laws.logs.sources import read_head

_LONGEST_LINE = 1 << 22
LINES_TO_TELL = 2  # a table's header alone looks like any text


def line_format(path: Path) -> tuple[str, bool]:
    """The kind of a log that grows by lines, and whether enough lines are there to tell; UserError for a log that does
    not grow by lines, or that has no line yet.
    """
    with open(path, "rb") as file:
        magic = file.read(2)
    if magic in (b"\x1f\x8b", b"\xff\xfe", b"\xfe\xff"):
        raise UserError(f"{path} is compressed or UTF-16; watch follows plain text, `collapse-laws diagnose` reads it.")
    head = read_head(path)
    complete = [line for line in head.splitlines(keepends=True) if line.strip() and line.endswith((b"\n", b"\r"))]
    return kind_of_lines(path, head), len(complete) >= LINES_TO_TELL


def kind_of_lines(path: Path, head: bytes) -> str:
    """The kind of a log that begins with `head`; UserError for one that does not grow by lines."""
    kind = detect(path, head)
    if kind not in LINE_FORMATS:
        raise UserError(f"{path} is of the kind {kind}, which does not grow by lines; use `collapse-laws diagnose`.")
    return kind


def follow(
    path: Path, poll_seconds: float, idle_seconds: float | None, tell: Callable[[str], None] | None = None
) -> Iterator[str | None]:
    """Complete lines of a growing file; None where it began anew (truncated or replaced).

    Ends after `idle_seconds` without a new byte (None: never); an unterminated last line is then given too. The bytes
    of a partial line wait for their newline, at most 4 MiB of them. `tell` is called once when the file is gone.
    """
    file = open(path, "rb")
    rest = b""
    begins = True  # the next line is the file's first, which may hold a byte order mark
    gone = 0  # looks in a row that found no file; one may be the moment between the two renames of a rotation
    quiet_since = time.monotonic()
    try:
        while True:
            chunk = file.read(1 << 16)
            if chunk:
                quiet_since = time.monotonic()
                parts = (rest + chunk).replace(b"\r", b"\n").split(b"\n")
                rest = parts.pop()[-_LONGEST_LINE:]
                for part in parts:
                    yield _decoded(part, begins)
                    begins = False
                continue
            try:
                fresh = _reopened(path, file)
                gone = 0
            except FileNotFoundError:
                fresh, gone = None, gone + 1
                if gone == 2 and tell is not None:
                    tell(f"{path} is gone; waiting for it to come back")
            if fresh is not None:
                file.close()
                file, rest, begins = fresh, b"", True
                yield None
                continue
            if idle_seconds is not None and time.monotonic() - quiet_since >= idle_seconds:
                if gone == 1 and tell is not None:
                    tell(f"{path} is gone")
                if rest:
                    yield _decoded(rest, begins)
                return
            time.sleep(poll_seconds)
    finally:
        file.close()


def _decoded(line: bytes, first: bool) -> str:
    text = line.decode("utf-8", "replace")
    return text.removeprefix("\ufeff") if first else text


def _reopened(path: Path, file: BinaryIO) -> BinaryIO | None:
    """The file that the path now names if that is another one (rotation) or is shorter than what was read (truncation);
    None while it only grows. FileNotFoundError where nothing has that name, UserError for a directory.
    """
    now, held = os.stat(path), os.fstat(file.fileno())
    if (now.st_ino, now.st_dev) == (held.st_ino, held.st_dev) and held.st_size >= file.tell():
        return None
    try:
        return open(path, "rb")
    except IsADirectoryError:
        raise UserError(f"{path} has become a directory; watch follows a file that grows by lines.") from None
