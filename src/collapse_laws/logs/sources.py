"""Where a log's bytes come from: plain or gzip files, their encoding, their lines; and what to say of junk.

A line ends at a newline or at a carriage return, since progress bars overwrite themselves with the latter. Terminal
colours are removed here, with or without the escape byte, which copying from a terminal loses.
"""

from __future__ import annotations

import codecs
import gzip
import re
import shutil
import sys
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import BinaryIO

from collapse_laws.errors import UserError

HEAD_BYTES = 1 << 16
_BLOCK_BYTES = 1 << 20
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
# two patterns, since one that begins with a literal is searched for far faster
_ESCAPED = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|\][^\x07]*\x07)")
_BARE_COLOUR = re.compile(r"\[\d{1,3}(?:;\d{1,3})*m")


def open_log(path: Path) -> BinaryIO:
    """The bytes of a file, decompressed if it is gzip by content; UserError where it cannot be opened."""
    try:
        with open(path, "rb") as file:
            magic = file.read(2)
        return gzip.open(path, "rb") if magic == b"\x1f\x8b" else open(path, "rb")  # type: ignore[return-value]
    except FileNotFoundError:
        raise UserError(f"{path} does not exist.") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from None


@contextmanager
def regular_file(path: Path) -> Iterator[Path]:
    """A path that can be opened several times: `-` (the standard input) and pipes are copied to a temporary file, and
    errors name what the user named.
    """
    if not _is_stream(path):
        yield path
        return
    with tempfile.NamedTemporaryFile(prefix="collapse-laws-") as copy:
        try:
            with nullcontext(sys.stdin.buffer) if str(path) == "-" else open(path, "rb") as stream:
                shutil.copyfileobj(stream, copy)
            copy.flush()
        except OSError as error:
            raise UserError(f"{path} cannot be read: {error.strerror}.") from None
        try:
            yield Path(copy.name)
        except UserError as error:
            raise UserError(str(error).replace(copy.name, str(path))) from None


def _is_stream(path: Path) -> bool:
    return str(path) in ("-", "/dev/stdin") or path.is_fifo()


def read_head(path: Path) -> bytes:
    """The first 64 KiB of a log; UserError for an empty or damaged file."""
    try:
        with open_log(path) as file:
            head = file.read(HEAD_BYTES)
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise UserError(f"{path} is a damaged gzip file.") from None
    if not head.strip():
        raise UserError(f"{path} is empty: a log needs at least one line with a reward.")
    return head


def text_encoding(path: Path, head: bytes) -> str:
    """utf-8 or utf-16; UserError for a binary file."""
    if head[:2] in _UTF16:
        return "utf-16"
    if b"\x00" in head or head.startswith((b"\x89PNG", b"PAR1", b"PK\x03\x04", b"\x80")):
        raise UserError(
            f"{path} is a binary file of no known kind; readable are text, JSON and CSV logs and TensorBoard event "
            "files."
        )
    return "utf-8-sig"


def iter_lines(path: Path, encoding: str) -> Iterator[bytes]:
    """Lines of a text log in utf-8, each with its newline; only an unterminated last line has none.

    Bytes that are not of the encoding stay as they are: a log may hold anything that a model generated.
    """
    begun: list[bytes] = []  # parts of a line that is longer than a block
    for block in _blocks(path, encoding):
        if b"\r" in block:
            block = block.replace(b"\r", b"\n")
        end = block.rfind(b"\n") + 1
        if end:
            begun.append(block[:end])
            yield from b"".join(begun).splitlines(keepends=True)
            begun.clear()
        begun.append(block[end:])
    if last := b"".join(begun):
        yield last


def _blocks(path: Path, encoding: str) -> Iterator[bytes]:
    """The file's bytes in utf-8, without a byte order mark."""
    with open_log(path) as file:
        decoder = codecs.getincrementaldecoder(encoding)("replace") if encoding == "utf-16" else None
        first = True
        while True:
            try:
                block = file.read(_BLOCK_BYTES)
            except (EOFError, gzip.BadGzipFile, zlib.error):
                return  # a gzip file that is still being written ends in the middle
            if not block:
                return
            if decoder is not None:
                block = decoder.decode(block).encode("utf-8", "replace")
            yield block.removeprefix(codecs.BOM_UTF8) if first else block
            first = False


def read_text(path: Path, encoding: str) -> str:
    """The whole text of a log."""
    return b"".join(iter_lines(path, encoding)).decode("utf-8", "replace")


def strip_colours(line: str) -> str:
    """The line without terminal colours and cursor movements."""
    if "\x1b" in line:
        line = _ESCAPED.sub("", line)
    return _BARE_COLOUR.sub("", line) if "[" in line else line
