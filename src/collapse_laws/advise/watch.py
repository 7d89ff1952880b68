"""watch: follow a growing log, print a line for each rollout batch, and raise the alarm once a collapse is confirmed.

The alarm waits for the batch after the drop (the criterion's confirmation), since the end of what is written so far is
not the end of the run; until then the drop is called suspected. Memory is constant: of the rollout batches, the first,
the best and the latest are kept, which is all that the criterion looks at. A file that shrinks or is replaced is read
from its start again, and steps that were seen before count anew.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from collapse_laws.advise.calibration import Brackets, reference_budget
from collapse_laws.advise.judge import judge_series
from collapse_laws.errors import UserError
from collapse_laws.logs.csvlog import CsvTable
from collapse_laws.logs.jsonlog import JsonLines
from collapse_laws.logs.keys import choose
from collapse_laws.logs.numbers import LARGEST, MOST_UPDATES, is_rate
from collapse_laws.logs.reader import LINE_FORMATS, detect
from collapse_laws.logs.sources import read_head
from collapse_laws.logs.table import MetricTable
from collapse_laws.logs.textlog import TextLines, step_of_row
from collapse_laws.outcome import Outcome

_KEPT = 64  # rollout batches kept, besides the first and the best
_LONGEST_LINE = 1 << 22
_NEIGHBOURS = 8


@dataclass
class Batches:
    """Means of the rollout batches so far, bounded: the first, the best, and the latest."""

    index: list[int] = field(default_factory=list)
    reward: list[float] = field(default_factory=list)

    def add(self, index: int, reward: float) -> None:
        """Close a batch. One that was seen before (a resume) makes it and all later ones void."""
        while self.index and self.index[-1] >= index:
            self.index.pop()
            self.reward.pop()
        self.index.append(index)
        self.reward.append(reward)
        if len(self.index) > 2 * _KEPT:
            best = max(range(len(self.reward)), key=lambda i: self.reward[i])
            keep = sorted({0, best, *range(len(self.index) - _KEPT, len(self.index))})
            self.index = [self.index[i] for i in keep]
            self.reward = [self.reward[i] for i in keep]

    def outcome(self, cycle: int) -> Outcome:
        reward = np.array(self.reward)
        bend = np.abs(reward[2:] - 2 * reward[1:-1] + reward[:-2]) if reward.size >= _NEIGHBOURS else np.array([np.nan])
        se = np.full(reward.shape, np.median(bend) / (0.6745 * math.sqrt(6)))
        return judge_series(np.array(self.index), reward, se, cycle, (self.index[-1] + 1) * cycle, None, None)


class Watcher:
    """Takes in one line after another; `feed` returns the sentences to print, and `collapsed` turns true at the alarm.

    Args:
        kind: format of the lines, of `LINE_FORMATS`.
        cycle: S, learner updates a rollout batch.
        lr: the constant learning rate, None: the log's own.
        brackets: boundary and clock known, for the remaining budget.
    """

    def __init__(
        self,
        path: Path,
        kind: str,
        cycle: int,
        lr: float | None,
        brackets: tuple[Brackets, ...],
        reward_key: str | None = None,
        step_key: str | None = None,
    ) -> None:
        self._path, self._kind, self._cycle, self._given_lr = path, kind, cycle, lr
        self._keys = (reward_key, step_key)
        self._budget = reference_budget(brackets)
        self.batches = Batches()
        self.outcome: Outcome | None = None
        self.collapsed = False
        self._lr = lr
        self._spent = 0.0
        self._counted = 0  # updates whose learning rate is spent
        self._open: int | None = None  # batch that is being summed
        self._sum, self._records = 0.0, 0
        self._step: float | None = None  # of the record that is being completed
        self._reward: float | None = None
        self._zero_based: bool | None = None
        self._suspected: int | None = None
        self._reward_name: str | None = None
        self.restart()

    def restart(self) -> None:
        """A new file begins: its parser starts afresh, what was learned stays."""
        self._table = MetricTable(key for key in self._keys if key)
        if self._kind in ("csv", "wandb_csv"):
            self._parser: CsvTable | JsonLines | TextLines = CsvTable(self._table, self._path)
        elif self._kind in ("jsonl", "verl_file"):
            self._parser = JsonLines(self._table)
        else:
            self._parser = TextLines(self._table)

    def feed(self, line: str) -> list[str]:
        """Take in one complete line."""
        self._parser.feed(line)
        row = self._table.take()
        if not row:
            return []
        step = self._step_of(row)
        if step is not None and not abs(step) <= MOST_UPDATES:
            step = None
        reward = self._reward_of(row)
        lr = next((v for k, v in row.items() if _has_role(k, "lr")), None)
        if lr is not None and self._given_lr is None and is_rate(lr):
            self._lr = lr
        said = []
        if step is not None and step != self._step:
            said = self._close_record()
            self._step, self._reward = step, None
        if reward is not None:
            self._reward = reward
        return said

    def finish(self) -> list[str]:
        """The log has ended: the last record and the last batch are complete."""
        said = self._close_record()
        return said + self._close_batch()

    def _step_of(self, row: dict[str, float]) -> float | None:
        if self._keys[1]:
            return row.get(self._keys[1])
        learner = next((v for k, v in row.items() if _has_role(k, "learner_step")), None)
        if learner is not None:
            return learner
        key = choose([(k, 1) for k in row], "step")
        return row[key] if key else step_of_row(row)

    def _reward_of(self, row: dict[str, float]) -> float | None:
        if self._keys[0]:
            return row.get(self._keys[0])
        key = choose([(k, 1) for k in row], "reward")
        if key is None:
            return None
        if self._reward_name is None or choose([(key, 1), (self._reward_name, 1)], "reward") == key:
            self._reward_name = key  # the best name met so far
        return row.get(self._reward_name)

    def _close_record(self) -> list[str]:
        if self._step is None or self._reward is None:
            return []
        if self._zero_based is None:
            self._zero_based = self._step == 0
        t = int(self._step) if self._zero_based else int(self._step) - 1
        reward, self._reward = self._reward, None
        if t < 0:
            return []
        if self._lr is not None and t + 1 > self._counted:
            self._spent += self._lr * (t + 1 - self._counted)
            self._counted = t + 1
        batch = t // self._cycle
        said = []
        if self._open is not None and batch != self._open:
            said = self._close_batch()
        self._open = batch
        if abs(reward) <= LARGEST:
            self._sum += reward
            self._records += 1
        return said

    def _close_batch(self) -> list[str]:
        if self._open is None or not self._records:
            return []
        index, mean = self._open, self._sum / self._records
        self._sum, self._records = 0.0, 0
        self.batches.add(index, mean)
        self.outcome = self.batches.outcome(self._cycle)
        said = [self._progress(index, mean)]
        found = self.outcome.collapse_index
        if found is None:
            if self._suspected is not None:
                said.append(f"batch {index}: the suspected drop at batch {self._suspected} did not last")
            self._suspected = None
        elif found < index:
            self.collapsed = True
            said.append(
                f"COLLAPSE at rollout batch {found} (update {self.outcome.collapse_step}): {self.outcome.reason}"
            )
        elif self._suspected != found:
            self._suspected = found
            said.append(f"batch {found}: a drop to {mean:.3g} is suspected; the next batch decides")
        return said

    def _progress(self, index: int, mean: float) -> str:
        text = f"batch {index} update {(index + 1) * self._cycle} reward {mean:.4g}"
        if self._lr is None:
            return f"{text} (no learning rate: give --lr for the clock)"
        text += f" S*eta {self._cycle * self._lr:.3g} spent {self._spent:.3g}"
        if self._budget is not None:
            left = self._budget - self._spent
            text += f" of c2 {self._budget:.3g}"
            text += f", {max(0, round(left / self._lr))} updates left" if left > 0 else ", past the clock"
        return text


def _has_role(key: str, role: str) -> bool:
    return choose([(key, 1)], role) is not None


def line_format(path: Path) -> str:
    """The kind of a log that grows by lines; UserError for one that does not, or that has no line yet."""
    with open(path, "rb") as file:
        magic = file.read(2)
    if magic in (b"\x1f\x8b", b"\xff\xfe", b"\xfe\xff"):
        raise UserError(f"{path} is compressed or UTF-16; watch follows plain text, `collapse-laws diagnose` reads it.")
    kind = detect(path, read_head(path))
    if kind not in LINE_FORMATS:
        raise UserError(f"{path} is of the kind {kind}, which does not grow by lines; use `collapse-laws diagnose`.")
    return kind


def follow(path: Path, poll_seconds: float, idle_seconds: float | None) -> Iterator[str | None]:
    """Complete lines of a growing file; None where it began anew (truncated or replaced).

    Ends after `idle_seconds` without a new byte (None: never); an unterminated last line is then given too. The bytes
    of a partial line wait for their newline, at most 4 MiB of them.
    """
    file = open(path, "rb")
    rest = b""
    quiet_since = time.monotonic()
    try:
        while True:
            chunk = file.read(1 << 16)
            if chunk:
                quiet_since = time.monotonic()
                parts = (rest + chunk).replace(b"\r", b"\n").split(b"\n")
                rest = parts.pop()[-_LONGEST_LINE:]
                for part in parts:
                    yield part.decode("utf-8", "replace")
                continue
            fresh = _replaced(path, file)
            if fresh:
                file.close()
                file, rest = open(path, "rb"), b""
                yield None
                continue
            if idle_seconds is not None and time.monotonic() - quiet_since >= idle_seconds:
                if rest:
                    yield rest.decode("utf-8", "replace")
                return
            time.sleep(poll_seconds)
    finally:
        file.close()


def _replaced(path: Path, file: object) -> bool:
    """Whether the path now names another file (rotation), or this one is shorter than what was read (truncation)."""
    try:
        now = os.stat(path)
    except FileNotFoundError:
        return False  # between the two renames of a rotation
    held = os.fstat(file.fileno())  # type: ignore[attr-defined]
    if (now.st_ino, now.st_dev) != (held.st_ino, held.st_dev):
        return True
    return held.st_size < file.tell()  # type: ignore[attr-defined]
