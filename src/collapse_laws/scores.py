"""Scores of an evaluation: avg@k with an interval over problems, pass@k, and groups of problems.

avg@k is the mean over problems of the fraction of k samples that are right (section 2 of the paper:
avg@1 and avg@8, [stated] without an interval; intervals here are [declared]). Problems, not
samples, are the units of the interval, since samples of one problem are not independent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

CONFIDENCE = 0.95
Z = 1.959963984540054  # normal quantile of CONFIDENCE
RESAMPLES = 4000


@dataclass(frozen=True, slots=True)
class Score:
    """A mean over problems with its interval at CONFIDENCE."""

    problems: int
    mean: float
    low: float
    high: float
    method: str  # wilson | bootstrap

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def score(right: np.ndarray, seed: int = 0) -> Score:
    """avg@k of right [problems, samples] of 0 and 1.

    One sample a problem: Wilson's binomial interval. More: a percentile bootstrap over problems;
    where all problems have the same mean a bootstrap has no width, and Wilson's interval with one
    trial a problem is given, which is wider.
    """
    right = np.asarray(right, dtype=float)
    if right.ndim != 2 or right.size == 0:
        raise ValueError(f"right must be [problems, samples] and not empty; its shape is {right.shape}")
    means = right.mean(axis=1)
    n, mean = len(means), float(means.mean())
    if right.shape[1] == 1 or np.ptp(means) == 0:
        low, high = wilson(mean, n)
        return Score(n, mean, low, high, "wilson")
    draws = np.random.default_rng(seed).integers(0, n, size=(RESAMPLES, n))
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(means[draws].mean(axis=1), [tail, 1 - tail])
    return Score(n, mean, float(low), float(high), "bootstrap")


def wilson(mean: float, n: int) -> tuple[float, float]:
    """Wilson's interval of a proportion over n trials (Wilson 1927)."""
    centre = (mean + Z * Z / (2 * n)) / (1 + Z * Z / n)
    half = Z / (1 + Z * Z / n) * math.sqrt(mean * (1 - mean) / n + Z * Z / (4 * n * n))
    return max(centre - half, 0.0), min(centre + half, 1.0)


def pass_at_k(right: np.ndarray) -> dict[int, float]:
    """pass@k for k = 1, 2, 4, ... and the number of samples, by the unbiased estimator of Chen et al. 2021.

    right: [problems, n] of 0 and 1. 1 - C(n-c, k) / C(n, k), averaged over problems with c right
    samples of n.
    """
    right = np.asarray(right)
    n = right.shape[1]
    correct = right.sum(axis=1).astype(int)
    ks = sorted({2**i for i in range(n.bit_length()) if 2**i <= n} | {n})
    return {k: float(np.mean([1 - math.comb(n - c, k) / math.comb(n, k) for c in correct])) for k in ks}


def by_group(right: np.ndarray, groups: Sequence[str | None]) -> dict[str, Score]:
    """The score of the problems of each group, in alphabetical order; problems without a group are left out."""
    names = np.array([name or "" for name in groups])
    return {str(name): score(right[names == name]) for name in np.unique(names) if name}


def scores_json(scores: Mapping[Any, Score]) -> dict[str, Any]:
    """Scores by name as JSON objects."""
    return {str(name): value.to_json() for name, value in scores.items()}
