"""avg@k, its intervals, and pass@k against closed forms."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.stats import binomtest

from collapse_laws import scores


@pytest.mark.parametrize(("right", "n"), [(0, 40), (1, 40), (20, 40), (40, 40), (431, 5000)])
def test_wilson_is_scipys(right: int, n: int) -> None:
    expected = binomtest(right, n).proportion_ci(scores.CONFIDENCE, "wilson")
    assert scores.wilson(right / n, n) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_one_sample_gives_wilson_and_more_a_bootstrap() -> None:
    rng = np.random.default_rng(1)
    ability = rng.random(200)
    one = scores.score((rng.random((200, 1)) < ability[:, None]).astype(int))
    right = (rng.random((200, 8)) < ability[:, None]).astype(int)
    eight = scores.score(right)
    assert (one.method, eight.method) == ("wilson", "bootstrap")
    assert eight.mean == right.mean()
    normal = 1.96 * right.mean(axis=1).std(ddof=1) / np.sqrt(200)
    assert (eight.high - eight.low) / 2 == pytest.approx(normal, rel=0.1)
    assert scores.score(right) == eight


def test_no_interval_is_a_point() -> None:
    nothing = scores.score(np.zeros((40, 8)))
    assert (nothing.mean, nothing.low) == (0.0, 0.0)
    assert nothing.high > 0.08
    with pytest.raises(ValueError, match="not empty"):
        scores.score(np.zeros((0, 1)))


def test_pass_at_k_is_the_mean_over_all_subsets() -> None:
    right = np.array([[1, 0, 0, 0, 1, 0], [0, 0, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1], [0, 1, 0, 0, 0, 0]])
    found = scores.pass_at_k(right)
    assert list(found) == [1, 2, 4, 6]
    for k, value in found.items():
        subsets = list(itertools.combinations(range(6), k))
        expected = np.mean([[row[list(s)].max() for s in subsets] for row in right])
        assert value == pytest.approx(expected)


def test_groups() -> None:
    right = np.array([[1], [0], [1], [1]])
    grouped = scores.by_group(right, ["b", "b", "a", None])
    assert {name: (s.problems, s.mean) for name, s in grouped.items()} == {
        "a": (1, 1.0),
        "b": (2, 0.5),
    }
