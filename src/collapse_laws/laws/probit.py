"""A stability boundary with run-to-run noise: P(unstable) = Phi((log eta + alpha log x - A)/sigma), by profile
likelihood.

With a sharp boundary the runs separate completely, the likelihood tends to 1 as sigma -> 0 and Wald intervals mean
nothing; hence the floor under sigma and the profile set, which then holds the feasible set of the sharp boundary
[declared].
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr
from scipy.stats import chi2

from collapse_laws.laws.profile import LEVEL, likelihood_set, maximise

Floats = NDArray[np.float64]
SIGMA_FLOOR = 0.05  # in log eta: runs at one point differ by at least 5 % in their boundary [declared]
LOG_RATIO = float(np.log(20.0))  # of likelihoods, from which one of two forms is preferred [declared]
_LOG_ROOT_TAU = 0.5 * np.log(2 * np.pi)


@dataclass(frozen=True, slots=True)
class ProbitFit:
    """Maximum-likelihood exponent, its 95 % set, and the log-likelihood at alpha = 1."""

    alpha: float
    interval: tuple[float, float]
    sigma: float
    at_floor: bool
    log_likelihood: float
    log_likelihood_at_one: float


def fit_probit(log_x: Floats, log_lr: Floats, unstable: NDArray[np.bool_]) -> ProbitFit | None:
    """Fit the boundary; None where all runs are on one side or share one x.

    Arrays of one length: log x (x = S or S-1), log eta, and whether the run is on the far side.
    """
    if not log_x.size or unstable.all() or not unstable.any() or np.ptp(log_x) == 0:
        return None
    points, group = np.unique(np.column_stack([log_x, log_lr]), axis=0, return_inverse=True)
    far = np.bincount(group.ravel(), weights=unstable)
    near = np.bincount(group.ravel(), weights=~unstable)
    x, eta = (points - points.mean(axis=0)).T

    def negative(beta: Floats, alpha: float) -> tuple[float, Floats]:
        z = eta + alpha * x
        value, slope = _binomial(beta[0] + beta[1] * z, far, near)
        return -value, -np.array([slope.sum(), slope @ z])

    warm = np.array([0.0, 1.0])

    def profile(alpha: float) -> float:
        best = -np.inf
        for start in (warm, np.array([0.0, 0.5 / SIGMA_FLOOR])):
            value, beta = maximise(lambda beta: negative(beta, alpha), start, [(None, None), (0.0, 1 / SIGMA_FLOOR)])
            if value > best:
                best, profile.beta = value, beta
        return best

    grid = np.linspace(-2.0, 4.0, 25)
    values = np.array([profile(alpha) for alpha in grid])
    alpha, peak = _refine(profile, grid, values)
    profile(alpha)
    width = profile.beta[1]
    allowed = 0.5 * float(chi2.ppf(LEVEL, 1))
    return ProbitFit(
        alpha=alpha,
        interval=likelihood_set(profile, alpha, peak, allowed, 0.1),
        sigma=float(1 / width) if width > 0 else float("inf"),
        at_floor=bool(width >= (1 - 1e-6) / SIGMA_FLOOR),
        log_likelihood=peak,
        log_likelihood_at_one=profile(1.0),
    )


def _binomial(predictor: Floats, far: Floats, near: Floats) -> tuple[float, Floats]:
    """Log-likelihood of the counts and its derivative by each predictor."""
    log_far, log_near = log_ndtr(predictor), log_ndtr(-predictor)
    log_density = -0.5 * predictor**2 - _LOG_ROOT_TAU
    slope = far * np.exp(log_density - log_far) - near * np.exp(log_density - log_near)
    return float(far @ log_far + near @ log_near), slope


def _refine(profile, grid: Floats, values: Floats) -> tuple[float, float]:
    """Maximum of a quasi-concave profile: the middle of the flat top on the grid, then golden-section steps."""
    top = np.flatnonzero(values >= values.max() - 1e-6)
    at = int(top[len(top) // 2])
    best, peak = float(grid[at]), float(values[at])
    step = float(grid[1] - grid[0]) / 2
    while step > 1e-3:
        for candidate in (best - step, best + step):
            value = profile(candidate)
            if value > peak + 1e-9:
                best, peak = candidate, value
                break
        else:
            step /= 2
    return best, peak
