"""Staleness-induced bias: how far the stale update field may lie from the fresh one (Section 3.1, equation 9).

With the field H(theta, phi) = E_{z ~ p_phi}[grad_theta l(z; theta, phi)], the bias is delta_t = H(theta_t, phi_t) -
H(theta_t, theta_t). The bound and its constants are [derived] from the stated proof: a change of the
surrogate's weights, at most L_rho |theta - phi|, and a change of the samples, at most Gamma sqrt(2 C_pi) |theta - phi|.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def rms(vector: ArrayLike) -> Floats:
    """RMS norm over the last axis, |v| = |v|_2 / sqrt(d)."""
    return np.sqrt(np.mean(np.square(np.asarray(vector, dtype=float)), axis=-1))


def bias_coefficient(l_rho: ArrayLike, gamma: ArrayLike, c_pi: ArrayLike) -> Floats:
    """K = L_rho + Gamma sqrt(2 C_pi), bias per unit of RMS displacement from the snapshot.

    Args:
        l_rho: Lipschitz constant of the surrogate's weighting in the behaviour policy.
        gamma: bound on the RMS norm of a sample's gradient.
        c_pi: KL(p_phi || p_phi') <= c_pi |phi - phi'|^2.
    """
    return np.asarray(l_rho) + np.asarray(gamma) * np.sqrt(2.0 * np.asarray(c_pi))


def lag_lr_budget(lr: ArrayLike, sync_interval: int) -> Floats:
    """Sum of the learning rates since the last synchronisation, before each update. Shape [updates], as `lr`."""
    rates = np.asarray(lr, dtype=float)
    before = np.concatenate([[0.0], np.cumsum(rates)[:-1]]) if rates.size else rates
    start = np.arange(rates.size) // sync_interval * sync_interval
    return before - before[start]


def bias_bound(coefficient: float, lr: ArrayLike, sync_interval: int, u_max: float) -> Floats:
    """Equation 9: |delta_t| <= K U_max sum of eta over the lag, for any schedule. Shape [updates]."""
    return coefficient * u_max * lag_lr_budget(lr, sync_interval)


def bias_sawtooth(t: ArrayLike, sync_interval: ArrayLike, lr: ArrayLike, coefficient: ArrayLike, u_max: ArrayLike):
    """The bound at a constant rate, K eta k_t U_max with k_t = t mod S: a sawtooth, 0 at each synchronisation.

    All arguments broadcast.
    """
    lag = np.mod(t, sync_interval)
    return np.asarray(coefficient) * np.asarray(lr) * lag * np.asarray(u_max)


def first_order_bias(response: ArrayLike, displacement: ArrayLike) -> Floats:
    """delta = B (theta - phi) up to second order, B = -d_phi H(theta, theta).

    Args:
        response: B, shape [..., d, d].
        displacement: theta - phi, shape [..., d].
    """
    return np.einsum("...ij,...j->...i", np.asarray(response), np.asarray(displacement))
