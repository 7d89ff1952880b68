"""From rows to a series: which learner updates each logged reward covers, once resumes and repeats are resolved.

Trainers count updates from 1; a log whose first reward stands at step 0 counts from 0. A record that stands every L
updates is taken as the mean over the L updates it closes (TRL and verl average so [stated in their code]; for others
[declared]). verl's fully-async trainer writes the record of a synchronisation before it has added the current update,
so record v holds the updates (v-1)S to vS-1, counted from 1: the numbers it logs as training/global_step say so
themselves.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collapse_laws.errors import UserError

_MOST_RESUMES = 200


@dataclass(frozen=True, slots=True)
class Series:
    """Records in order. `first` and `last` are the learner updates (from 0) that a record's means cover, both
    included.
    """

    first: np.ndarray  # [records] int
    last: np.ndarray  # [records] int
    reward: np.ndarray  # [records] float
    metrics: dict[str, np.ndarray]  # role -> [records] float, NaN where the log has none
    stride: int  # updates between records
    zero_based: bool
    duplicates: int
    notes: tuple[str, ...]

    @property
    def updates(self) -> int:
        """Learner updates known to have been made."""
        return int(self.last[-1]) + 1 if self.last.size else 0


def resolve_repeats(step: np.ndarray, reward: np.ndarray, where: str) -> tuple[np.ndarray, int, list[str]]:
    """Row numbers to keep, sorted by step with one row a step, the later of repeated rows; rows dropped; notes.

    A step that goes back to one already seen is a resume: everything from there on in the earlier part is void.
    UserError where a second run begins: the first step comes again with other rewards, or after the earlier part had
    been as long.
    """
    keep = np.ones(step.size, dtype=bool)
    notes: list[str] = []
    backward = np.flatnonzero(np.diff(step) < 0) + 1
    resumes = 0
    for row in backward[:_MOST_RESUMES]:
        start = step[row]
        earlier = step[:row]
        if not np.any(earlier[keep[:row]] == start):
            continue  # out of order, not repeated
        if start == earlier.min() and row > 1:
            _refuse_second_run(step, reward, int(row), where)
        keep[:row] &= earlier < start
        resumes += 1
    rows = np.flatnonzero(keep)
    rows = rows[np.argsort(step[rows], kind="stable")]
    if rows.size:
        rows = rows[np.append(np.diff(step[rows]) > 0, True)]
    if resumes:
        notes.append(f"{resumes} resume(s): the later of repeated steps counts")
    elif backward.size:
        notes.append("steps out of order were sorted")
    return rows, int(step.size - rows.size), notes


def _refuse_second_run(step: np.ndarray, reward: np.ndarray, row: int, where: str) -> None:
    again = step[row:]
    order = np.argsort(step[:row], kind="stable")
    first_steps, first_rewards = step[:row][order], reward[:row][order]
    place = np.searchsorted(first_steps, again, side="right") - 1  # the latest of repeated steps
    shared = (place >= 0) & (first_steps[np.maximum(place, 0)] == again)
    same = np.allclose(first_rewards[place[shared]], reward[row:][shared], rtol=1e-4, atol=1e-6, equal_nan=True)
    if not same or again.max() <= step[:row].max():
        low, high = int(step[:row].min()), int(step[:row].max())
        raise UserError(
            f"{where} holds two runs, one after the other (steps {low} to {high}, then again from {int(step[row])}); "
            "give each its own file."
        )


def spans(
    step: np.ndarray, fully_async: bool, averaged: bool, every: int | None = None
) -> tuple[np.ndarray, np.ndarray, int, bool]:
    """(first, last, stride, zero_based) of the updates each record covers, from sorted distinct steps.

    `averaged` says that the trainer is known to average over the updates since its previous record; `every` is the
    distance of all records, with a reward or without, where it is known.
    """
    stride = stride_of(step)
    zero_based = bool(step[0] == 0) and not fully_async
    if every is not None and 0 < every < stride:
        last = step if zero_based else step - 1
        return np.maximum(last - every + 1, np.minimum(last, 0)), last, stride, zero_based
    closes = stride > 1 and not (fully_async or averaged)
    if closes and step[0] == stride - 1 and np.all((step + 1) % stride == 0):
        zero_based = True  # steps S-1, 2S-1, ...: counted from 0, each the last of its group
    elif closes and np.all(step % stride == step[0] % stride) and step[0] % stride in ((0,) if step[0] == 0 else (1,)):
        last = step if zero_based else step - 1  # 0, L, 2L or 1, L+1, ...: single updates, not groups
        return last, last, stride, zero_based
    last = step if zero_based else step - 1
    before = np.concatenate([[last[0] - stride], last[:-1]])
    first = np.maximum(before, last - stride) + 1
    first[0] = max(first[0], 0)
    return np.minimum(first, last), last, stride, zero_based


def stride_of(step: np.ndarray) -> int:
    """The commonest distance between records."""
    if step.size < 2:
        return 1
    distances, counts = np.unique(np.diff(step), return_counts=True)
    return int(distances[np.argmax(counts)])
