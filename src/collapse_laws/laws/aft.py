"""The interval-censored log-normal accelerated-failure-time model of the collapsed runs.

log t = a - b log eta + c log S + sigma * noise, with t known only to lie in (low, high]. In the coordinates
coefficients/sigma and 1/sigma the log-likelihood is concave, and with a floor under sigma it has a maximum even where a
noiseless line passes all intervals [declared: the floor].
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from collapse_laws.laws.profile import drop_allowed, likelihood_set, maximise

Floats = NDArray[np.float64]
SIGMA_FLOOR = 0.02  # in log t: runs at one point differ by at least 2 % in their onset [declared]
_LOG_ROOT_TAU = 0.5 * np.log(2 * np.pi)


@dataclass(frozen=True, slots=True)
class AftFit:
    """Estimates and 95 % sets; None where the model cannot be fitted, infinite ends where a set is unbounded."""

    b_estimate: float | None = None
    b: tuple[float, float] | None = None
    c_estimate: float | None = None
    c: tuple[float, float] | None = None
    c2_estimate: float | None = None
    c2: tuple[float, float] | None = None
    sigma: float | None = None
    at_floor: bool = False


@dataclass(frozen=True, slots=True)
class _Model:
    """Censoring limits of log t in units that centre the start, and the design matrix [runs, parameters]."""

    low: Floats
    high: Floats
    design: Floats

    def negative(self, theta: Floats, weights: Floats, origin: Floats) -> tuple[float, Floats]:
        """Minus the log-likelihood and its gradient at theta = (coefficients/sigma, 1/sigma).

        `weights` is the design of the free coefficients and `origin` the part of log t that the fixed one explains.
        """
        predictor, precision = weights @ theta[:-1], theta[-1]
        upper_limit, lower_limit = self.high - origin, self.low - origin
        upper, lower = precision * upper_limit - predictor, precision * lower_limit - predictor
        log_mass = _log_difference(upper, lower)
        weight_up = np.exp(-0.5 * upper**2 - _LOG_ROOT_TAU - log_mass)
        weight_low = np.exp(-0.5 * lower**2 - _LOG_ROOT_TAU - log_mass)  # 0 at -inf
        by_predictor = weight_low - weight_up
        by_precision = weight_up * upper_limit - weight_low * np.nan_to_num(lower_limit, neginf=0.0)
        gradient = np.r_[by_predictor @ weights, by_precision.sum()]
        return -float(log_mass.sum()), -gradient


def fit_aft(low: Floats, high: Floats, lr: Floats, sync_interval: Floats) -> AftFit:
    """Fit b, c with sigma free, and c2 with b = 1, c = 0. Arrays of one length, onset in (low, high] learner
    updates.
    """
    if not low.size:
        return AftFit()
    log_lr, log_s = np.log(lr), np.log(sync_interval)
    with np.errstate(divide="ignore"):
        log_low, log_high = np.log(low), np.log(high)
    c2, c2_set, sigma, at_floor = _location(log_low + log_lr, log_high + log_lr)
    values = {"c2_estimate": c2, "c2": c2_set, "sigma": sigma, "at_floor": at_floor}
    centred = np.column_stack([np.ones_like(log_lr), log_lr.mean() - log_lr, log_s - log_s.mean()])
    if np.linalg.matrix_rank(centred) < 3:
        # one S or one rate: the exponent that never varied is unbounded, the other is fitted alone
        unbounded = (-np.inf, np.inf)
        values |= {"b": unbounded, "c": unbounded}
        varied = [k for k in (1, 2) if np.ptp(centred[:, k]) > 0]
        columns = [0, *varied] if len(varied) == 1 else [0]
    else:
        columns = [0, 1, 2]
    model = _Model(log_low, log_high, centred[:, columns])
    for position, column in enumerate(columns[1:], 1):
        estimate, found, sigma, at_floor = _coefficient(model, position)
        name = "bc"[column - 1]
        values |= {f"{name}_estimate": estimate, name: found, "sigma": sigma, "at_floor": at_floor}
    return AftFit(**values)


def _coefficient(model: _Model, position: int) -> tuple[float, tuple[float, float], float, bool]:
    """Estimate, 95 % set, sigma and whether sigma is at its floor, for one coefficient."""
    start = _start(model)
    runs, parameters = model.design.shape
    bounds = [(None, None)] * parameters + [(1e-3, 1 / SIGMA_FLOOR)]
    none = np.zeros(runs)
    peak, theta = maximise(lambda v: model.negative(v, model.design, none), start, bounds)
    estimate = float(theta[position] / theta[-1])
    free = [k for k in range(parameters) if k != position]
    inner = np.r_[theta[:-1][free], theta[-1]]

    def profile(value: float) -> float:
        origin = value * model.design[:, position]
        best, _ = maximise(
            lambda v: model.negative(v, model.design[:, free], origin),
            inner,
            [bounds[k] for k in free] + bounds[-1:],
        )
        return best

    peak = max(peak, profile(estimate))
    found = likelihood_set(profile, estimate, peak, drop_allowed(runs, parameters), 0.05)
    sigma = float(1 / theta[-1])
    return estimate, found, sigma, bool(sigma <= SIGMA_FLOOR * (1 + 1e-6))


def _location(low: Floats, high: Floats) -> tuple[float, tuple[float, float], float, bool]:
    """The median of t*eta from the limits of log(t*eta), with b = 1 and c = 0."""
    model = _Model(low, high, np.ones((low.size, 1)))
    estimate, found, sigma, at_floor = _coefficient(model, 0)
    with np.errstate(over="ignore"):
        return (
            float(np.exp(estimate)),
            (float(np.exp(found[0])), float(np.exp(found[1]))),
            sigma,
            at_floor,
        )


def _start(model: _Model) -> Floats:
    """Least squares on the mid-points of the intervals (a first interval (0, S] counts as (S/2, S])."""
    low = np.where(np.isfinite(model.low), model.low, model.high - np.log(2.0))
    middle = 0.5 * (low + model.high)
    coefficients, *_ = np.linalg.lstsq(model.design, middle, rcond=None)
    spread = max(float(np.std(middle - model.design @ coefficients)), 2 * SIGMA_FLOOR, 0.05)
    return np.r_[coefficients, 1.0] / spread


def _log_difference(upper: Floats, lower: Floats) -> Floats:
    """log(Phi(upper) - Phi(lower)) for upper > lower, in the tail where it loses nothing."""
    flip = lower > 0
    high = np.where(flip, -lower, upper)
    low = np.where(flip, -upper, lower)
    log_high, log_low = log_ndtr(high), log_ndtr(low)
    return log_high + np.log1p(-np.exp(np.minimum(log_low - log_high, -1e-15)))
