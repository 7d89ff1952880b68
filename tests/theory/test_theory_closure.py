"""Fixed points and thresholds of the closure, by iterating the map itself."""

from __future__ import annotations

import math

import numpy as np
import pytest

from collapse_laws.theory.closure import (
    QUADRATIC,
    RESPONSES,
    SECOND_MOMENT,
    boundary_lr,
    every_lag_fixed_point,
    every_lag_map,
    gain,
    iterate,
    upper_fixed_point,
)

ALL = list(RESPONSES.values())
PLAIN = {  # the responses again, in plain Python
    "second_moment": lambda r: r / math.sqrt(1 + r * r),
    "sign": lambda r: math.erf(r / math.sqrt(2)),
    "quadratic": lambda r: r * r / (1 + r * r),
}


def settle(function, start=1.0, steps=20_000):
    s = start
    for _ in range(steps):
        s = function(s)
    return s


@pytest.mark.parametrize("response", ALL, ids=lambda r: r.name)
def test_thresholds_and_slopes(response):
    r = np.geomspace(1e-6, 50, 400_001)
    assert response.phi(np.array(0.0)) == 0
    assert response.critical_gain == pytest.approx((r / response.phi(r)).min(), rel=1e-6)
    slope_at_zero = float(response.phi(np.array(1e-7)) / 1e-7)
    assert 1 / response.linear_gain == pytest.approx(slope_at_zero, abs=1e-6)
    points = np.linspace(0.05, 4, 40)
    difference = (response.phi(points + 1e-6) - response.phi(points - 1e-6)) / 2e-6
    assert response.slope(points) == pytest.approx(difference, abs=1e-8)
    assert response.discontinuous == (response.name == "quadratic")
    assert response.phi(points) == pytest.approx([PLAIN[response.name](x) for x in points], rel=1e-12)


@pytest.mark.parametrize("response", ALL, ids=lambda r: r.name)
def test_upper_fixed_point_is_where_the_map_settles(response):
    plain = PLAIN[response.name]
    for factor in (0.5, 0.97, 1.02, 1.3, 3.0, 20.0):
        gamma = factor * response.critical_gain
        settled = settle(lambda s, gamma=gamma: plain(gamma * s))
        assert float(upper_fixed_point(gamma, response)) == pytest.approx(settled, abs=1e-6), factor
        assert (settled > 1e-6) == (factor > 1)


def test_closed_forms():
    gamma = np.array([1.0, 1.1, 2.0, 30.0])
    assert upper_fixed_point(gamma, SECOND_MOMENT) == pytest.approx(np.sqrt(1 - 1 / gamma**2), abs=1e-6)
    gamma = np.array([2.0, 2.5, 10.0])
    assert upper_fixed_point(gamma, QUADRATIC) == pytest.approx((gamma + np.sqrt(gamma**2 - 4)) / (2 * gamma), abs=1e-6)


def test_discontinuous_onset_jumps_and_remembers():
    """At the threshold s+ is already 1/2, and a small start stays at 0: the branch must be kicked onto."""
    assert float(upper_fixed_point(2.0, QUADRATIC)) == pytest.approx(0.5, abs=1e-6)
    assert float(upper_fixed_point(2.0 - 1e-9, QUADRATIC)) == 0
    low, high = iterate([0.01, 1.0], 2.2, np.zeros(500), QUADRATIC)[-1]
    assert low < 1e-12
    assert high == pytest.approx(float(upper_fixed_point(2.2, QUADRATIC)))
    kicked = iterate(0.0, 2.2, np.r_[np.full(5, 1.5), np.zeros(500)], QUADRATIC)[-1]
    assert kicked == pytest.approx(high)


def test_path_of_the_iteration():
    path = iterate(0.2, 1.7, [0.3, 0.0, -0.1], SECOND_MOMENT)
    s, expected = 0.2, [0.2]
    for rho in (0.3, 0.0, -0.1):
        s = PLAIN["second_moment"](1.7 * s + rho)
        expected.append(s)
    assert path == pytest.approx(expected)
    assert iterate([0.1, 0.2], 1.7, np.zeros(3), SECOND_MOMENT).shape == (4, 2)


def test_boundary_is_where_the_gain_is_critical():
    interval = np.array([2, 8, 16, 32])
    for response in ALL:
        lr = boundary_lr(interval, response.critical_gain, 30.0, 0.8, 1e-4)
        assert gain(30.0, interval, lr, 0.8, 1e-4) == pytest.approx(response.critical_gain)
        assert lr * (interval - 1) == pytest.approx(lr[0])
        above = gain(30.0, interval, 1.01 * lr, 0.8, 1e-4)
        below = gain(30.0, interval, 0.99 * lr, 0.8, 1e-4)
        assert (upper_fixed_point(above, response) > 0).all()
        assert (upper_fixed_point(below, response) == 0).all()
    assert np.isinf(boundary_lr(1, 1.0, 30.0, 0.8, 1e-4))
    assert gain(2.0, 9, 0.5, 3.0, 6.0) == pytest.approx(2.0 * 4 * 0.5 * 3 / 6)


@pytest.mark.parametrize("response", ALL, ids=lambda r: r.name)
@pytest.mark.parametrize("sync_interval", [2, 8, 32])
def test_every_lag_retained(response, sync_interval):
    plain = PLAIN[response.name]

    def mean_map(s, unit):
        return math.fsum(plain(lag * unit * s) for lag in range(sync_interval)) / sync_interval

    mean_lag = (sync_interval - 1) / 2
    ceiling = (sync_interval - 1) / sync_interval
    for factor in (0.5, 1.6, 4.0, 300.0):
        unit = factor * response.critical_gain / mean_lag
        assert float(every_lag_map(0.4, unit, sync_interval, response)) == pytest.approx(mean_map(0.4, unit))
        settled = settle(lambda s, unit=unit: mean_map(s, unit), steps=400)
        found = float(every_lag_fixed_point(unit, sync_interval, response))
        assert found == pytest.approx(settled, abs=1e-9)
        assert found <= ceiling
    assert found == pytest.approx(ceiling, rel=0.02)  # at a large gain: the clock is longer by S/(S-1)
