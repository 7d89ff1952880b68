"""Lag, snapshot and collapse step: off-by-one checks."""

from __future__ import annotations

import numpy as np
import pytest

from collapse_laws.protocol import (
    FRAMEWORK_KNOBS,
    LagError,
    check_realised_lag,
    collapse_step,
    lag,
    mean_lag,
    onset_interval,
    snapshot_index,
)
from collapse_laws.stopping import stays_down


@pytest.mark.parametrize("S", [1, 2, 7, 32])
def test_lag_and_snapshot(S):
    lags = [lag(t, S) for t in range(3 * S)]
    assert max(lags) == S - 1
    assert np.mean(lags) == mean_lag(S)
    for t in range(3 * S):
        assert snapshot_index(t, S) * S + lag(t, S) == t


def test_the_papers_first_cell():
    """S=32, eta=1e-6: M=1, t_obs=32, so the onset lies in (0, 32]."""
    assert collapse_step(1, 32) == 32
    assert onset_interval(1, 32) == (0, 32)
    assert mean_lag(32) * 8e-8 == pytest.approx(1.24e-6)


def test_realised_lag():
    t = np.arange(12)
    check_realised_lag(t, t // 4, 4)
    with pytest.raises(LagError, match="update 4 learned from snapshot 0"):
        check_realised_lag(t, np.maximum(t // 4 - 1, 0), 4)
    assert any(knob.exact for knob in FRAMEWORK_KNOBS)


@pytest.mark.parametrize(
    ("rewards", "stop"),
    [
        ([0.4, 0.8, 0.1, 0.1, 0.1, 0.1], True),
        ([0.4, 0.8, 0.1, 0.1, 0.1], False),  # not long enough
        ([0.4, 0.8, 0.1, 0.5, 0.1, 0.1], False),  # climbed back
        ([0.1, 0.1, 0.1, 0.1, 0.1, 0.1], False),  # never rose
        ([0.04, 0.0, 0.0, 0.0, 0.0, 0.0], False),  # too little to lose
        ([0.4], False),
    ],
)
def test_stopping(rewards, stop):
    assert stays_down(rewards, 1e-3, 8, 4, 0.0) is stop


def test_stopping_waits_for_its_budget():
    down = [0.8] + [0.1] * 5
    assert stays_down(down, 1e-3, 8, 4, 0.032)
    assert not stays_down(down, 1e-3, 8, 4, 0.048)
