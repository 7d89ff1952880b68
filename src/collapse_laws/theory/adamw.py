"""How large a normalised AdamW update can be (Appendix A.6).

|m^/(sqrt(v^) + eps)| <= (1-b1)/(1-b1^t) sqrt((1-b2^t)/(1-b2)) sqrt((1-r^t)/(1-r)) with r = b1^2/b2 < 1, by
Cauchy-Schwarz; attained by gradients proportional to (b1/b2)^age [derived]. For (0.9, 0.999): 1 at t = 1, 1.34 at 32,
3.81 at 320, 7.27 in the limit. Decoupled weight decay adds lambda max|theta|.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def _ratio(beta1: float, beta2: float) -> float:
    if not (0 <= beta1 < 1 and 0 < beta2 < 1 and beta1**2 < beta2):
        raise ValueError(f"betas are ({beta1}, {beta2}); allowed: 0 <= beta1 < 1, beta1^2 < beta2 < 1")
    return beta1**2 / beta2


def normalised_step_bound(t: ArrayLike, beta1: float = 0.9, beta2: float = 0.999) -> Floats:
    """Largest |m^/(sqrt(v^)+eps)| of a coordinate after t >= 1 updates. Shape of `t`."""
    r, t = _ratio(beta1, beta2), np.asarray(t, dtype=float)
    mean = (1 - beta1) / -np.expm1(t * np.log(beta1)) if beta1 else np.ones_like(t)
    square = np.sqrt(-np.expm1(t * np.log(beta2)) / (1 - beta2))
    history = np.sqrt(-np.expm1(t * np.log(r)) / (1 - r)) if r else np.ones_like(t)
    return mean * square * history


def normalised_step_limit(beta1: float = 0.9, beta2: float = 0.999) -> float:
    """The bound as t grows without limit."""
    return float((1 - beta1) / np.sqrt((1 - beta2) * (1 - _ratio(beta1, beta2))))


def update_bound(
    t: ArrayLike,
    weight_decay: ArrayLike,
    parameter_max: ArrayLike,
    beta1: float = 0.9,
    beta2: float = 0.999,
) -> Floats:
    """U_max: the bound on a coordinate's whole update over eta, with decoupled weight decay. Arguments broadcast."""
    return normalised_step_bound(t, beta1, beta2) + np.asarray(weight_decay) * np.asarray(parameter_max)


def extremal_gradients(t: int, beta1: float = 0.9, beta2: float = 0.999) -> Floats:
    """A history of t gradients, oldest first, whose last normalised step attains the bound. Shape [t]."""
    _ratio(beta1, beta2)
    return (beta1 / beta2) ** np.arange(t - 1, -1, -1, dtype=float)
