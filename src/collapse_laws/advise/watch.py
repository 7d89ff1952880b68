"""watch: follow a growing log, print a line for each rollout batch, and raise the alarm once a collapse is confirmed.

The alarm waits for the batch after the drop (the criterion's confirmation), since the end of what is written so far is
not the end of the run; until then the drop is called suspected. Memory does not grow with the log: of the rollout
batches, the first, the best and the latest are kept, which is all that the criterion looks at, and of the open one its
records. A file that shrinks or is replaced is read from its start again, and steps that were seen before count anew.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from collapse_laws.advise.calibration import Brackets
from collapse_laws.advise.follow import LINES_TO_TELL, kind_of_lines
from collapse_laws.advise.judge import judge_series
from collapse_laws.errors import UserError
from collapse_laws.logs.csvlog import CsvTable
from collapse_laws.logs.jsonlog import JsonLines
from collapse_laws.logs.keys import choose, missing_key, missing_role
from collapse_laws.logs.numbers import LARGEST, MOST_UPDATES, is_rate
from collapse_laws.logs.table import MetricTable
from collapse_laws.logs.textlog import TextLines, step_of_row
from collapse_laws.outcome import Outcome

_KEPT = 64  # rollout batches kept, besides the first and the best
_NEIGHBOURS = 8
_PATIENCE = 50  # rows without a step or without a reward after which something seems wrong
_NAMES_REMEMBERED = 40


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
        brackets: boundary and clocks known, for the remaining budget.
        sure: False where `kind` was guessed from too few lines and is to be told again from the first that come.
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
        sure: bool = True,
    ) -> None:
        self._path, self._kind, self._cycle, self._given_lr = path, kind, cycle, lr
        self._keys = (reward_key, step_key)
        self._brackets = brackets
        self.batches = Batches()
        self.outcome: Outcome | None = None
        self.collapsed = False
        self.warning: str | None = None  # set once, where the log is not understood
        self._lr = lr
        self._introduced = False
        self._held: list[str] | None = None if sure else []  # first lines, until they tell the kind
        self._names: dict[str, None] = {}  # numbers met, for the sentence that says what the log has
        self._rows = 0
        self._met_step = self._met_reward = False
        self._step: float | None = None  # of the record that is being completed
        self._reward: float | None = None
        self._reward_name: str | None = None
        self._fully_async = False
        self._begin()
        self.restart()

    def _begin(self) -> None:
        """Nothing has been read of the run yet."""
        self.batches = Batches()
        self._spent = 0.0
        self._counted = 0  # updates whose learning rate is spent
        self._open: int | None = None  # batch that is being filled
        self._rewards: dict[int, float] = {}  # of the open batch, by update
        self._zero_based: bool | None = None
        self._suspected: int | None = None

    def restart(self) -> None:
        """A new file begins: its parser starts afresh, what was learned stays."""
        self._table = MetricTable(key for key in self._keys if key)
        if self._held is not None:
            self._held = []
        if self._kind in ("csv", "wandb_csv"):
            self._parser: CsvTable | JsonLines | TextLines = CsvTable(self._table, self._path)
        elif self._kind in ("jsonl", "verl_file"):
            self._parser = JsonLines(self._table)
        else:
            self._parser = TextLines(self._table)

    def feed(self, line: str) -> list[str]:
        """Take in one complete line."""
        if self._held is not None:
            self._held.append(line)
            enough = sum(bool(held.strip()) for held in self._held) >= LINES_TO_TELL
            return self._tell_kind() if enough else []
        self._parser.feed(line)
        row = self._table.take()
        self._look_for_keys(row)
        return self._take_in(row) if row else []

    def finish(self) -> list[str]:
        """The log has ended: the last record and the last batch are complete. UserError where none ever was."""
        said = self._tell_kind() if self._held else []
        said += self._close_record()
        if not self.collapsed:
            said += self._close_batch()
        if not self.batches.index:
            raise UserError(self._what_is_missing())
        return said

    def _tell_kind(self) -> list[str]:
        lines, self._held = self._held or [], None
        kind = kind_of_lines(self._path, "\n".join([*lines, ""]).encode())
        if kind != self._kind:
            self._kind = kind
            self.restart()
        return [sentence for line in lines for sentence in self.feed(line)]

    def _take_in(self, row: dict[str, float]) -> list[str]:
        step = self._step_of(row)
        if step is not None and not abs(step) <= MOST_UPDATES:
            step = None
        said: list[str] = []
        reward = self._reward_of(row, said)
        self._met_step |= step is not None
        self._met_reward |= reward is not None
        if step is not None and step != self._step:
            said += self._close_record()
            self._step, self._reward = step, None
        if reward is not None:
            self._reward = reward
        lr = next((v for k, v in row.items() if _has_role(k, "lr")), None)
        if lr is not None and self._given_lr is None and is_rate(lr):
            self._lr = lr
        if self._lr is not None and not self._introduced:
            self._introduced = True
            said += [known.place(self._cycle, self._lr) for known in self._brackets]
            said += [f"clock: {clock}" for known in self._brackets if (clock := known.clock(self._lr))]
        return said

    def _step_of(self, row: dict[str, float]) -> float | None:
        if self._keys[1]:
            return row.get(self._keys[1])
        learner = next((v for k, v in row.items() if _has_role(k, "learner_step")), None)
        if learner is not None:
            return learner
        key = choose([(k, 1) for k in row], "step")
        self._fully_async |= any(k.startswith("fully_async/") for k in row)
        if key and self._fully_async:
            return row[key] * self._cycle - 1  # it counts synchronisations; record v ends with update vS-1
        return row[key] if key else step_of_row(row)

    def _reward_of(self, row: dict[str, float], said: list[str]) -> float | None:
        if self._keys[0]:
            return row.get(self._keys[0])
        key = choose([(k, 1) for k in row], "reward")
        if key is None:
            return None
        if self._reward_name is None or choose([(key, 1), (self._reward_name, 1)], "reward") == key:
            if self._reward_name not in (None, key):  # what stood under a lesser name, in a sample say, was no reward
                said.append(f"the reward is {key!r}; what was read under {self._reward_name!r} is left out")
                self._begin()
                self._step = self._reward = None
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
        batch = t // self._cycle
        said = []
        if self._open is not None and batch > self._open:
            said = self._close_batch()
        elif self._open is not None and (batch < self._open or t in self._rewards):
            self._go_back(t)
        self._open = batch
        if abs(reward) <= LARGEST:
            self._rewards[t] = reward
        if self._lr is not None and t + 1 > self._counted:
            self._spent += self._lr * (t + 1 - self._counted)
            self._counted = t + 1
        return said

    def _go_back(self, t: int) -> None:
        """Update t is made again, by a resume or in a new run: what came of it and after it is void."""
        self._rewards = {at: value for at, value in self._rewards.items() if at < t}
        self._suspected = None
        if self._counted > t:
            self._spent *= t / self._counted
            self._counted = t

    def _close_batch(self) -> list[str]:
        if self._open is None or not self._rewards:
            return []
        index, mean = self._open, sum(self._rewards.values()) / len(self._rewards)
        self._rewards.clear()
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
        clocks = []
        for known in self._brackets:
            if known.c2_high is not None:
                left = round((known.c2_high - self._spent) / self._lr)
                clocks.append(f"{left if left > 0 else 'past it'} ({known.name})")
        return f"{text}, updates left to the clock: {', '.join(clocks)}" if clocks else text

    def _look_for_keys(self, row: dict[str, float]) -> None:
        """Remember the names met, and set `warning` once where many rows have shown no step or no reward."""
        if self._met_step and self._met_reward:
            return
        self._rows += bool(row)
        for name in (*row, *self._table.seen):
            if len(self._names) < _NAMES_REMEMBERED:
                self._names[name] = None
        if max(self._rows, max(self._table.seen.values(), default=0)) == _PATIENCE and self.warning is None:
            self.warning = f"{_PATIENCE} rows were read and none can be used: {self._what_is_missing()}"

    def _what_is_missing(self) -> str:
        """The sentence that says which of step and reward the log lacks, and which numbers it has."""
        asked_and_met = (("reward", self._keys[0], self._met_reward), ("step", self._keys[1], self._met_step))
        for role, asked, met in asked_and_met:
            if asked is not None and not met:
                return missing_key(self._path, f"--{role}-key", asked, self._names)
        for role, _, met in asked_and_met:
            if not met:
                return missing_role(self._path, role, self._names)
        return f"{self._path} has no record with a step above 0 and a finite reward, so no rollout batch can be judged."


def _has_role(key: str, role: str) -> bool:
    return choose([(key, 1)], role) is not None
