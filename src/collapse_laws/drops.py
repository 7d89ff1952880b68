"""Drops of a reward series below its running maximum, and whether they climb back: parts of the collapse criterion.

The rule itself is in `collapse` [declared]. Every search here costs no more than the length of what it passes over.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collapse_laws.outcome import Criterion, Drop
from collapse_laws.rewards import RewardSeries


@dataclass(frozen=True, slots=True)
class Found:
    """A drop: its positions in the series, and its date."""

    start: int
    end: int | None  # position at which it had climbed back
    index: int  # M of its first batch
    onset: tuple[int, int]  # (low, high] learner updates

    def public(self, series: RewardSeries) -> Drop:
        back = None if self.end is None else int(series.first[self.end])
        return Drop(self.index, float(series.reward[self.start]), back)


def running_maximum(reward: np.ndarray) -> np.ndarray:
    """R_M, the largest reward before each point; NaN at the first."""
    ceiling = np.full(reward.shape, np.nan)
    ceiling[1:] = np.maximum.accumulate(reward[:-1])
    return ceiling


def below(series: RewardSeries, ceiling: np.ndarray, fraction: float, rule: Criterion) -> np.ndarray:
    """Where a point is at most `fraction` of the running maximum and the drop is larger than noise."""
    pooled = (series.reward + ceiling) / 2
    binomial = np.sqrt(pooled * (1 - pooled) / series.n)
    se = np.fmax(np.fmax(series.se, binomial), 0.0)  # an unknown standard error counts as 0
    noise = np.maximum(rule.min_drop, rule.z * np.where(np.isnan(se), 0.0, se))
    return (series.reward <= fraction * ceiling) & (series.reward <= ceiling - noise)


def find_drops(series: RewardSeries, ceiling: np.ndarray, rule: Criterion, crashed: bool) -> list[Found]:
    """All drops in order. A drop at the very last point counts unless the run crashed there."""
    reward, found, position = series.reward, [], 0
    for start in np.flatnonzero(below(series, ceiling, rule.rho, rule)).tolist():
        if start < position:
            continue
        back = rule.recovery * ceiling[start]
        if start + 1 == reward.size:
            if crashed:
                continue
        elif rule.confirm * ceiling[start] < reward[start + 1] < back:
            continue  # neither confirmed nor climbed back
        end = _first_at_least(reward, start + 1, back)
        found.append(Found(start, end, *series.date(start, rule.rho * ceiling[start])))
        if end is None:
            break
        position = end
    return found


def _first_at_least(reward: np.ndarray, start: int, level: float) -> int | None:
    """First position from `start` on with a reward of at least `level`, or None."""
    width = 16
    while start < reward.size:
        reached = np.flatnonzero(reward[start : start + width] >= level)
        if reached.size:
            return start + int(reached[0])
        start, width = start + width, 2 * width
    return None


def lasting(found: list[Found], points: int) -> bool:
    """Whether the last drop never climbed back and stands longer than any that did."""
    if not found or found[-1].end is not None:
        return False
    recovered = max((drop.end - drop.start for drop in found if drop.end is not None), default=0)
    return points - found[-1].start > recovered
