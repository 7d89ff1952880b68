"""Every function takes a million points at once and gives each the value it has alone."""

from __future__ import annotations

import numpy as np
import pytest

from collapse_laws.theory import adamw, bias, calibration, closure, exit_clock, group_channel, readout

POINTS = 1_000_000
RNG = np.random.default_rng(21)
UNIT = RNG.uniform(0.01, 0.99, POINTS)
GAIN = RNG.uniform(0.2, 6.0, POINTS)
RATE = RNG.uniform(5e-8, 1e-6, POINTS)
INTERVAL = RNG.integers(2, 65, POINTS)

FUNCTIONS = {
    "channel": (lambda q: group_channel.channel(q, 8, 1e-6, 1), UNIT),
    "channel_slope": (lambda q: group_channel.channel_slope(q, 8, 1e-6, 1), UNIT),
    "population_channel": (group_channel.population_channel, UNIT),
    "informative": (lambda q: group_channel.informative_probability(q, 8), UNIT),
    "sawtooth": (lambda s, lr: bias.bias_sawtooth(77, s, lr, 3.0, 1.3), INTERVAL, RATE),
    "gain": (lambda s, lr: closure.gain(30.0, s, lr, 1.0, 1e-4), INTERVAL, RATE),
    "boundary": (lambda s: closure.boundary_lr(s, 1.0, 30.0, 1.0, 1e-4), INTERVAL),
    "upper second_moment": (lambda g: closure.upper_fixed_point(g, closure.SECOND_MOMENT), GAIN),
    "upper sign": (lambda g: closure.upper_fixed_point(g, closure.SIGN), GAIN),
    "upper quadratic": (lambda g: closure.upper_fixed_point(g, closure.QUADRATIC), GAIN),
    "every lag": (lambda g: closure.every_lag_map(0.7, g, 8, closure.SIGN), GAIN),
    "speed": (lambda s: exit_clock.drift_speed(0.3, 1.0, s), UNIT),
    "noise radius": (lambda d: exit_clock.noise_radius(1e-9, d, 2.0), UNIT),
    "doob": (lambda d: exit_clock.noise_radius_moments(1e-9, d, 2.0), UNIT),
    "exit low": (lambda e: exit_clock.exit_budget_interval(1.0, 0.5, e, 1e-6)[0], UNIT),
    "non exit": (lambda lr, d: exit_clock.non_exit_updates(1.0, 0.1, lr, 1.0, d), RATE, UNIT),
    "adamw": (adamw.normalised_step_bound, INTERVAL),
    "update": (lambda t, w: adamw.update_bound(t, w, 2.0), INTERVAL, UNIT),
    "snr": (readout.snr_cosine, GAIN),
    "late": (lambda k, e: readout.late_cosine(k, e), GAIN, UNIT),
    "readout error": (lambda r, e: readout.readout_error(r, 0.1, e), UNIT, UNIT),
    "warning": (lambda s, lr: readout.warning_updates_max(0.1, 0.01, 1.0, lr, s), INTERVAL, RATE),
    "rule": (lambda s, lr: calibration.advise(s, lr, (1.6e-6, 3.2e-6), (3e-5, 3.2e-5)).regime, INTERVAL, RATE),
    "stable rate": (lambda s: calibration.largest_stable_lr(s, (1.6e-6, 3.2e-6)), INTERVAL),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_million_points(name):
    function, *arguments = FUNCTIONS[name]
    found = function(*arguments)
    assert found.shape == (POINTS,)
    assert np.isfinite(found).all()
    for at in RNG.integers(0, POINTS, 5):
        assert found[at] == pytest.approx(float(function(*(argument[at] for argument in arguments))), rel=1e-12)
