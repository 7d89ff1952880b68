"""A stability boundary with run-to-run noise, by Firth's penalised likelihood.

P(unstable) = Phi((log eta + alpha log x - A)/sigma).

With a sharp boundary the runs separate completely: the plain likelihood then tends to 1 as sigma -> 0, its sigma is too
small wherever few runs lie near the boundary, and its sets are too short. The penalty 0.5 log det I(beta) (Firth 1993;
profile sets after Heinze and Schemper 2002) keeps sigma away from 0. The full model's information enters the profile
too, so that fixing alpha only restricts beta. Comparing 1/S with 1/(S-1) takes the plain likelihood, since their
designs differ [declared].
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
_IMPOSSIBLE = -1e6  # penalised likelihood where the information vanishes


@dataclass(frozen=True, slots=True)
class ProbitFit:
    """Penalised estimate of the exponent, its 95 % set, and the plain log-likelihood at alpha = 1."""

    alpha: float
    interval: tuple[float, float]
    sigma: float
    at_floor: bool
    log_likelihood_at_one: float


@dataclass(frozen=True, slots=True)
class _Model:
    """Counts on the far and the near side at each point, and the design matrix [points, 3]: 1, log eta, log x."""

    design: Floats
    far: Floats
    near: Floats

    @classmethod
    def build(cls, log_x: Floats, log_lr: Floats, unstable: NDArray[np.bool_]) -> _Model:
        points, group = np.unique(np.column_stack([log_x, log_lr]), axis=0, return_inverse=True)
        x, eta = (points - points.mean(axis=0)).T
        far = np.bincount(group.ravel(), weights=unstable)
        near = np.bincount(group.ravel(), weights=~unstable)
        return cls(np.column_stack([np.ones_like(x), eta, x]), far, near)

    def log_likelihood(self, beta: Floats, penalised: bool) -> tuple[float, Floats]:
        """The (penalised) log-likelihood at beta = (-A, 1, alpha)/sigma, and its gradient."""
        predictor = self.design @ beta
        log_far, log_near = log_ndtr(predictor), log_ndtr(-predictor)
        log_density = -0.5 * predictor**2 - _LOG_ROOT_TAU
        hazard_far, hazard_near = np.exp(log_density - log_far), np.exp(log_density - log_near)
        value = self.far @ log_far + self.near @ log_near
        slope = self.far * hazard_far - self.near * hazard_near
        if penalised:
            log_weight = 2 * log_density - log_far - log_near  # of a run's information
            top = log_weight.max()
            weight = (self.far + self.near) * np.exp(log_weight - top)
            information = self.design.T @ (weight[:, None] * self.design)
            sign, log_det = np.linalg.slogdet(information)
            if sign <= 0 or not np.isfinite(log_det):
                return _IMPOSSIBLE, np.zeros(3)
            value += 0.5 * (log_det + 3 * top)
            leverage = weight * np.einsum("ij,ij->i", self.design @ np.linalg.inv(information), self.design)
            slope = slope + 0.5 * leverage * (hazard_near - hazard_far - 2 * predictor)
        return float(value), slope @ self.design

    def best(self, alpha: float, start: Floats, penalised: bool = True) -> tuple[float, Floats]:
        """The maximum at a fixed alpha, and (-A, 1)/sigma there."""
        restriction = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, alpha]])

        def negative(free: Floats) -> tuple[float, Floats]:
            value, gradient = self.log_likelihood(restriction @ free, penalised)
            return -value, -(gradient @ restriction)

        return maximise(negative, start, [(None, None), (0.0, 1 / SIGMA_FLOOR)])


def fit_probit(log_x: Floats, log_lr: Floats, unstable: NDArray[np.bool_]) -> ProbitFit | None:
    """Fit the boundary; None where all runs are on one side, or share one x or one eta.

    Arrays of one length: log x (x = S or S-1), log eta, and whether the run is on the far side.
    """
    if not log_x.size or unstable.all() or not unstable.any():
        return None
    model = _Model.build(log_x, log_lr, unstable)
    if np.linalg.matrix_rank(model.design) < 3:
        return None
    profile = _Profile(model)
    grid = np.linspace(-2.0, 4.0, 25)
    alpha, peak = _refine(profile, grid, np.array([profile(value) for value in grid]))
    width = float(profile.fit(alpha)[1][1])
    return ProbitFit(
        alpha=alpha,
        interval=likelihood_set(profile, alpha, peak, 0.5 * float(chi2.ppf(LEVEL, 1)), 0.1),
        sigma=1 / width if width > 0 else float("inf"),
        at_floor=width >= (1 - 1e-6) / SIGMA_FLOOR,
        log_likelihood_at_one=_plain(model, 1.0),
    )


class _Profile:
    """The penalised profile of alpha; each call starts from the last optimum."""

    def __init__(self, model: _Model) -> None:
        self._model = model
        self._last = np.array([0.0, 0.2 / SIGMA_FLOOR])

    def fit(self, alpha: float) -> tuple[float, Floats]:
        value, self._last = self._model.best(alpha, self._last)
        return value, self._last

    def __call__(self, alpha: float) -> float:
        return self.fit(alpha)[0]


def _plain(model: _Model, alpha: float) -> float:
    """The plain log-likelihood at a fixed alpha, sigma at or above its floor; concave, so any start will do."""
    starts = (np.array([0.0, 1.0]), np.array([0.0, 0.5 / SIGMA_FLOOR]))
    return max(model.best(alpha, start, penalised=False)[0] for start in starts)


def _refine(profile: _Profile, grid: Floats, values: Floats) -> tuple[float, float]:
    """The maximum: the best point of the grid, then ever smaller steps to either side."""
    at = int(np.argmax(values))
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
