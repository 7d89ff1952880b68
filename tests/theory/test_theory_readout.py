"""The cosine readout on drawn gradients, and the warning time on simulated exits."""

from __future__ import annotations

import numpy as np
import pytest

from collapse_laws.theory.readout import (
    block_snr,
    cosine,
    late_cosine,
    readout_error,
    signal_fraction,
    snr_cosine,
    warning_updates_max,
)


def draw(rng, mean, spread, runs):
    return mean + spread * rng.normal(size=(runs, mean.size))


def test_cosine_of_drawn_gradients_is_near_the_signal_fraction():
    rng, d = np.random.default_rng(17), 4000
    mean = rng.normal(size=d)
    for turn, spread, other in ((0.0, 2.0, 2.0), (0.8, 1.0, 3.0), (np.pi / 2, 1.0, 1.0)):
        side = rng.normal(size=d)
        side -= side @ mean / (mean @ mean) * mean
        next_mean = np.cos(turn) * mean + np.sin(turn) * side
        current, previous = draw(rng, next_mean, spread, 400), draw(rng, mean, other, 400)
        r = float(signal_fraction(next_mean, mean, spread**2 * d, other**2 * d))
        found = cosine(current, previous)
        assert found.mean() == pytest.approx(r, abs=4 / np.sqrt(400 * d) + 2 / d)
        scale = np.sqrt((next_mean @ next_mean + spread**2 * d) * (mean @ mean + other**2 * d))
        inner = np.abs(np.sum(current * previous, axis=1) - next_mean @ mean) / scale
        norms = np.abs(np.linalg.norm(current, axis=1) * np.linalg.norm(previous, axis=1) / scale - 1)
        assert (np.abs(found - r) <= readout_error(r, inner, norms) + 1e-12).all()


def test_readout_error_is_attained_and_has_no_bound_from_one_on():
    r, inner, norm = 0.4, 0.05, 0.2
    worst = (r + inner) / (1 - norm) - r  # inner product too large by e_I, norms too small by e_N
    assert readout_error(r, inner, norm) == pytest.approx(worst)
    assert np.isinf(readout_error(r, inner, [1.0, 2.0])).all()


def test_slowly_varying_mean():
    rng, d = np.random.default_rng(18), 3000
    for snr in (0.05, 1.0, 9.0):
        mean = np.full(d, np.sqrt(snr))
        found = cosine(draw(rng, mean, 1.0, 300), draw(rng, mean, 1.0, 300)).mean()
        assert found == pytest.approx(float(snr_cosine(snr)), abs=0.01)


def test_blocks_mask_a_coherent_one():
    """Two blocks: raw noise energies and signal-to-noise of each give the SNR of the whole gradient."""
    sizes, spread, strength = np.array([900, 100]), np.array([2.0, 0.5]), np.array([0.1, 3.0])
    noise = sizes * spread**2
    signal = sizes * (strength * spread) ** 2
    assert block_snr(noise / noise.sum(), strength) == pytest.approx(signal.sum() / noise.sum())
    assert block_snr([1e-6, 1 - 1e-6], [10.0, 0.0]) == pytest.approx(1e-4)
    assert float(snr_cosine(1e-4)) == pytest.approx(1e-4, rel=1e-3)


def test_cosine_is_never_zero_by_default_and_ignores_clipping():
    gradient = np.array([3.0, 4.0])
    assert cosine(gradient, [4.0, 3.0]) == pytest.approx(24 / 25)
    assert cosine(1e-3 * gradient, [4.0, 3.0]) == pytest.approx(24 / 25)
    for broken in ([0.0, 0.0], [np.nan, 1.0], [np.inf, 1.0]):
        assert np.isnan(cosine(broken, gradient))
    assert cosine(np.ones((5, 7, 2)), gradient).shape == (5, 7)


def test_late_layer_lies_above_its_bound():
    rng, d, kappa = np.random.default_rng(19), 2000, 1.5
    for snr in (kappa**2, 4 * kappa**2):
        mean = np.full(d, np.sqrt(snr))
        found = cosine(draw(rng, mean, 1.0, 300), draw(rng, mean, 1.0, 300))
        assert np.mean(found >= late_cosine(kappa, 0.03)) > 0.99
    assert late_cosine(kappa, 0.0) == pytest.approx(kappa**2 / (1 + kappa**2))


@pytest.mark.parametrize("sync_interval", [4, 32])
def test_warning_time(sync_interval):
    """From the layer's edge to the first synchronisation outside, with an error E that pushes either way."""
    rng, radius, layer, speed, lr = np.random.default_rng(20), 1.0, 0.2, 0.8, 1e-3
    longest, found = 0, []
    for error in (0.0, 0.03, 0.1):
        bound = float(warning_updates_max(layer, error, speed, lr, sync_interval))
        for _ in range(200):
            t = np.arange(1, 3001)
            offset = np.linspace(rng.uniform(-error, error), rng.uniform(-error, error), t.size)
            radius_now = speed * lr * t + offset
            edge = int(t[radius_now >= radius - layer][0])
            synced = t % sync_interval == 0
            warned = int(t[synced & (radius_now >= radius)][0]) - edge
            assert 0 <= warned <= bound + 1
            found.append(warned / bound)
            longest = max(longest, warned)
    assert max(found) > 0.8
    assert longest > layer / (speed * lr)
