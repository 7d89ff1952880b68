"""Reward series as the criterion reads them: checked, on the scale 0 to 1, cut at the first NaN, averaged for small S.

Everything here is [declared]: a scorer whose means lie in [-1, 1] with a negative one among them is mapped by (r+1)/2,
and batches are averaged in windows of ceil(window_updates/S) so that every point stands for as many learner updates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from collapse_laws.errors import UserError

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RewardSeries:
    """Points of a run in order; each is one rollout batch, or the average of `window` of them."""

    sync_interval: int
    window: int
    first: NDArray[np.int64]  # M of the first batch of each point
    last: NDArray[np.int64]  # M of its last batch
    reward: Floats  # on the scale 0 to 1
    se: Floats  # recorded standard error, NaN where unknown
    n: Floats  # rollouts, NaN where unknown
    degenerate: float | None  # median fraction of degenerate groups
    nan_index: int | None  # M of the first batch without a finite reward; nothing after it is read
    batch: NDArray[np.int64]  # M of every batch
    batch_reward: Floats  # of every batch, on the scale 0 to 1

    @classmethod
    def build(
        cls,
        reward: ArrayLike,
        sync_interval: int,
        *,
        snapshot: ArrayLike | None = None,
        se: ArrayLike | None = None,
        n: ArrayLike | None = None,
        degenerate_fraction: ArrayLike | None = None,
        window_updates: int = 8,
        reward_range: tuple[float, float] | None = None,
    ) -> RewardSeries:
        """Check and prepare the columns of a run; see `collapse.classify` for their meaning and errors."""
        if int(sync_interval) != sync_interval or sync_interval < 1:
            raise UserError(f"sync_interval is {sync_interval!r}; allowed: a whole number of at least 1.")
        values = _column("reward", reward, None)
        size = values.size
        index = _index(snapshot, size)
        error = _column("se", se, size)
        count = _column("n", n, size)
        count = np.where(count > 0, count, np.nan)
        groups = _column("degenerate_fraction", degenerate_fraction, size)

        finite = np.isfinite(values)
        end = size if finite.all() else int(np.argmin(finite))
        nan_index = int(index[end]) if end < size else None
        values, error = _to_unit(values[:end], error[:end], reward_range)
        index, count, groups = index[:end], count[:end], groups[:end]
        known = groups[np.isfinite(groups)]
        window = math.ceil(window_updates / sync_interval)
        first, last, batch_reward = index, index, values
        if window > 1 and end:
            starts = np.arange(0, end, window)
            ends = np.minimum(starts + window, end)
            values, error, count = _average(values, error, count, starts, ends)
            first, last = index[starts], index[ends - 1]
        return cls(
            sync_interval=int(sync_interval),
            window=window,
            first=first,
            last=last,
            reward=values,
            se=error,
            n=count,
            degenerate=float(np.median(known)) if known.size else None,
            nan_index=nan_index,
            batch=index,
            batch_reward=batch_reward,
        )

    def date(self, position: int, level: float) -> tuple[int, tuple[int, int]]:
        """When point `position` fell to `level` or below: M of the first batch there, and (low, high] learner updates.

        A window that the fall cuts in two may stay above `level`, so that the next one shows it: where the batches of
        the window and of the one before part cleanly at `level`, they date the fall to one batch. Otherwise it may be
        any of them.
        """
        low, index, high = self.first[position - 1], self.first[position], self.last[position]
        if self.window > 1:
            begin = (position - 1) * self.window
            under = self.batch_reward[begin : (position + 1) * self.window] <= level
            fall = int(np.argmax(under))
            if 0 < fall and under[fall:].all():
                low, index = self.batch[begin + fall - 1], self.batch[begin + fall]
                high = index
        return int(index), (self.sync_interval * int(low), self.sync_interval * int(high))

    def step(self, position: int) -> int:
        """S*M of the first batch of a point."""
        return self.sync_interval * int(self.first[position])


def _column(name: str, values: ArrayLike | None, size: int | None) -> Floats:
    if values is None:
        return np.full(size or 0, np.nan)
    try:
        column = np.asarray(values, dtype=float)
    except (TypeError, ValueError):
        raise UserError(f"column {name!r} holds something that is not a number; allowed: numbers or null.") from None
    if column.ndim != 1:
        raise UserError(f"column {name!r} has {column.ndim} dimensions; allowed: one value per rollout batch.")
    if size is not None and column.size != size:
        raise UserError(f"column {name!r} has {column.size} values for {size} rewards; allowed: one each.")
    return column


def _index(snapshot: ArrayLike | None, size: int) -> NDArray[np.int64]:
    if snapshot is None:
        return np.arange(size)
    column = _column("snapshot", snapshot, size)
    if not (np.isfinite(column).all() and (column == np.floor(column)).all() and (column >= 0).all()):
        raise UserError("snapshot indices must be whole numbers of at least 0.")
    index = column.astype(np.int64)
    wrong = np.flatnonzero(np.diff(index) <= 0)
    if wrong.size:
        at = int(wrong[0])
        raise UserError(
            f"snapshot index {index[at + 1]} follows {index[at]}; allowed: each rollout batch once, in increasing "
            "order."
        )
    return index


def _to_unit(reward: Floats, se: Floats, reward_range: tuple[float, float] | None) -> tuple[Floats, Floats]:
    """Rewards and standard errors on the scale 0 to 1."""
    if not reward.size:
        return reward, se
    lowest, highest = float(reward.min()), float(reward.max())
    if reward_range is None:
        reward_range = (0.0, 1.0) if lowest >= 0 else (-1.0, 1.0)
    low, high = reward_range
    if not low < high:
        raise UserError(
            f"reward_range is {reward_range}; allowed: the scorer's lowest and highest reward, in this order."
        )
    if lowest < low or highest > high:
        raise UserError(
            f"mean rewards reach from {lowest:g} to {highest:g}, outside [{low:g}, {high:g}]; allowed: means in [0, 1] "
            "or [-1, 1], or within the reward_range that is given."
        )
    return (reward - low) / (high - low), se / (high - low)


def _average(
    reward: Floats, se: Floats, n: Floats, starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> tuple[Floats, Floats, Floats]:
    """Means over windows weighted by rollouts where all counts are known, their standard errors, and their counts."""
    weight = n if np.isfinite(n).all() else np.ones_like(reward)
    total = np.add.reduceat(weight, starts)
    mean = np.add.reduceat(weight * reward, starts) / total
    error = np.sqrt(np.add.reduceat((weight * se) ** 2, starts)) / total
    return mean, error, np.add.reduceat(n, starts)
