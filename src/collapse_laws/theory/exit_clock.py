"""Snapshot exit: when persistent drift leaves the region where the surrogate is reliable (Section 3.3, Theorem 1; A.5,
A.8).

v = sqrt(f) u s+ is the drift speed per unit of cumulative learning rate, R the radius of the region and tau the first
synchronisation outside it. With Lambda_t = sum eta, V_T = sum eta^2, h_S the largest sum of eta in one cycle, noise
radius q_T and E = a + eps Lambda_T + q_T: with probability at least 1 - delta, R - E <= v Lambda_tau <= R + E + v h_S
[derived]. To leading order c2 = R/v.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Schedule:
    """Sums of a learning-rate schedule over a whole number of cycles."""

    total: float  # Lambda_T, sum of eta
    squares: float  # V_T, sum of eta^2
    cycle_max: float  # h_S, largest sum of eta in a cycle


def schedule(lr: ArrayLike, sync_interval: int) -> Schedule:
    """The sums of `lr`, shape [T]; ValueError unless S divides T and all rates are at least 0."""
    rates = np.asarray(lr, dtype=float)
    if rates.size % sync_interval or rates.size == 0:
        raise ValueError(f"{rates.size} updates are not a whole number of cycles of {sync_interval}")
    if (rates < 0).any():
        raise ValueError("learning rates must be at least 0")
    cycles = rates.reshape(-1, sync_interval).sum(axis=1)
    return Schedule(float(rates.sum()), float(np.square(rates).sum()), float(cycles.max()))


def drift_speed(fraction: ArrayLike, step: ArrayLike, coherence: ArrayLike) -> Floats:
    """v = sqrt(f) u s+, RMS displacement per unit of cumulative learning rate. All arguments broadcast."""
    return np.sqrt(np.asarray(fraction, dtype=float)) * np.asarray(step) * np.asarray(coherence)


def lr_budget(radius: ArrayLike, speed: ArrayLike) -> Floats:
    """The clock c2 = R/v, in units of cumulative learning rate."""
    return np.asarray(radius, dtype=float) / np.asarray(speed)


def noise_radius(squares: ArrayLike, delta: ArrayLike, noise_bound: ArrayLike) -> Floats:
    """q_T = sigma_u sqrt(2 V_T log(2/delta)), uniform over t <= T with probability 1 - delta.

    `noise_bound` is sigma_u >= |u_t - a_t|; 2 U_max needs no further knowledge. All arguments broadcast.
    """
    return np.asarray(noise_bound) * np.sqrt(2 * np.asarray(squares) * np.log(2 / np.asarray(delta)))


def noise_radius_moments(squares: ArrayLike, delta: ArrayLike, noise_rms: ArrayLike) -> Floats:
    """sigma_u sqrt(V_T/delta) by Doob's inequality, where only E|u_t - a_t|^2 <= sigma_u^2 is known (A.8)."""
    return np.asarray(noise_rms) * np.sqrt(np.asarray(squares) / np.asarray(delta))


def exit_budget_interval(
    radius: ArrayLike,
    speed: ArrayLike,
    error: ArrayLike,
    cycle_max: ArrayLike,
) -> tuple[Floats, Floats]:
    """The interval that holds Lambda_tau with probability 1 - delta: ((R-E)/v, (R+E)/v + h_S).

    `error` is E = a + eps Lambda_T + q_T. The upper end speaks of exits within T only: it must not exceed Lambda_T.
    All arguments broadcast.
    """
    radius, speed, error = (np.asarray(value, dtype=float) for value in (radius, speed, error))
    return np.maximum(radius - error, 0.0) / speed, (radius + error) / speed + np.asarray(cycle_max)


def non_exit_updates(radius: ArrayLike, drift: ArrayLike, lr: ArrayLike, u_max: ArrayLike, delta: ArrayLike) -> Floats:
    """Updates T below which a run whose mean drift stays within a_0 < R does not exit, with probability 1 - delta.

    Corollary 1: T < (R - a_0)^2 / (8 U_max^2 eta^2 log(2/delta)); it grows as eta^-2, not eta^-1. All arguments
    broadcast; 0 where a_0 >= R.
    """
    margin = np.maximum(np.asarray(radius, dtype=float) - np.asarray(drift), 0.0)
    return margin**2 / (8 * np.square(u_max) * np.square(lr) * np.log(2 / np.asarray(delta)))
