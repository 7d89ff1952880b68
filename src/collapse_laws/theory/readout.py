"""What the cosine of consecutive raw gradients shows, and how long it warns (Section 3.4, Proposition 3, Corollary 2;
A.7).

With mu the mean gradients and Q = |mu|^2 + tr Sigma, the cosine is near r = mu_t . mu_{t-1} / sqrt(Q_t Q_{t-1}), within
(e_I + |r| e_N)/(1 - e_N). It is a raw-gradient readout: a coherent block with little raw energy is masked in it. It
does not change under global-norm clipping [derived].
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def cosine(current: ArrayLike, previous: ArrayLike) -> Floats:
    """Cosine over the last axis; NaN, never 0, where a gradient is zero or not finite."""
    current, previous = np.asarray(current, dtype=float), np.asarray(previous, dtype=float)
    norms = np.linalg.norm(current, axis=-1) * np.linalg.norm(previous, axis=-1)
    inner = np.sum(current * previous, axis=-1)
    valid = np.isfinite(norms) & np.isfinite(inner) & (norms > 0)
    return np.where(valid, inner / np.where(valid, norms, 1.0), np.nan)


def signal_fraction(mean: ArrayLike, previous_mean: ArrayLike, noise: ArrayLike, previous_noise: ArrayLike) -> Floats:
    """r, from the mean gradients [..., d] and the traces of their covariances [...]."""
    mean, previous_mean = np.asarray(mean, dtype=float), np.asarray(previous_mean, dtype=float)
    q = np.sum(mean**2, axis=-1) + np.asarray(noise)
    previous_q = np.sum(previous_mean**2, axis=-1) + np.asarray(previous_noise)
    return np.sum(mean * previous_mean, axis=-1) / np.sqrt(q * previous_q)


def readout_error(fraction: ArrayLike, inner_error: ArrayLike, norm_error: ArrayLike) -> Floats:
    """Bound on |c_t - r|: (e_I + |r| e_N)/(1 - e_N); infinite for e_N >= 1. All arguments broadcast."""
    norm_error = np.asarray(norm_error, dtype=float)
    with np.errstate(divide="ignore", invalid="ignore"):
        bound = (np.asarray(inner_error) + np.abs(fraction) * norm_error) / (1 - norm_error)
    return np.where(norm_error < 1, bound, np.inf)


def snr_cosine(snr: ArrayLike) -> Floats:
    """The cosine under a slowly varying mean, SNR/(1 + SNR)."""
    snr = np.asarray(snr, dtype=float)
    return snr / (1 + snr)


def block_snr(weight: ArrayLike, ratio: ArrayLike) -> Floats:
    """SNR = sum_b w_b rho_b^2 over the last axis: share of the raw noise energy and signal-to-noise of each block.

    The paper's illustration [stated]: w = 1e-6 and rho = 10 in the coherent block give 1e-4.
    """
    return np.sum(np.asarray(weight) * np.square(ratio), axis=-1)


def late_cosine(kappa: ArrayLike, error: ArrayLike) -> Floats:
    """Lower bound of the cosine in a layer with SNR >= kappa^2: kappa^2/(1+kappa^2) - e_c."""
    return snr_cosine(np.square(kappa)) - np.asarray(error)


def warning_updates_max(
    layer: ArrayLike, error: ArrayLike, speed: ArrayLike, lr: ArrayLike, sync_interval: ArrayLike
) -> Floats:
    """Longest time from entering the layer to the exit, in updates: (Delta_R + 2E)/(v eta) + S; the shortest is 0."""
    return (np.asarray(layer) + 2 * np.asarray(error)) / (np.asarray(speed) * np.asarray(lr)) + np.asarray(
        sync_interval
    )
