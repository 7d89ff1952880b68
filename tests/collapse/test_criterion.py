"""The collapse criterion: the features of the published runs, and an answer to every bad series."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import ruptures
from hypothesis import given
from hypothesis import strategies as st

from collapse_laws.changepoint import bayes, cusum, page_hinkley
from collapse_laws.collapse import LABELS, Criterion, Outcome, classify, sensitivity
from collapse_laws.errors import UserError

# rewards with the features described for S = 32: one earlier batch; improvement; a partial drop one batch before; a long climb
PUBLISHED = {
    1: ("1e-6", [0.41, 0.06, 0.03]),
    2: ("5e-7", [0.40, 0.52, 0.05, 0.02]),
    5: ("2e-7", [0.40, 0.46, 0.52, 0.55, 0.41, 0.08, 0.02]),
    10: ("1e-7", [0.40, 0.43, 0.46, 0.48, 0.50, 0.52, 0.53, 0.54, 0.55, 0.53, 0.12, 0.03]),
}


def label(reward, **given):
    given = {"sync_interval": 32, "n": np.full(len(reward), 1024), **given}
    return classify(reward, **given)


@pytest.mark.parametrize("index", PUBLISHED)
def test_collapse_index_of_the_published_series(index):
    lr, reward = PUBLISHED[index]
    outcome = label(reward, lr=float(lr), reference_lr_budget=3.2e-5)
    assert (outcome.label, outcome.collapse_index) == ("collapsed", index)
    assert outcome.collapse_step == 32 * index
    assert (outcome.onset_low, outcome.onset_high) == (32 * (index - 1), 32 * index)
    assert outcome.collapse_step * float(lr) == pytest.approx(3.2e-5)


def test_partial_drop_before_the_collapse_is_recorded_but_not_taken_for_it():
    outcome = label(PUBLISHED[5][1])
    assert (outcome.partial_drop_index, outcome.first_drop_index, outcome.collapse_index) == (
        4,
        5,
        5,
    )


@pytest.mark.parametrize("index", PUBLISHED)
def test_other_methods_date_the_same_batch(index):
    reward = PUBLISHED[index][1]
    assert cusum(reward) == index
    assert page_hinkley(reward) in (index - 1, index)  # the partial drop may be enough for it
    assert bayes(reward).position == index
    if len(reward) > 3:
        found = ruptures.Dynp(model="l2", min_size=1, jump=1).fit(np.array(reward)).predict(1)
        assert found[0] == index


def test_bayes_posterior_is_a_distribution_and_sees_no_change_in_a_rise():
    change = bayes(PUBLISHED[10][1])
    assert sum(change.posterior) == pytest.approx(change.probability)
    assert change.probability > 0.99
    assert bayes(np.linspace(0.3, 0.7, 40)).probability < 0.01


def test_bayes_evidence_equals_numerical_integration():
    reward = [0.5, 0.48, 0.1]
    odds = bayes(reward).posterior[2] / bayes(reward).posterior[1]
    x = np.minimum(1, np.array([1, 0.48 / 0.5, 0.1 / 0.5]))
    variance = np.exp(np.linspace(np.log(1e-5), np.log(50), 4001))
    prior = variance**-2 * np.exp(-0.005 / variance)  # inverse gamma, shape 1, scale 0.005

    def evidence(split: int) -> float:
        density = prior.copy()
        for part, mean, weight in ((x[:split], 1.0, 1.0), (x[split:], 0.2, 0.1)):
            k = len(part)
            cov = np.eye(k) + np.full((k, k), 1 / weight)
            d = part - mean
            quadratic = d @ np.linalg.solve(cov, d)
            density *= variance ** (-k / 2) * np.exp(-quadratic / (2 * variance)) / np.sqrt(np.linalg.det(cov))
        return np.trapezoid(density * variance, np.log(variance))

    assert odds == pytest.approx(evidence(2) / evidence(1), rel=1e-4)


def test_early_transient_of_a_stable_run_survives():
    reward = [0.40, 0.15, 0.38, *np.linspace(0.42, 0.65, 30)]
    outcome = label(reward, lr=1e-7, reference_lr_budget=3.2e-5, updates=640)
    assert outcome.label == "survived"
    assert outcome.recovered
    assert outcome.first_drop_index == 1
    assert outcome.collapse_index is None


def test_survival_needs_twice_the_reference():
    reward = list(np.linspace(0.4, 0.6, 20))
    given = {"lr": 1e-7, "reference_lr_budget": 3.2e-5}
    assert label(reward, updates=640, **given).label == "survived"
    assert label(reward, updates=639, **given).label == "undecided"
    assert label(reward, updates=640, lr=1e-7).label == "undecided"


@pytest.mark.parametrize(
    ("reward", "expected", "first", "index"),
    [  # measured series of runs that recover in part
        (
            [0.38, 0.57, 0.60, 0.68, 0.69, 0.10, 0.18, 0.07, 0.01, 0.03, 0.32, 0.2],
            "collapsed",
            5,
            5,
        ),
        ([0.38, 0.56, 0.64, 0.30, 0.05, 0.33, 0.77, 0.03, 0.0, 0.0, 0.0], "collapsed", 3, 7),
        ([0.4, 0.8, 0.1, 0.7, 0.82, 0.2, 0.75, 0.8], "oscillating", 2, None),
        ([0.4, 0.8, 0.1, 0.7, 0.82, 0.2], "oscillating", 2, None),
        ([0.4, 0.8, 0.1, 0.2, 0.7, 0.82, 0.2, 0.1, 0.05], "collapsed", 2, 6),
    ],
)
def test_drops_that_climb_back(reward, expected, first, index):
    outcome = label(reward)
    assert (outcome.label, outcome.first_drop_index, outcome.collapse_index) == (
        expected,
        first,
        index,
    )


def test_small_s_is_judged_on_windows_and_says_so():
    rng = np.random.default_rng(0)
    reward = np.clip(0.4 + 0.3 * rng.normal(size=160), 0, 1)  # eight noisy rollouts a batch
    reward[120:] = 0.02
    outcome = classify(reward, sync_interval=1, n=np.full(160, 8))
    assert (outcome.label, outcome.collapse_index) == ("collapsed", 120)
    assert outcome.window_snapshots == 8
    assert "averages over 8 batches" in outcome.reason
    assert outcome.onset_low == 112
    assert outcome.onset_high == 127


def test_noise_of_few_rollouts_is_no_drop():
    assert classify([0.5, 0.25, 0.2], sync_interval=8, n=[8, 8, 8]).label == "undecided"
    assert classify([0.5, 0.25, 0.2], sync_interval=8, n=[512] * 3).label == "collapsed"


def test_plus_minus_one_rewards_are_mapped():
    reward = np.array(PUBLISHED[5][1])
    mapped = label(2 * reward - 1)
    assert mapped.collapse_index == 5
    assert mapped.peak_reward == pytest.approx(0.55)
    forced = label(np.array([0.9, 0.2]), criterion=Criterion(reward_range=(-1.0, 1.0)))
    assert forced.start_reward == pytest.approx(0.95)


@pytest.mark.parametrize(
    ("reward", "given", "expected"),
    [
        ([0.4, np.nan, 0.5], {}, "failed"),
        ([0.4, 0.5, None], {}, "failed"),
        ([0.4, 0.05, 0.02, np.nan], {}, "collapsed"),
        ([0.4, 0.05, np.nan], {}, "failed"),
        ([], {"failed": True}, "failed"),
        ([np.nan], {}, "failed"),
        ([0.4], {}, "undecided"),
        ([0.0, 0.0, 0.0], {}, "no_signal"),
        ([0.01, 0.03, 0.02], {}, "no_signal"),
        ([0.4, 0.41, 0.4], {"degenerate_fraction": [0.99, 1.0, 0.97]}, "no_signal"),
        ([0.4, 0.05, 0.0, 0.0], {"degenerate_fraction": [0.1, 0.9, 1.0, 1.0]}, "collapsed"),
    ],
)
def test_series_without_a_usual_end(reward, given, expected):
    assert classify(reward, sync_interval=32, **given).label == expected


@pytest.mark.parametrize(
    ("reward", "given", "message"),
    [
        ([], {}, "empty"),
        ([0.4, 0.5], {"snapshot": [0, 0]}, "follows"),
        ([0.4, 0.5], {"snapshot": [1, 0]}, "follows"),
        ([0.4, 0.5], {"snapshot": [0]}, "one each"),
        ([0.4, 1.5], {}, "outside"),
        ([0.4, -3.0], {}, "outside"),
        ([0.4, "high"], {}, "not a number"),
        ([0.4], {"sync_interval": 0}, "sync_interval"),
    ],
)
def test_bad_input_is_one_sentence(reward, given, message):
    with pytest.raises(UserError, match=message) as caught:
        classify(reward, **{"sync_interval": 32, **given})
    assert "\n" not in str(caught.value)


def test_missing_snapshots_widen_the_interval():
    outcome = classify([0.4, 0.5, 0.03, 0.02], snapshot=[0, 1, 4, 5], sync_interval=32)
    assert (outcome.collapse_index, outcome.onset_low, outcome.onset_high) == (4, 32, 128)


def test_sensitivity_dates_the_partial_drop_at_a_lenient_threshold():
    rows = sensitivity(PUBLISHED[5][1], sync_interval=32)
    assert [row.collapse_index for row in rows] == [5, 5, 5, 4]
    assert [row.criterion["rho"] for row in rows] == [0.35, 0.5, 0.65, 0.8]


def test_outcome_goes_through_json():
    import json

    outcome = label([0.38, 0.64, 0.30, 0.05, 0.77, 0.03, 0.0, 0.0])
    again = Outcome.from_json(json.loads(json.dumps(outcome.to_json())))
    assert again.drops == outcome.drops
    assert again.collapse_index == outcome.collapse_index
    with pytest.raises(UserError, match="label"):
        Outcome.from_json({"label": "fine"})


@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=40),
    st.sampled_from([1, 2, 3, 8, 32]),
)
def test_every_series_has_one_label_and_scale_does_not_matter_to_shape(reward, sync_interval):
    outcome = classify(reward, sync_interval=sync_interval, lr=1e-6, reference_lr_budget=1e-6)
    assert outcome.label in LABELS
    assert (outcome.label == "collapsed") == (outcome.collapse_index is not None)
    if outcome.collapse_index is not None:
        assert outcome.onset_low < outcome.collapse_step <= outcome.onset_high
    strict = classify(
        reward,
        sync_interval=sync_interval,
        criterion=dataclasses.replace(Criterion(), min_drop=1.0, z=0.0, rho=0.01),
    )
    assert strict.first_drop_index is None or min(reward) == 0
