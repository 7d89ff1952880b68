"""The finite-group channel against real groups: enumerated, and drawn at random."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from collapse_laws.theory.group_channel import channel, channel_slope, informative_probability, population_channel

EPS = 1e-2


def update_of_groups(rewards, eps, ddof):
    """Mean over a group of advantage times score, where the score of a Bernoulli logit is reward less q; [groups]."""
    deviation = rewards.std(axis=1, ddof=ddof)
    advantage = (rewards - rewards.mean(axis=1, keepdims=True)) / (deviation + eps)[:, None]
    return (advantage * rewards).mean(axis=1)  # the advantages of a group sum to 0, so q drops out


@pytest.mark.parametrize("ddof", [0, 1])
@pytest.mark.parametrize("group_size", [2, 3, 4, 8])
def test_every_group_enumerated(group_size, ddof):
    groups = np.array(list(product([0.0, 1.0], repeat=group_size)))
    for q in (0.02, 0.3, 0.5, 0.9):
        probability = np.prod(np.where(groups == 1, q, 1 - q), axis=1)
        expected = probability @ update_of_groups(groups, EPS, ddof) / (q * (1 - q))
        assert channel(q, group_size, EPS, ddof) == pytest.approx(expected, rel=1e-12)
        informative = probability @ (groups.std(axis=1) > 0)
        assert informative_probability(q, group_size) == pytest.approx(informative, rel=1e-12)


@pytest.mark.parametrize(("ddof", "other"), [(0, 1), (1, 0)])
def test_groups_drawn_at_random(ddof, other):
    rng = np.random.default_rng(1)
    for group_size, q in ((8, 0.1), (16, 0.6)):
        updates = update_of_groups((rng.random((200_000, group_size)) < q).astype(float), EPS, ddof) / (q * (1 - q))
        error = updates.std() / np.sqrt(updates.size)
        assert abs(updates.mean() - channel(q, group_size, EPS, ddof)) < 4 * error
        assert abs(updates.mean() - channel(q, group_size, EPS, other)) > 8 * error


def test_stated_values():
    q = np.linspace(0.05, 0.95, 7)
    for eps in (0.0, 0.1):
        assert channel(q, 2, eps) == pytest.approx(1 / (1 + 2 * eps))
        assert channel(q, 3, eps) == pytest.approx(2 / (np.sqrt(2) + 3 * eps))
        assert channel(q, 2, eps, ddof=1) == pytest.approx(1 / (np.sqrt(2) + 2 * eps))
        assert channel(q, 3, eps, ddof=1) == pytest.approx(2 / (np.sqrt(3) + 3 * eps))


@pytest.mark.parametrize("ddof", [0, 1])
@pytest.mark.parametrize("group_size", [2, 3, 4, 8, 16])
def test_slope_is_the_derivative_and_reinforces_below_one_half(group_size, ddof):
    q, step = np.linspace(0.01, 0.99, 99), 1e-5
    difference = (channel(q + step, group_size, EPS, ddof) - channel(q - step, group_size, EPS, ddof)) / (2 * step)
    slope = channel_slope(q, group_size, EPS, ddof)
    assert slope == pytest.approx(difference, abs=1e-6)
    if group_size >= 4:
        assert (slope[q < 0.499] < 0).all()
        assert (slope[q > 0.501] > 0).all()


def test_ends_are_finite_and_large_groups_reach_the_limit():
    assert np.isfinite(channel([0.0, 1.0], 8)).all()
    assert channel(0.0, 8) == pytest.approx(channel(1e-9, 8))
    gaps = [abs(channel(0.3, size, EPS) / population_channel(0.3, EPS) - 1) for size in (32, 128, 512)]
    assert gaps[2] < gaps[1] < gaps[0]
    assert gaps[2] < 5e-3


def test_exact_importance_weights_leave_no_bias():
    """Without normalisation the weighted stale field equals the fresh one; with it, or without weights, it does not."""
    groups = np.array(list(product([0.0, 1.0], repeat=4)))
    theta, phi = 0.4, 0.55  # success probabilities of the learner and of the behaviour policy
    chance = {q: np.prod(np.where(groups == 1, q, 1 - q), axis=1) for q in (theta, phi)}
    ratio = np.where(groups == 1, theta / phi, (1 - theta) / (1 - phi))
    score = groups - theta
    fresh = chance[theta] @ (groups * score).mean(axis=1)
    assert chance[phi] @ (ratio * groups * score).mean(axis=1) == pytest.approx(fresh, rel=1e-12)
    deviation = groups.std(axis=1, keepdims=True) + EPS
    advantage = (groups - groups.mean(axis=1, keepdims=True)) / deviation
    normalised = chance[theta] @ (advantage * score).mean(axis=1)
    assert normalised == pytest.approx(float(channel(theta, 4, EPS)) * theta * (1 - theta), rel=1e-12)
    stale = chance[phi] @ (ratio * advantage * score).mean(axis=1)
    assert abs(stale - normalised) > 5e-4


def test_arguments():
    with pytest.raises(ValueError, match="at least 2"):
        channel(0.5, 1)
    with pytest.raises(ValueError, match="0 or 1"):
        channel_slope(0.5, 4, ddof=2)
