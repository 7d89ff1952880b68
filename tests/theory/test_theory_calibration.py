"""The calibration rule against exact rational arithmetic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from collapse_laws.theory.calibration import COLLAPSE, STABLE, UNDECIDED, advise, factor, largest_stable_lr

RATES = ("1e-6", "8e-7", "7e-7", "5e-7", "2e-7", "1e-7", "8e-8", "5e-8")
BRACKET, BUDGET = ("2.56e-6", "3.2e-6"), ("2.88e-5", "3.2e-5")


@pytest.mark.parametrize("scale", ["S", "S-1"])
def test_rule_in_exact_arithmetic(scale):
    intervals = (1, 2, 4, 8, 16, 32, 64)
    bracket = [Fraction(end) / (1 if scale == "S" else 2) for end in BRACKET]
    given = (float(bracket[0]), float(bracket[1]))
    advice = advise(np.array(intervals)[:, None], [float(x) for x in RATES], given, tuple(map(float, BUDGET)), scale)
    assert advice.regime.shape == (7, 8)
    for i, interval in enumerate(intervals):
        for j, rate in enumerate(RATES):
            eta = Fraction(rate)
            product = eta * (interval if scale == "S" else Fraction(interval - 1, 2))
            expected = STABLE if product <= bracket[0] else COLLAPSE if product >= bracket[1] else UNDECIDED
            assert advice.regime[i, j] == expected, (interval, rate)
            if expected == STABLE:
                assert np.isnan(advice.collapse_low[i, j])
                assert np.isnan(advice.collapse_high[i, j])
            else:
                assert advice.collapse_low[i, j] == pytest.approx(float(Fraction(BUDGET[0]) / eta))
                assert advice.collapse_high[i, j] == pytest.approx(float(Fraction(BUDGET[1]) / eta))
            assert np.broadcast_to(advice.validate_updates, (7, 8))[i, j] == pytest.approx(
                float(2 * Fraction(BUDGET[1]) / eta)
            )
    assert {STABLE, UNDECIDED, COLLAPSE} == set(advice.regime.ravel().tolist())


def test_published_cells_come_out_as_published():
    """From S = 16 alone the rule tells the labels and, within the reading interval, the dates of S = 8 and 32."""
    advice = advise([8, 8, 8, 8, 32, 32, 32, 32], [1e-6, 5e-7, 2e-7, 1e-7] * 2, (1.6e-6, 3.2e-6), (2.88e-5, 3.2e-5))
    assert (advice.regime == [COLLAPSE, COLLAPSE, STABLE, STABLE, COLLAPSE, COLLAPSE, COLLAPSE, COLLAPSE]).all()
    assert advice.collapse_high[[0, 1, 4, 5, 6, 7]] == pytest.approx([32, 64, 32, 64, 160, 320])


def test_largest_stable_rate_is_the_last_one_called_stable():
    for scale in ("S", "S-1"):
        for interval in (2, 8, 32):
            edge = float(largest_stable_lr(interval, (1.6e-6, 3.2e-6), scale))
            regimes = advise(interval, [edge, edge * 1.001], (1.6e-6, 3.2e-6), (3e-5, 3.2e-5), scale).regime
            assert regimes.tolist() == [STABLE, UNDECIDED]
    assert np.isinf(largest_stable_lr(1, (1.6e-6, 3.2e-6), "S-1"))
    with pytest.raises(ValueError, match="allowed"):
        factor(8, "T")
