"""The collapse criterion applied to a log as read, and the learning rates that the log's updates spent.

The criterion is that of `collapse`, with one declared difference: rollout batches of a foreign log are judged one by
one at every S, because a log is dated by its own batches; the scatter of the logged records gives the standard error
that guards against noise. A cell of a study is judged as `extract` judges it. Rewards outside [0, 1] and [-1, 1] are
scaled by their own range [declared].
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collapse_laws.collapse import classify
from collapse_laws.errors import UserError
from collapse_laws.logs import ReadLog
from collapse_laws.logs.numbers import check_rate, is_rate
from collapse_laws.outcome import Criterion, Outcome
from collapse_laws.runrecord import USER


@dataclass(frozen=True, slots=True)
class Rates:
    """Learning rates of a run's updates. `lr` is the constant one, or the mean; None where neither log nor user
    gives any.
    """

    lr: float | None
    source: str  # given | log | unknown
    constant: bool
    _last: np.ndarray
    _value: np.ndarray

    def spent(self, updates: int) -> float | None:
        """Sum of eta over the first `updates` learner updates."""
        if self.lr is None:
            return None
        if self.source == "given" or self._value.size == 0:
            return self.lr * updates
        edges = np.concatenate([[0], np.minimum(self._last + 1, updates)])
        total = float(np.sum(np.diff(edges) * self._value))
        beyond = max(0, updates - int(self._last[-1]) - 1)
        return total + beyond * float(self._value[-1])


def rates(log: ReadLog, given: float | None) -> Rates:
    """The learning rates: the user's, else the log's; UserError for one that is not a positive number."""
    if given is not None:
        check_rate(given)
        return Rates(given, "given", True, np.empty(0, int), np.empty(0))
    values = log.series.metrics.get("lr", np.empty(0))
    known = np.isfinite(values) & (values >= 0)
    if not known.any() or not is_rate(float(np.median(values[known]))):
        recorded = log.record.lr
        recorded = recorded if recorded is not None and is_rate(recorded) else None
        return Rates(recorded, "log" if recorded else "unknown", True, np.empty(0, int), np.empty(0))
    last, values = log.series.last[known], values[known]
    constant = bool(np.ptp(values) <= 1e-9 * np.abs(values).max())
    return Rates(float(np.median(values)), "log", constant, last, values)


def reward_range(reward: np.ndarray) -> tuple[float, float] | None:
    """None for rewards in [0, 1] or [-1, 1]; else the range that scales them."""
    known = reward[np.isfinite(reward)]
    if not known.size or (known.min() >= -1 and known.max() <= 1):
        return None
    return min(0.0, float(known.min())), max(1.0, float(known.max()))


def judge_series(
    index: np.ndarray,
    reward: np.ndarray,
    se: np.ndarray,
    cycle: int,
    updates: int,
    spent: float | None,
    reference: float | None,
    degenerate: np.ndarray | None = None,
    failed: bool = False,
    window_updates: int = 1,
) -> Outcome:
    """The outcome of snapshot means. A gap of NaN between finite means is left out; a NaN at the end is a failed run.

    Means are averaged until they span `window_updates` learner updates.
    """
    finite = np.flatnonzero(np.isfinite(reward))
    if not finite.size:
        raise UserError("every reward of the log is NaN; there is nothing to judge.")
    keep = np.isfinite(reward) | (np.arange(reward.size) > finite[-1])
    return classify(
        reward[keep],
        sync_interval=cycle,
        snapshot=index[keep],
        se=se[keep],
        updates=updates,
        lr_budget_spent=spent,
        reference_lr_budget=reference,
        degenerate_fraction=None if degenerate is None else degenerate[keep],
        failed=failed,
        criterion=Criterion(window_updates=window_updates, reward_range=reward_range(reward)),
    )


def judge(log: ReadLog, rate: Rates, reference: float | None) -> Outcome:
    """The outcome of a log. Without S the logged records stand for batches, and the outcome's indices count records."""
    means, cycle = log.snapshots, log.sync_interval or log.series.stride
    if not log.series.reward.size:
        raise UserError(f"{log.path}: every record with a reward has a step below 1; steps count updates from 0 or 1.")
    if log.sync_interval is not None and means.index.size < 2:
        raise UserError(
            f"{log.path}: the run's {log.series.updates} updates hold one rollout batch of S={cycle}; a drop needs at "
            "least two."
        )
    return judge_series(
        means.index,
        means.reward,
        means.se,
        cycle,
        log.series.updates,
        rate.spent(log.series.updates),
        reference,
        _degenerate(log, cycle),
        log.record.manifest.get("stop_reason") == "failed",
        Criterion().window_updates if log.record.manifest.get("scale", USER) != USER else 1,
    )


def _degenerate(log: ReadLog, cycle: int) -> np.ndarray | None:
    values = log.series.metrics.get("degenerate_group_fraction")
    if values is None:
        return None
    known = np.isfinite(values)
    place = np.searchsorted(log.snapshots.index, log.series.last[known] // cycle)
    size = log.snapshots.index.size
    inside = place < size
    place, values = place[inside], values[known][inside]
    with np.errstate(invalid="ignore"):
        return np.bincount(place, values, size) / np.bincount(place, minlength=size)
