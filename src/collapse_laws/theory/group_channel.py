"""The finite-group normalisation channel of GRPO with a binary reward (Appendix A.3).

With K ~ Bin(G, q) successes in a group of G and v = K(G-K)/G^2, the expected advantage-weighted update is the REINFORCE
update times C_{G,eps}(q) = E[v / (sd + eps)] / (q(1-q)), sd = sqrt(v) with ddof 0 (the paper's two values C_2 = 1/(1+2
eps), C_3 = 2/(sqrt 2 + 3 eps) [stated] follow) or sqrt(v G/(G-1)) with ddof 1, the frameworks' default [derived]. The
channel reinforces drift where C' < 0 and opposes it where C' > 0. With exact importance weights and no normalisation
there is no bias at all.
"""

from __future__ import annotations

from math import comb

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def _group_terms(group_size: int, eps: float, ddof: int) -> list[tuple[int, float]]:
    """For each K = 1 .. G-1 the weight binom(G, K) v/(sd + eps)."""
    if group_size < 2:
        raise ValueError(f"group_size is {group_size}; allowed: at least 2")
    if ddof not in (0, 1):
        raise ValueError(f"ddof is {ddof}; allowed: 0 or 1")
    terms = []
    for successes in range(1, group_size):
        v = successes * (group_size - successes) / group_size**2
        deviation = np.sqrt(v * group_size / (group_size - ddof))
        terms.append((successes, comb(group_size, successes) * v / (deviation + eps)))
    return terms


def channel(q: ArrayLike, group_size: int, eps: float = 0.0, ddof: int = 0) -> Floats:
    """C_{G,eps}(q) for success probabilities q in [0, 1], any shape; the ends are limits.

    Raises ValueError for a group below 2 or another ddof than 0 and 1.
    """
    q = np.asarray(q, dtype=float)
    total = np.zeros_like(q)
    for k, weight in _group_terms(group_size, eps, ddof):
        total += weight * q ** (k - 1) * (1 - q) ** (group_size - k - 1)
    return total


def channel_slope(q: ArrayLike, group_size: int, eps: float = 0.0, ddof: int = 0) -> Floats:
    """C'(q), same shape as q: negative where the channel reinforces drift."""
    q = np.asarray(q, dtype=float)
    total = np.zeros_like(q)
    for k, weight in _group_terms(group_size, eps, ddof):
        left, right = k - 1, group_size - k - 1
        if left:
            total += weight * left * q ** (left - 1) * (1 - q) ** right
        if right:
            total -= weight * right * q**left * (1 - q) ** (right - 1)
    return total


def population_channel(q: ArrayLike, eps: float = 0.0) -> Floats:
    """The limit of large groups, 1/(sqrt(q(1-q)) + eps)."""
    q = np.asarray(q, dtype=float)
    return 1.0 / (np.sqrt(q * (1 - q)) + eps)


def informative_probability(q: ArrayLike, group_size: int) -> Floats:
    """Probability that a group is not degenerate, 1 - q^G - (1-q)^G."""
    q = np.asarray(q, dtype=float)
    return 1.0 - q**group_size - (1 - q) ** group_size
