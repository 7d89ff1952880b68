"""The calibration rule: what a coarse sweep says of a new (S, eta) (Section 3.5 [stated]; its exact form [declared]).

From the bracket (B_lo, B_hi) of a product with eta (S eta, or kbar eta) and an interval of c2: stable if the product is
at most B_lo, expected to fail near c2/eta if it is at least B_hi, undecided between. Any choice is validated to 2
c2/eta.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
STABLE, UNDECIDED, COLLAPSE = -1, 0, 1


@dataclass(frozen=True, slots=True)
class Advice:
    """The rule at each point, arrays of the broadcast shape of S and eta."""

    regime: NDArray[np.int8]  # STABLE, UNDECIDED or COLLAPSE
    collapse_low: Floats  # updates, (low, high]; where the regime is COLLAPSE or UNDECIDED, NaN where STABLE
    collapse_high: Floats
    validate_updates: Floats  # 2 c2/eta with the larger c2


def factor(sync_interval: ArrayLike, scale: str = "S") -> Floats:
    """What eta is multiplied with: S, or kbar = (S-1)/2 for scale "S-1"."""
    interval = np.asarray(sync_interval, dtype=float)
    if scale not in ("S", "S-1"):
        raise ValueError(f"scale is {scale!r}; allowed: 'S', 'S-1'")
    return interval if scale == "S" else (interval - 1) / 2


def advise(
    sync_interval: ArrayLike,
    lr: ArrayLike,
    bracket: tuple[float, float],
    lr_budget: tuple[float, float],
    scale: str = "S",
) -> Advice:
    """The rule at points (S, eta), which broadcast.

    Args:
        bracket: (B_lo, B_hi), largest stable and smallest collapsed product of the sweep.
        lr_budget: interval of c2 from several failed runs.
        scale: "S" for S eta, "S-1" for kbar eta.
    """
    eta = np.asarray(lr, dtype=float)
    product = factor(sync_interval, scale) * eta
    slack = 1e-9  # products that are equal in decimal must compare as equal
    regime = np.where(
        product <= bracket[0] * (1 + slack),
        STABLE,
        np.where(product >= bracket[1] * (1 - slack), COLLAPSE, UNDECIDED),
    ).astype(np.int8)
    may_fail = regime != STABLE
    eta = np.broadcast_to(eta, regime.shape)
    return Advice(
        regime=regime,
        collapse_low=np.where(may_fail, lr_budget[0] / eta, np.nan),
        collapse_high=np.where(may_fail, lr_budget[1] / eta, np.nan),
        validate_updates=2 * lr_budget[1] / eta,
    )


def largest_stable_lr(sync_interval: ArrayLike, bracket: tuple[float, float], scale: str = "S") -> Floats:
    """The largest eta that the sweep supports at S: B_lo/S; infinite where the factor is 0."""
    with np.errstate(divide="ignore"):
        return bracket[0] / factor(sync_interval, scale)
