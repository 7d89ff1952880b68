"""Cross-checks of the collapse criterion by three other methods; none of them decides a label.

All three read the reward relative to its running maximum, x_M = min(1, r_M / max_{j<M} r_j), which stays near 1 while
training improves, so that a rise is not taken for a change. Thresholds and priors are [declared].

* CUSUM (Page 1954): C_M = max(0, C_{M-1} + 1 - allowance - x_M), alarm above the threshold;
* Page-Hinkley: the reward against the mean of all earlier batches, with a tolerance, alarm above the threshold;
* Bayesian single change point: x is normal with one unknown variance and mean m0 before M and m1 from M on, against no
  change at all; conjugate priors make the marginal likelihood of every M a closed form.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp

from collapse_laws.rewards import RewardSeries

Floats = NDArray[np.float64]

CUSUM_ALLOWANCE, CUSUM_THRESHOLD = 0.25, 0.25  # fractions of the running maximum
PH_TOLERANCE, PH_THRESHOLD = 0.02, 0.15  # reward
PRIOR_CHANGE = 0.5  # probability that there is a change at all, spread evenly over M
PRIOR_BEFORE, PRIOR_AFTER = 1.0, 0.2  # prior means of x
PRIOR_WEIGHT_BEFORE, PRIOR_WEIGHT_AFTER = 1.0, 0.1  # in observations
PRIOR_SHAPE, PRIOR_SCALE = 1.0, 0.005  # of the variance (inverse gamma): a spread of about 0.07


def relative_reward(reward: ArrayLike) -> Floats:
    """Reward over its running maximum, at most 1; 1 at the first batch and while the maximum is 0. Shape [batches]."""
    values = np.asarray(reward, dtype=float)
    relative = np.ones_like(values)
    if values.size > 1:
        ceiling = np.maximum.accumulate(values[:-1])
        np.divide(values[1:], ceiling, out=relative[1:], where=ceiling > 0)
    return np.minimum(relative, 1.0)


def cusum(reward: ArrayLike) -> int | None:
    """Position of the first batch at which the one-sided CUSUM of the relative reward alarms, or None."""
    return _first_alarm(1 - CUSUM_ALLOWANCE - relative_reward(reward), CUSUM_THRESHOLD)


def page_hinkley(reward: ArrayLike) -> int | None:
    """Position of the first batch at which the Page-Hinkley test for a falling mean alarms, or None."""
    values = np.asarray(reward, dtype=float)
    if values.size < 2:
        return None
    earlier = np.cumsum(values)[:-1] / np.arange(1, values.size)
    return _first_alarm(np.r_[0.0, earlier - values[1:] - PH_TOLERANCE], PH_THRESHOLD)


def _first_alarm(increment: Floats, threshold: float) -> int | None:
    """First position where the sum since its own minimum exceeds the threshold: max(0, C + increment), unrolled."""
    total = np.cumsum(increment)
    above = np.flatnonzero(total - np.minimum.accumulate(np.minimum(total, 0.0)) > threshold)
    return int(above[0]) if above.size else None


@dataclass(frozen=True, slots=True)
class ChangePoint:
    """Posterior of a single downward change in the reward."""

    position: int | None  # most probable first changed batch; None where there are fewer than two
    probability: float  # that there is a change
    posterior: tuple[float, ...]  # probability that batch M is the first changed one, M = 0 (always 0), 1, ...

    def to_json(self) -> dict[str, Any]:
        """As in a cell's results: the position is called index there."""
        return {
            "index": self.position,
            "probability": round(self.probability, 6),
            "posterior": [round(value, 6) for value in self.posterior],
        }


def bayes(reward: ArrayLike) -> ChangePoint:
    """The posterior over the single change point of the relative reward; only changes to a lower mean count."""
    x = relative_reward(reward)
    count = x.size
    if count < 2:
        return ChangePoint(None, 0.0, (0.0,) * count)
    total, square = np.cumsum(x), np.cumsum(x**2)
    before = np.arange(1, count)  # observations before a change at M = 1 .. count-1
    after = count - before
    change = _log_evidence(
        _squares(before, total[:-1], square[:-1], PRIOR_BEFORE, PRIOR_WEIGHT_BEFORE)
        + _squares(after, total[-1] - total[:-1], square[-1] - square[:-1], PRIOR_AFTER, PRIOR_WEIGHT_AFTER),
        _shrinkage(before, PRIOR_WEIGHT_BEFORE) + _shrinkage(after, PRIOR_WEIGHT_AFTER),
        count,
    )
    lower = (total[-1] - total[:-1]) / after < total[:-1] / before
    change = np.where(lower, change, -np.inf) + np.log(PRIOR_CHANGE / (count - 1))
    none = np.log1p(-PRIOR_CHANGE) + _log_evidence(
        _squares(count, total[-1], square[-1], PRIOR_BEFORE, PRIOR_WEIGHT_BEFORE),
        _shrinkage(count, PRIOR_WEIGHT_BEFORE),
        count,
    )
    evidence = logsumexp(np.r_[none, change])
    posterior = np.exp(change - evidence)
    position = int(np.argmax(posterior)) + 1 if posterior.any() else None
    return ChangePoint(position, float(posterior.sum()), (0.0, *map(float, posterior)))


def _squares(count: Any, total: Any, square: Any, mean: float, weight: float) -> Any:
    """Sum of squares about the mean plus the penalty of that mean's distance from its prior."""
    within = square - total**2 / count
    return np.maximum(within, 0.0) + weight * count / (weight + count) * (total / count - mean) ** 2


def _shrinkage(count: Any, weight: float) -> Any:
    return 0.5 * np.log(weight / (weight + count))


def _log_evidence(squares: Any, shrinkage: Any, count: int) -> Any:
    """Log marginal likelihood of a normal model with inverse-gamma variance, up to a constant of `count` alone."""
    return shrinkage - (PRIOR_SHAPE + count / 2) * np.log(PRIOR_SCALE + squares / 2)


def crosschecks(series: RewardSeries) -> dict[str, Any]:
    """The three cross-checks as JSON values, positions turned into snapshot indices M."""
    change = bayes(series.reward).to_json()
    if change["index"] is not None:
        change["index"] = int(series.first[change["index"]])
    return {
        "cusum_index": _at(series.first, cusum(series.reward)),
        "page_hinkley_index": _at(series.first, page_hinkley(series.reward)),
        "bayes": change,
    }


def _at(index: NDArray[np.int64], position: int | None) -> int | None:
    return None if position is None else int(index[position])
