"""The mean-field closure of staleness feedback (Section 3.2, Proposition 2, equation 10; Appendix A.4).

s_{n+1} = Phi(gamma s_n + rho_n): s in [0, 1] is the coherence of the normalised step, gamma = b kbar eta u / sigma_C
the gain at the mean lag kbar = (S-1)/2, Phi a bounded increasing response with Phi(0) = 0. A persistent branch s+ > 0
exists from gamma_c = inf_r r/Phi(r) on, which gives eta_mf(S) = 2 gamma_c sigma_C / (b u (S-1)): law (i) in its exact
form [derived].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import erf

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Response:
    """A response function with its derivative and thresholds. Below gamma_c there is no positive fixed point."""

    name: str
    phi: Callable[[Floats], Floats]
    slope: Callable[[Floats], Floats]
    critical_gain: float  # gamma_c = inf_{r>0} r/Phi(r)
    linear_gain: float  # 1/Phi'(0); above gamma_c the onset is discontinuous

    @property
    def discontinuous(self) -> bool:
        """Whether s+ jumps at the threshold."""
        return self.critical_gain < self.linear_gain


SECOND_MOMENT = Response(  # a coordinate's second moment at its stationary value [stated example]
    "second_moment",
    lambda r: r / np.sqrt(1 + r**2),
    lambda r: (1 + r**2) ** -1.5,
    1.0,
    1.0,
)
SIGN = Response(  # mean of a sign under Gaussian noise
    "sign",
    lambda r: erf(r / np.sqrt(2)),
    lambda r: np.sqrt(2 / np.pi) * np.exp(-(r**2) / 2),
    float(np.sqrt(np.pi / 2)),
    float(np.sqrt(np.pi / 2)),
)
QUADRATIC = Response(  # discontinuous onset: a jump to 1/2 at gamma_c = 2
    "quadratic",
    lambda r: r**2 / (1 + r**2),
    lambda r: 2 * r / (1 + r**2) ** 2,
    2.0,
    np.inf,
)
RESPONSES = {response.name: response for response in (SECOND_MOMENT, SIGN, QUADRATIC)}


def gain(feedback: ArrayLike, sync_interval: ArrayLike, lr: ArrayLike, step: ArrayLike, noise: ArrayLike) -> Floats:
    """gamma = b kbar eta u / sigma_C. All arguments broadcast.

    Args:
        feedback: b, raw gradient per unit of displacement.
        sync_interval: S; the mean lag is (S-1)/2.
        lr: eta.
        step: u, the normalised coordinate step.
        noise: sigma_C, raw-gradient noise of the coherent block.
    """
    mean_lag = (np.asarray(sync_interval, dtype=float) - 1) / 2
    return np.asarray(feedback) * mean_lag * np.asarray(lr) * np.asarray(step) / np.asarray(noise)


def boundary_lr(
    sync_interval: ArrayLike,
    critical_gain: ArrayLike,
    feedback: ArrayLike,
    step: ArrayLike,
    noise: ArrayLike,
) -> Floats:
    """eta_mf(S) = 2 gamma_c sigma_C / (b u (S-1)); infinite at S = 1. All arguments broadcast."""
    lag = np.asarray(sync_interval, dtype=float) - 1
    with np.errstate(divide="ignore"):
        return 2 * np.asarray(critical_gain) * np.asarray(noise) / (np.asarray(feedback) * np.asarray(step) * lag)


def upper_fixed_point(gain: ArrayLike, response: Response) -> Floats:
    """s+, the largest root of s = Phi(gamma s), 0 below the threshold. Shape of `gain`.

    Newton steps from s = 1, which lies above the root; there s - Phi(gamma s) is convex for every response here,
    so they fall onto the root from above.
    """
    gamma = np.asarray(gain, dtype=float)
    s = np.ones_like(gamma)
    for _ in range(60):
        excess = s - response.phi(gamma * s)
        slope = 1 - gamma * response.slope(gamma * s)
        step = np.where(slope > 1e-14, excess / np.maximum(slope, 1e-14), 0.0)
        s = np.clip(s - step, 0.0, 1.0)
        if np.abs(step).max(initial=0.0) < 1e-15:
            break
    return np.where(gamma >= response.critical_gain, s, 0.0)


def every_lag_map(s: ArrayLike, unit_gain: ArrayLike, sync_interval: int, response: Response) -> Floats:
    """Mean over the lags k = 0 .. S-1 of Phi(k g s), with g = b eta u / sigma_C. Shapes broadcast."""
    s, unit_gain = np.asarray(s, dtype=float), np.asarray(unit_gain, dtype=float)
    total = np.zeros(np.broadcast_shapes(s.shape, unit_gain.shape))
    for lag in range(1, sync_interval):
        total += response.phi(lag * unit_gain * s)
    return total / sync_interval


def every_lag_fixed_point(unit_gain: ArrayLike, sync_interval: int, response: Response, steps: int = 400) -> Floats:
    """The largest root of s = mean_{k<S} Phi(k g s): every lag retained instead of the mean one. Shape of `unit_gain`.

    Iterated from s = 1, from where the map falls monotonically onto its largest fixed point. The lag 0 adds nothing, so
    s+ <= (S-1)/S: the clock c2 = R/v is larger by up to S/(S-1), 14 % at S = 8 [derived].
    """
    s = np.ones_like(np.asarray(unit_gain, dtype=float))
    for _ in range(steps):
        following = every_lag_map(s, unit_gain, sync_interval, response)
        done = np.abs(following - s).max(initial=0.0) < 1e-14
        s = following
        if done:
            break
    return s


def iterate(start: ArrayLike, gain: ArrayLike, signal: ArrayLike, response: Response) -> Floats:
    """The path s_0, s_1, ... of equation 10 under task signals rho_n, shape [len(signal) + 1, ...].

    `start` and `gain` broadcast; `signal` has the cycles on its first axis.
    """
    signal = np.asarray(signal, dtype=float)
    path = [np.broadcast_arrays(np.asarray(start, dtype=float), np.asarray(gain, dtype=float))[0]]
    for rho in signal:
        path.append(response.phi(np.asarray(gain) * path[-1] + rho))
    return np.stack(path)
