"""The bias bound on a policy whose field is enumerated: independent Bernoulli actions, no importance weights."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from collapse_laws.theory.bias import bias_bound, bias_coefficient, bias_sawtooth, first_order_bias, lag_lr_budget, rms

D = 4
ACTIONS = np.array(list(product([0.0, 1.0], repeat=D)))
REWARD = np.random.default_rng(5).normal(size=len(ACTIONS))


def field(theta, phi):
    """H(theta, phi) = E_{z ~ p_phi}[reward(z) (z - sigmoid(theta))], exactly."""
    q = 1 / (1 + np.exp(-phi))
    chance = np.prod(np.where(ACTIONS == 1, q, 1 - q), axis=1)
    return chance @ (REWARD[:, None] * (ACTIONS - 1 / (1 + np.exp(-theta))))


def coefficient():
    """K here: no weights, |gradient| at most max|reward|, KL of Bernoullis at most 1/8 of the squared logit step."""
    return float(bias_coefficient(0.0, np.abs(REWARD).max(), D / 8))


def run(rates, sync_interval, u_max, rng):
    """Biases |delta_t| along a run whose normalised updates have RMS norm u_max; [updates]."""
    theta, found = rng.normal(size=D), []
    for t, rate in enumerate(rates):
        if t % sync_interval == 0:
            phi = theta.copy()
        found.append(rms(field(theta, phi) - field(theta, theta)))
        step = field(theta, phi) + 0.1 * rng.normal(size=D)
        theta = theta + rate * u_max * step / rms(step)
    return np.array(found)


@pytest.mark.parametrize("sync_interval", [1, 4, 7])
def test_bias_stays_below_the_sawtooth(sync_interval):
    rng, u_max = np.random.default_rng(2), 1.3
    t = np.arange(60)
    bound = bias_sawtooth(t, sync_interval, 0.02, coefficient(), u_max)
    for _ in range(20):
        found = run(np.full(60, 0.02), sync_interval, u_max, rng)
        assert (found <= bound + 1e-15).all()
        assert (found[::sync_interval] < 1e-15).all()
        assert (found[t % sync_interval > 0] > 0).all()
    assert bound == pytest.approx(bias_bound(coefficient(), np.full(60, 0.02), sync_interval, u_max))


def test_any_schedule():
    rng = np.random.default_rng(3)
    rates = rng.uniform(0, 0.05, size=40)
    expected = [sum(rates[t - t % 6 : t]) for t in range(40)]
    assert lag_lr_budget(rates, 6) == pytest.approx(expected, abs=1e-15)
    assert lag_lr_budget([], 6).size == 0
    for _ in range(20):
        assert (run(rates, 6, 1.0, rng) <= bias_bound(coefficient(), rates, 6, 1.0) + 1e-15).all()


def test_weights_alone_attain_their_part():
    """A field that depends on phi through its weights alone attains L_rho."""
    rng = np.random.default_rng(4)
    slope = 0.7  # weights 1 + slope * mean(theta - phi) on a gradient of RMS 1
    for _ in range(20):
        move = np.full(D, rng.normal())
        delta = np.ones(D) * slope * move.mean()
        assert rms(delta) == pytest.approx(bias_coefficient(slope, 1.0, 0.0) * rms(move))
    assert bias_coefficient(0.3, 2.0, 0.5) == pytest.approx(0.3 + 2.0)


def test_first_order_bias_is_off_by_a_second_order():
    rng = np.random.default_rng(6)
    theta, move = rng.normal(size=D), rng.normal(size=D)
    step = 1e-5
    response = -np.column_stack(
        [(field(theta, theta + step * axis) - field(theta, theta - step * axis)) / (2 * step) for axis in np.eye(D)]
    )
    errors = []
    for size in (0.02, 0.01):
        exact = field(theta, theta - size * move) - field(theta, theta)
        errors.append(rms(exact - first_order_bias(response, size * move)))
    assert errors[0] / errors[1] == pytest.approx(4.0, rel=0.1)
    assert errors[1] < 1e-3 * rms(first_order_bias(response, move))
    many = first_order_bias(np.stack([response] * 3), np.stack([move] * 3))
    assert many.shape == (3, D)


def test_rms_over_the_last_axis():
    vectors = np.random.default_rng(7).normal(size=(5, 9))
    assert rms(vectors) == pytest.approx([np.sqrt(sum(x * x for x in row) / 9) for row in vectors])
