"""The AdamW bound against an AdamW written out here."""

from __future__ import annotations

import numpy as np
import pytest

from collapse_laws.theory.adamw import extremal_gradients, normalised_step_bound, normalised_step_limit, update_bound


def steps(gradients, beta1=0.9, beta2=0.999, eps=0.0):
    """The normalised step after each gradient, oldest first along the last axis."""
    m = v = 0.0
    found = []
    for t, gradient in enumerate(np.moveaxis(np.asarray(gradients, dtype=float), -1, 0), 1):
        m = beta1 * m + (1 - beta1) * gradient
        v = beta2 * v + (1 - beta2) * gradient**2
        found.append(m / (1 - beta1**t) / (np.sqrt(v / (1 - beta2**t)) + eps))
    return np.stack(found, axis=-1)


@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.9, 0.95), (0.5, 0.9), (0.0, 0.99)])
@pytest.mark.parametrize("t", [1, 2, 32, 320])
def test_attained_by_the_extremal_history(t, betas):
    gradients = np.maximum(extremal_gradients(t, *betas), 1e-9)  # 0 before the last one without momentum
    bound = float(normalised_step_bound(t, *betas))
    assert steps(gradients, *betas)[-1] == pytest.approx(bound, rel=1e-9)
    nudged = gradients.copy()
    nudged[t // 2] *= 1.3
    assert steps(nudged, *betas)[-1] <= bound * (1 + 1e-12)


@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.9, 0.95)])
def test_never_exceeded_by_random_histories(betas):
    rng, updates = np.random.default_rng(15), 320
    bound = normalised_step_bound(np.arange(1, updates + 1), *betas)
    histories = {
        "normal": rng.normal(size=(300, updates)),
        "heavy tails": rng.standard_cauchy(size=(300, updates)),
        "constant sign": np.abs(rng.normal(size=(300, updates))),
        "growing": np.abs(rng.normal(size=(300, updates))) * 1.02 ** np.arange(updates),
        "late": np.where(np.arange(updates) < rng.integers(1, updates, size=(300, 1)), 1e-6, 1.0),
    }
    for name, gradients in histories.items():
        found = np.abs(steps(gradients, *betas, eps=1e-8))
        assert (found <= bound * (1 + 1e-9)).all(), name


def test_a_growing_history_exceeds_any_bound_of_one():
    assert steps(extremal_gradients(32))[-1] > 1.3


def test_stated_numbers():
    assert normalised_step_bound([1, 32, 320]) == pytest.approx([1.0, 1.34, 3.81], abs=5e-3)
    assert normalised_step_limit() == pytest.approx(7.27, abs=5e-3)
    assert float(normalised_step_bound(10**6)) == pytest.approx(normalised_step_limit(), rel=1e-9)


def test_weight_decay_adds_its_largest_pull():
    rng, lr, decay = np.random.default_rng(16), 1e-3, 0.1
    theta = np.full(50, 3.0)
    m = v = np.zeros(50)
    for t in range(1, 101):
        gradient = rng.normal(size=50)
        m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
        moved = lr * (m / (1 - 0.9**t) / np.sqrt(v / (1 - 0.999**t)) + decay * theta)
        assert np.abs(moved).max() / lr <= float(update_bound(t, decay, np.abs(theta).max())) * (1 + 1e-12)
        theta = theta - moved
    assert update_bound(1, 0.1, 3.0) == pytest.approx(1.3)


@pytest.mark.parametrize("betas", [(1.0, 0.999), (0.9, 1.0), (0.9, 0.5), (-0.1, 0.9)])
def test_betas_without_a_bound(betas):
    for function in (normalised_step_bound, extremal_gradients):
        with pytest.raises(ValueError, match="betas"):
            function(3, *betas)
