"""Profile-likelihood sets of one parameter, for likelihoods that are concave once scaled by 1/sigma.

Both models used here (probit boundary, interval-censored normal) have a log-likelihood that is concave in
(coefficients/sigma, 1/sigma) [derived: Prekopa's theorem]. A parameter of interest is a ratio of those, so its profile
is quasi-concave and its likelihood set an interval, which outward steps and root finding recover.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize
from scipy.stats import t as student_t

Floats = NDArray[np.float64]
LEVEL = 0.95
LIMIT = 30.0  # a set that reaches this far from its estimate is unbounded


def maximise(
    negative: Callable[[Floats], tuple[float, Floats]], start: Floats, bounds: Sequence[tuple]
) -> tuple[float, Floats]:
    """Maximum of a concave log-likelihood; `negative` returns its negative value and gradient."""
    result = minimize(
        negative,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options={"maxiter": 500, "ftol": 1e-12, "gtol": 1e-8},
    )
    return -float(result.fun), result.x


def drop_allowed(observations: int, parameters: int, level: float = LEVEL) -> float:
    """How far the log-likelihood may fall below its maximum inside the set.

    For a normal regression with unknown sigma this is the exact cut-off, which tends to half a chi-square quantile; it
    is what makes sets from nine runs honest. Infinite where there are no degrees of freedom left.
    """
    freedom = observations - parameters
    if freedom < 1:
        return np.inf
    quantile = student_t.ppf(0.5 + level / 2, freedom)
    return 0.5 * observations * float(np.log1p(quantile**2 / freedom))


def likelihood_set(
    profile: Callable[[float], float], estimate: float, peak: float, allowed: float, step: float
) -> tuple[float, float]:
    """The interval where `profile` is at least `peak - allowed`; infinite ends beyond LIMIT."""
    if not np.isfinite(allowed):
        return -np.inf, np.inf
    ends = []
    for sign in (-1.0, 1.0):
        inside, reach = estimate, step
        while reach <= LIMIT and profile(estimate + sign * reach) >= peak - allowed:
            inside, reach = estimate + sign * reach, 2 * reach
        if reach > LIMIT:
            ends.append(sign * np.inf)
            continue
        outside = estimate + sign * reach
        ends.append(brentq(lambda x: profile(x) - (peak - allowed), inside, outside, xtol=1e-4))
    return min(ends), max(ends)
