"""The exit clock on simulated exit processes: its interval covers, and bounds that were tighter would not."""

from __future__ import annotations

import numpy as np
import pytest

from collapse_laws.theory.exit_clock import (
    drift_speed,
    exit_budget_interval,
    lr_budget,
    noise_radius,
    noise_radius_moments,
    non_exit_updates,
    schedule,
)

RUNS = 3000


def exits(rates, sync_interval, speed, radius, noise):
    """Lambda at the first synchronisation outside the radius, NaN where there is none; `noise` is [runs, updates]."""
    position = np.cumsum(rates * (speed + noise), axis=1)[:, sync_interval - 1 :: sync_interval]
    budget = np.cumsum(rates)[sync_interval - 1 :: sync_interval]
    outside = np.abs(position) >= radius
    return np.where(outside.any(axis=1), budget[np.argmax(outside, axis=1)], np.nan)


@pytest.mark.parametrize("delta", [0.05, 0.5])
@pytest.mark.parametrize("shape", ["constant", "decaying"])
def test_interval_covers_with_probability_1_minus_delta(delta, shape):
    """Bounded martingale noise; the bias eps pushes outwards in half of the runs and back in the others."""
    rng, sync_interval, updates = np.random.default_rng(8), 8, 1600
    rates = np.full(updates, 1e-3) * (1 if shape == "constant" else np.linspace(1.5, 0.5, updates))
    speed, radius, eps, noise_bound = 1.0, 0.8, 0.05, 1.5
    noise = noise_bound * rng.choice([-1.0, 1.0], size=(RUNS, updates))
    noise[: RUNS // 2] += eps
    noise[RUNS // 2 :] -= eps
    found = exits(rates, sync_interval, speed, radius, noise)
    sums = schedule(rates, sync_interval)

    def covered(shrink):
        error = eps * sums.total + shrink * noise_radius(sums.squares, delta, noise_bound)
        low, high = exit_budget_interval(radius, speed, error, sums.cycle_max)
        assert high <= sums.total  # the theorem speaks of exits within the horizon
        return np.mean((low <= found) & (found <= high))

    assert covered(1.0) >= 1 - delta
    assert low_without_bias(rates, noise, radius, speed, sums) < 1 - delta


def low_without_bias(rates, noise, radius, speed, sums):
    """Coverage of an interval that leaves bias and noise out: what the error term is for."""
    low, high = exit_budget_interval(radius, speed, 0.0, sums.cycle_max)
    found = exits(rates, 8, speed, radius, noise)
    return np.mean((low <= found) & (found <= high))


def test_noise_in_many_coordinates():
    """The radius does not grow with the number of coordinates when norms are RMS."""
    rng, d, updates, delta = np.random.default_rng(9), 16, 300, 0.1
    rates = np.full(updates, 1e-2)
    direction = rng.normal(size=(800, updates, d))
    direction /= np.sqrt(np.mean(direction**2, axis=-1, keepdims=True))
    walk = np.cumsum(rates[None, :, None] * direction, axis=1)
    largest = np.sqrt(np.mean(walk**2, axis=-1)).max(axis=1)
    assert np.mean(largest > noise_radius(np.sum(rates**2), delta, 1.0)) <= delta


def test_noise_radius_is_of_the_right_size():
    """A fair walk leaves a third of the radius more often than delta, the radius itself less often."""
    rng, updates, delta = np.random.default_rng(10), 1000, 0.05
    walk = np.abs(np.cumsum(rng.choice([-1.0, 1.0], size=(RUNS, updates)), axis=1)).max(axis=1)
    radius = noise_radius(updates, delta, 1.0)
    assert np.mean(walk > radius) <= delta < np.mean(walk > radius / 3)


def test_moments_suffice_for_doob():
    rng, updates, delta = np.random.default_rng(11), 400, 0.1
    steps = rng.standard_t(3, size=(RUNS, updates)) / np.sqrt(3)  # unit variance, no bound
    walk = np.abs(np.cumsum(steps, axis=1)).max(axis=1)
    assert np.mean(walk > noise_radius_moments(updates, delta, 1.0)) <= delta
    assert np.mean(walk > noise_radius_moments(updates, 1.0, 1.0) / 2) > delta


def test_noiseless_exit_is_at_c2():
    for sync_interval, lr in ((8, 1e-3), (32, 1e-3), (16, 2.5e-4)):
        rates = np.full(sync_interval * (8000 // sync_interval), lr)
        found = exits(rates, sync_interval, 2.0, 1.0, np.zeros((1, rates.size)))[0]
        low, high = exit_budget_interval(1.0, 2.0, 0.0, schedule(rates, sync_interval).cycle_max)
        assert low == lr_budget(1.0, 2.0)
        assert low * (1 - 1e-9) <= found <= high * (1 + 1e-9)
        assert found > low * 1.001 or sync_interval == 8  # at S = 32 only the cycle's own length explains the delay


def test_drift_speed_is_the_rms_displacement_of_a_coherent_block():
    rng, d, fraction = np.random.default_rng(12), 4000, 0.25
    step, coherence = 0.7, 0.4
    signs = np.where(rng.random(d) < 0.5, -1.0, 1.0) * (np.arange(d) < fraction * d)
    moved = np.sqrt(np.mean((0.03 * step * coherence * signs) ** 2))
    assert drift_speed(fraction, step, coherence) * 0.03 == pytest.approx(moved)


@pytest.mark.parametrize("drift", [0.0, 0.3])
def test_no_exit_before_the_bound(drift):
    """A mean that never leaves `drift`, and the worst noise that the corollary allows: of size 2 U_max."""
    rng, radius, lr, u_max, delta = np.random.default_rng(13), 1.0, 0.01, 0.5, 0.1
    longest = float(non_exit_updates(radius, drift, lr, u_max, delta))
    steps = 2 * u_max * rng.choice([-1.0, 1.0], size=(RUNS, 8 * int(longest)))
    walk = np.abs(drift + np.cumsum(lr * steps, axis=1))
    assert np.mean((walk[:, : int(longest)] >= radius).any(axis=1)) <= delta
    assert np.mean((walk >= radius).any(axis=1)) > delta  # eight times as long is too long


def test_non_exit_time_grows_as_the_inverse_square_of_the_rate():
    assert non_exit_updates(1.0, 0.2, 1e-7, 1.0, 0.1) == pytest.approx(4 * non_exit_updates(1.0, 0.2, 2e-7, 1.0, 0.1))
    assert non_exit_updates(1.0, 1.2, 1e-7, 1.0, 0.1) == 0


def test_schedule_sums():
    rates = np.random.default_rng(14).random(24)
    found = schedule(rates, 6)
    assert found.total == pytest.approx(sum(rates))
    assert found.squares == pytest.approx(sum(x * x for x in rates))
    assert found.cycle_max == pytest.approx(max(sum(rates[k : k + 6]) for k in range(0, 24, 6)))
    for wrong in (np.ones(7), np.array([])):
        with pytest.raises(ValueError, match="whole number of cycles"):
            schedule(wrong, 6)
    with pytest.raises(ValueError, match="at least 0"):
        schedule(np.full(6, -1.0), 6)
