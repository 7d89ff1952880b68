"""Text logs: verl's console (with Ray's prefixes), TRL's printed dictionaries, `key=value` lines, progress bars between
them.

A line with a step opens a row; a line of metrics without one belongs to the row that is open, so that one metric a line
reads like one line a step. Printed dictionaries have no step (the trainer's callback leaves it out): theirs is the
position of the progress bar, which is printed before the dictionary, redrawn after it, or both.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable

from collapse_laws.logs.dictionaries import DictionaryLines
from collapse_laws.logs.keys import BAR_STEP, ORDINAL, SPLIT_KEYS, TOTAL, is_held_out, role_of
from collapse_laws.logs.numbers import PLAIN, WRAPPED, parse_number
from collapse_laws.logs.sources import strip_colours
from collapse_laws.logs.table import MetricTable
from collapse_laws.logs.templates import Place, read_lines

_RAY = re.compile(r"\(\S+ pid=\d+(?:, ip=[^)\s]+)?\)\s?")
_REPEATED = re.compile(r"\[repeated \d+x across cluster\].*")
# "max reward: 1.0" is not the mean, nor is "eval reward: 0.4" the training reward
_NOT_AFTER = "".join(
    f"(?<!{first}{rest} )"
    for word in ("max", "min", "std", "val", "eval", "test")
    for rest in [word[1:]]
    for first in (word[0], word[0].upper())
)
_KEY = rf"(?<![\w/\-.]){_NOT_AFTER}['\"]?([A-Za-z_][\w/.@\-]*)['\"]?"
_PAIR = re.compile(rf"{_KEY}\s*[:=]\s*['\"]?(?:{WRAPPED})?((?>{PLAIN}))(?![\w:])")
_SPACED = re.compile(rf"{_KEY}\s+((?>{PLAIN}))(?![\w:/])")
_SPOKEN_STEP = re.compile(
    r"\b(?:(?:global[ _]?|train(?:ing)?[ _]?)?(?:step|iter|iteration|update)\b|rollout(?= \d+: \{))"  # rollout: slime
    r"[ \[#:=]*(\d+)(?![\d.])",
    re.IGNORECASE,
)
# 'mode': 'val' among the metrics of a line
_SPLIT = re.compile(rf"\b(?:{'|'.join(sorted(SPLIT_KEYS))})['\"]?\s?[:=]\s?['\"]?([A-Za-z_\-]+)")
# | reward | 0.5 |
_CELLS = re.compile(rf"\s*[|\u2502\u2503]\s*([A-Za-z_][\w/.@\-]*)\s*[|\u2502\u2503]\s*({PLAIN})\s*[|\u2502\u2503]\s*")
_BAR = re.compile(r"(?:^|\r|[^\w])(\d+)/(\d+) \[")
_OTHER_BAR = re.compile(
    r"load|map|filter|fetch|token|download|generat|shard|captur|process|sav|eval|valid|convert|compil|warm",
    re.IGNORECASE,
)


_MAYBE_WRAPPED = re.compile(r"(?:(?:(?:np|numpy)\.)?(?:float|int)\d+\()?([-+0-9.eE]+|nan|inf)\)?")
_NOTHING = ("None", "null")
_WORD = re.compile(r"[A-Za-z_][\w/.@\-]*")
_SPOKEN_WORD = re.compile(r"step|iter|update", re.IGNORECASE)


class TextLines:
    """Parses one line after another into a table. Keeps the open row, the open step and the position of the bar."""

    separator = b" "

    def __init__(self, table: MetricTable) -> None:
        self.table = table
        self.dictionaries = 0  # rows without a step of their own
        self._step: float | None = None  # of the open row
        self._bar: int | None = None
        self._used: int | None = None  # bar position that the last stepless row took
        self._total: int | None = None
        self._awaits_bar = False  # the last stepless row still needs the next bar
        self._dictionary = DictionaryLines()

    @property
    def waiting(self) -> bool:
        """Whether a line without metrics matters too: it may hold a bar or close a dictionary."""
        return self._awaits_bar or bool(self._dictionary.held)

    def feed(self, line: str) -> None:
        """Take in one line, with or without its newline."""
        line = strip_colours(line)
        if "pid=" in line:
            line = _RAY.sub(" ", line)
            line = _REPEATED.sub("", line) if "[repeated" in line else line
        if self._dictionary.held or "{" in line:
            for whole in self._dictionary.take(line):
                self._feed_whole(whole)
        else:
            self._feed_whole(line)

    def _feed_whole(self, line: str) -> None:
        if ("|" in line or "\u2502" in line) and (cells := _CELLS.fullmatch(line)):
            line = f"{cells.group(1)}: {cells.group(2)}"
        bar = self._read_bar(line) if "/" in line and "[" in line else None
        at = _find_step(line, 0) if " - " in line else -1
        if at >= 0:
            self._read_verl(line, at)
        elif ":" in line or "=" in line or _SPOKEN_STEP.search(line):
            self._read_pairs(line, bar)

    def finish(self, line: str) -> None:
        """Take in the unterminated last line: a number at its very end may be cut, so it is left out."""
        head = line.rstrip()
        if "{" in head and not head.endswith("}"):
            head = head.rpartition(",")[0]
        elif " - " in head and not head.endswith((")", "]")):
            head = head.rpartition(" - ")[0]
        self.feed(head)

    def glance(self, line: str) -> None:
        """A line without metrics can only move the bar."""
        if "/" in line and "[" in line:
            self._read_bar(line)

    def places(self, line: str) -> list[Place] | None:
        """Where a line of verl's console holds its numbers, the step first; no place where no word names a metric."""
        plain = strip_colours(line)
        at = _find_step(plain, 0) if " - " in plain else -1
        if at < 0:
            words = _WORD.findall(plain)
            inert = "{" not in plain and not any(map(self.table.keeps, words)) and not _SPOKEN_WORD.search(plain)
            return [] if inert and plain == line else None
        if "[" in plain or _find_step(plain, at + 5) > 0 or not line.endswith(plain[at:]):
            return None
        step, *parts = plain[at:].removesuffix("\n").split(" - ")
        if not step[5:].isdecimal():
            return None
        name = len(line[: len(line) - len(plain) + at].encode())
        found = [Place("step", name, name + 5, name + len(step))]
        name += len(step)
        for part in parts:
            key, mark, text = part.rpartition(":")
            if key and text not in _NOTHING and self.table.keeps(key):
                number = _MAYBE_WRAPPED.fullmatch(text)
                if number is None:
                    return None
                start = name + 3 + len((key + mark).encode()) + number.start(1)
                found.append(Place(key, name, start, start + len(number.group(1))))
            name += 3 + len(part.encode())
        return found

    def storage(self, key: str) -> tuple[array, array]:
        """Where the table keeps a key's values."""
        return self.table.storage(key)

    def put_lines(self, columns: tuple[tuple[array, array], ...], numbers: list[list[float]]) -> None:
        """Lines of verl's console, by their numbers; the first is the step."""
        row, last = self.table.rows - 1, self._step
        rows = []
        for step in numbers[0]:
            if step != last or row < 0:
                row, last = row + 1, step
            rows.append(row)
        self.table.rows, self._step = row + 1, last
        for (column, values), found in zip(columns, numbers, strict=True):
            column.extend(rows)
            values.extend(found)

    def _open(self, step: float) -> None:
        if step != self._step or not self.table.rows:
            self.table.start_row()
            self.table.put("step", step)
            self._step = step

    def _read_verl(self, line: str, at: int) -> None:
        """`step:7 - key:number - key:number`; a line cut by a kill is joined to the next record, its last number
        unsure.
        """
        while at >= 0:
            following = _find_step(line, at + 5)
            parts = line[at : following if following > 0 else len(line)].split(" - ")
            if following > 0:
                parts.pop()
            step = parse_number(parts[0][5:]) if parts else None
            if step is not None:
                self._open(step)
                table = self.table
                for part in parts[1:]:
                    key, _, text = part.rpartition(":")
                    if key and table.keeps(key):
                        number = parse_number(text.strip())
                        if number is not None:
                            table.put(key, number)
                    elif key:
                        table.note(key)
            at = following

    def _read_pairs(self, line: str, bar: int | None) -> None:
        pairs = [(key, float(number)) for key, number in _PAIR.findall(line)]
        step = next((number for key, number in pairs if _is_step(key)), None)
        if step is None:
            spoken = _SPOKEN_STEP.search(line)
            step = float(spoken.group(1)) if spoken else None
        if not pairs and step is not None:
            pairs = [(key, float(number)) for key, number in _SPACED.findall(line)]
        known = [pair for pair in pairs if self.table.keeps(pair[0])]
        if step is None and known and bar is not None and "{" not in line:
            step = float(bar)  # metrics written behind the bar
        if step is None and not known:
            for key, _ in pairs:
                self.table.note(key)
            return
        if ("val" in line or "test" in line or "dev" in line) and any(map(is_held_out, _SPLIT.findall(line))):
            return
        if step is not None:
            self._open(step)
        elif self._step is None or line.lstrip().startswith("{"):
            roles = {_role(key) for key, _ in known}
            if not roles & {"reward", "lr"}:
                self._read_summary(dict(pairs))
                return
            self._open_stepless()
        for key, number in known:
            if step is None or number != step or not _is_step(key):
                self.table.put(key, number)

    def _read_summary(self, summary: dict[str, float]) -> None:
        """What transformers prints at the end tells the number of updates."""
        seconds, rate = summary.get("train_runtime"), summary.get("train_steps_per_second")
        if seconds and rate and self.table.rows:
            self.table.put(TOTAL, seconds * rate)

    def _open_stepless(self) -> None:
        self.table.start_row()
        self.dictionaries += 1
        self.table.put(ORDINAL, self.dictionaries)
        self._step = None
        if self._bar and self._bar != self._used:
            self.table.put(BAR_STEP, self._bar)
            self._used, self._awaits_bar = self._bar, False
        else:
            self._awaits_bar = True

    def _read_bar(self, line: str) -> int | None:
        """Follow the training bar; returns its position if this line shows it."""
        shown = None
        for found in _BAR.finditer(line):
            position, total = int(found.group(1)), int(found.group(2))
            if position > total or _OTHER_BAR.search(line[max(0, found.start() - 80) : found.start()]):
                continue
            if self._total is None:
                self._total = total
            if total != self._total:
                continue
            self._bar = shown = position
            if self._awaits_bar and position != self._used and position > 0:
                self.table.put(BAR_STEP, position)
                self._used, self._awaits_bar = position, False
        return shown


def step_of_row(row: dict[str, float]) -> float | None:
    """The step of a record without one of its own, as far as it is known while the log grows."""
    return row.get(BAR_STEP, row.get(ORDINAL))


def _role(key: str) -> str | None:
    found = role_of(key)
    return found[0] if found else None


def _is_step(key: str) -> bool:
    return _role(key) == "step"


def _find_step(line: str, start: int) -> int:
    """Where `step:` begins a record, not as the end of another key such as `training/global_step:`."""
    at = line.find("step:", start)
    while at > 0 and (line[at - 1].isalnum() or line[at - 1] in "_/"):
        at = line.find("step:", at + 5)
    return at


def read_text_lines(lines: Iterable[bytes], table: MetricTable) -> TextLines:
    """Fill the table; the parser tells what it met."""
    parser = TextLines(table)
    parser.finish(read_lines(lines, parser).decode("utf-8", "replace"))
    return parser
