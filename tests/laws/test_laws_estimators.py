"""Boundary and clock on data with known answers, and their sets against independent computations."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import norm
from scipy.stats import t as student_t

from collapse_laws.errors import UserError
from collapse_laws.laws.aft import fit_aft
from collapse_laws.laws.boundary import fit_boundary
from collapse_laws.laws.clock import fit_clock
from collapse_laws.laws.observation import HOLDS, NOT_DECIDED, REFUTED, Observation
from collapse_laws.laws.probit import _Model, fit_probit
from collapse_laws.laws.profile import drop_allowed
from collapse_laws.laws.validation import DESIGNS, Design, check_study, simulate_study, summarise, validate
from collapse_laws.theory.simulator import Truth, simulate_run

FINE = tuple(2e-7 * 1.1**k for k in range(-20, 24))


def sharp(alpha=1.0, offset=0, intervals=(2, 4, 8, 16, 32), seeds=1):
    """Runs with a sharp boundary eta = 2.4e-6 (16/x)^alpha / 16, x = S - offset, and onsets at t = 3.2e-5/eta."""
    runs = []
    for s in intervals:
        for eta in FINE:
            for seed in range(seeds):
                high = s * int(np.ceil(3.2e-5 / eta / s))
                bad = eta >= 1.5e-7 * ((16 - offset) / (s - offset)) ** alpha
                onset = (high - s, high) if bad else None
                runs.append(
                    Observation(f"{s}_{eta:.3g}_{seed}", s, eta, seed, "collapsed" if bad else "survived", onset)
                )
    return runs


def test_sharp_boundary_on_the_law():
    found = fit_boundary(sharp())
    low, high = found.exponents[0].feasible
    assert low < 1 < high
    assert high - low < 0.15
    assert found.exponents[0].profile[0] < 1 < found.exponents[0].profile[1]
    assert not found.product.refuted
    assert found.form == "1/S"
    assert found.verdict in (HOLDS, NOT_DECIDED)
    assert fit_boundary(sharp(seeds=5)).verdict == HOLDS


def test_boundary_in_s_minus_one_is_told_apart():
    found = fit_boundary(sharp(offset=1, seeds=3))
    assert found.form == "1/(S-1)"
    low, high = found.exponents[1].feasible
    assert low < 1 < high
    assert fit_boundary(sharp(offset=1, intervals=(16, 32))).form == NOT_DECIDED


def test_product_law_is_refuted_by_a_named_pair():
    found = fit_boundary(sharp(alpha=0.4))
    assert found.product.refuted
    stable, collapsed = found.product.violating_pair
    assert stable["sync_interval"] * stable["lr"] >= collapsed["sync_interval"] * collapsed["lr"]
    assert (stable["label"], collapsed["label"]) == ("survived", "collapsed")
    assert found.verdict == REFUTED


def test_no_power_law_separates_contradicting_runs():
    runs = [
        Observation("a", 8, 1e-6, 0, "survived"),
        Observation("b", 8, 5e-7, 0, "collapsed", (0, 8)),
        Observation("c", 16, 5e-7, 0, "collapsed", (0, 16)),
        Observation("d", 16, 1e-7, 0, "survived"),
    ]
    found = fit_boundary(runs)
    assert found.exponents[0].feasible is None
    assert found.exponents[0].profile is not None
    assert found.product.refuted


def penalised(alpha, slope, intercept, x, eta, far):
    """Firth's penalised log-likelihood, written out with matrices of single runs."""
    design = np.column_stack([np.ones_like(x), eta, x])
    predictor = design @ np.array([intercept, slope, alpha * slope])
    p = norm.cdf(predictor)
    weight = norm.pdf(predictor) ** 2 / (p * (1 - p))
    information = design.T @ np.diag(weight) @ design
    return np.sum(np.where(far, np.log(p), np.log1p(-p))) + 0.5 * np.log(np.linalg.det(information))


def noisy(rng, seeds=2):
    x, eta = (part.ravel() for part in np.meshgrid(np.log([4.0, 8, 16]), np.log(2e-7 * 1.25 ** np.arange(-5, 8.0))))
    x, eta = np.repeat(x, seeds), np.repeat(eta, seeds)
    return x, eta, eta + x - np.log(2.4e-6) + 0.3 * rng.normal(size=x.size) > 0


@pytest.mark.parametrize("seed", range(2))
def test_penalised_profile_against_a_dense_grid(seed):
    x, eta, far = noisy(np.random.default_rng(seed))
    fit = fit_probit(x, eta, far)
    points = np.unique(np.column_stack([x, eta]), axis=0).mean(axis=0)
    x, eta = x - points[0], eta - points[1]
    alphas = np.arange(0.2, 2.2, 0.02)
    profile = []
    for alpha in alphas:
        slopes, intercepts = np.arange(0.5, 12, 0.25), np.arange(-3, 3, 0.1)
        with np.errstate(divide="ignore", invalid="ignore"):
            value = max(penalised(alpha, s, i * s / 3, x, eta, far) for s in slopes for i in intercepts[::3])
        profile.append(value)
    inside = alphas[np.array(profile) >= max(profile) - 1.92]
    assert fit.interval[0] == pytest.approx(inside.min(), abs=0.06)
    assert fit.interval[1] == pytest.approx(inside.max(), abs=0.06)


def test_gradient_of_the_penalised_likelihood():
    model = _Model.build(*noisy(np.random.default_rng(5)))
    beta = np.array([0.3, 1.7, 1.2])
    _, gradient = model.log_likelihood(beta, penalised=True)
    step = 1e-6
    difference = [
        (model.log_likelihood(beta + step * axis, True)[0] - model.log_likelihood(beta - step * axis, True)[0])
        / (2 * step)
        for axis in np.eye(3)
    ]
    assert gradient == pytest.approx(difference, rel=1e-6)


def test_separation_leaves_a_bounded_set_and_an_honest_width():
    x, eta = (part.ravel() for part in np.meshgrid(np.log([4.0, 8, 16]), np.log(2e-7 * 1.25 ** np.arange(-5, 8.0))))
    fit = fit_probit(x, eta, eta + x > np.log(2.4e-6))
    assert not fit.at_floor
    assert 0.05 < fit.sigma < 0.5
    assert fit.interval[0] < 1 < fit.interval[1]
    assert np.isfinite(fit.interval).all()
    for far in (np.zeros(x.size, bool), np.ones(x.size, bool)):
        assert fit_probit(x, eta, far) is None
    assert fit_probit(np.zeros(4), np.arange(4.0), np.arange(4) > 1) is None
    assert fit_probit(np.array([]), np.array([]), np.array([], bool)) is None


def test_clock_sets_of_exact_dates_are_those_of_a_regression():
    """Intervals far narrower than the noise: least squares with Student's t is then the exact answer."""
    rng = np.random.default_rng(6)
    s, eta = (np.tile(part.ravel(), 1) for part in np.meshgrid([8.0, 16, 32], np.geomspace(1e-7, 1e-6, 4)))
    log_t = np.log(3.2e-5) - np.log(eta) + 0.2 * rng.normal(size=s.size)
    fit = fit_aft(np.exp(log_t - 1e-6), np.exp(log_t), eta, s)
    design = np.column_stack([np.ones_like(s), -np.log(eta), np.log(s)])
    estimate, residual, *_ = np.linalg.lstsq(design, log_t, rcond=None)
    freedom = s.size - 3
    error = np.sqrt(residual[0] / freedom * np.diag(np.linalg.inv(design.T @ design)))
    half = student_t.ppf(0.975, freedom) * error
    for position, found, point in ((1, fit.b, fit.b_estimate), (2, fit.c, fit.c_estimate)):
        assert point == pytest.approx(estimate[position], abs=1e-3)
        assert found == pytest.approx(
            (estimate[position] - half[position], estimate[position] + half[position]), abs=5e-3
        )


def test_coarse_intervals_count_for_less_and_widen_the_sets():
    assert drop_allowed(1e6, 3) == pytest.approx(1.92, abs=1e-2)
    assert drop_allowed(5, 3) > drop_allowed(9, 3) > drop_allowed(30, 3) > 1.92
    assert np.isfinite(drop_allowed(0.0, 3))
    rng = np.random.default_rng(7)
    s, eta = (part.ravel() for part in np.meshgrid([8.0, 16, 32], np.geomspace(1e-7, 1e-6, 4)))
    t = 3.2e-5 / eta * np.exp(0.1 * rng.normal(size=s.size))
    widths = []
    for unit in (1.0, 64.0):
        high = unit * np.ceil(t / unit)
        fit = fit_aft(high - unit, high, eta, s)
        assert fit.b[0] < 1 < fit.b[1]
        widths.append(fit.b[1] - fit.b[0])
    assert widths[1] > 1.5 * widths[0]


def test_cut_off_counts_what_the_intervals_are_worth():
    """At the end of the set of b, the likelihood written out here has fallen by the cut-off that was drawn."""
    rng = np.random.default_rng(11)
    s, eta = (part.ravel() for part in np.meshgrid([8.0, 16, 32], np.geomspace(1e-7, 1e-6, 4)))
    high = 32 * np.ceil(3.2e-5 / eta * np.exp(0.2 * rng.normal(size=s.size)) / 32)
    low = high - 32
    fit = fit_aft(low, high, eta, s)
    with np.errstate(divide="ignore"):
        log_low, log_high = np.log(low), np.log(high)

    def negative(theta, b=None):
        slope = theta[3] if b is None else b
        mean, sigma = theta[0] - slope * (np.log(eta) + 15) + theta[1] * (np.log(s) - 2.8), max(np.exp(theta[2]), 0.02)
        mass = norm.cdf((log_high - mean) / sigma) - norm.cdf((log_low - mean) / sigma)
        return -np.log(np.maximum(mass, 1e-300)).sum()

    options = {"xatol": 1e-7, "fatol": 1e-10, "maxiter": 20_000, "maxfev": 20_000}
    best = minimize(negative, [4.6, 0.0, -1.5, 1.0], method="Nelder-Mead", options=options)
    mean = best.x[0] - best.x[3] * (np.log(eta) + 15) + best.x[1] * (np.log(s) - 2.8)
    noise = rng.normal(size=400_000)
    information = 0.0
    for k in range(s.size):
        t = mean[k] + np.exp(best.x[2]) * noise
        information += 1 - noise[(log_low[k] < t) & (t <= log_high[k])].var()
    assert 3 < information < s.size - 1
    fallen = minimize(lambda v: negative(v, fit.b[1]), best.x[:3], method="Nelder-Mead", options=options).fun - best.fun
    assert fallen == pytest.approx(drop_allowed(information, 3), rel=0.02)
    assert abs(drop_allowed(s.size, 3) - fallen) > 0.1


def test_clock_verdicts():
    assert fit_clock(sharp(seeds=3)).verdict == HOLDS
    rng = np.random.default_rng(8)
    shifted = []
    for s in (4, 8, 16, 32):
        for eta in FINE[20:]:
            high = s * int(np.ceil(3.2e-5 / eta * (s / 16) ** -0.4 * np.exp(0.05 * rng.normal()) / s))
            shifted.append(Observation(f"{len(shifted)}", s, eta, 0, "collapsed", (high - s, high)))
    found = fit_clock(shifted)
    assert (found.verdict, found.verdict_c) == (REFUTED, REFUTED)
    assert found.verdict_b != REFUTED
    assert found.c2 is None
    assert found.slack > 0


def test_clock_of_first_drops_counts_runs_that_recovered():
    runs = [
        Observation("a", 8, 1e-6, 0, "oscillating", None, (24, 32), recovered=True),
        Observation("b", 8, 5e-7, 0, "collapsed", (120, 128), (56, 64)),
    ]
    assert fit_clock(runs).runs == 1
    found = fit_clock(runs, "first_drop")
    assert found.runs == 2
    assert found.c2 == (2.8e-5, 3.2e-5)
    assert fit_boundary(runs, "sustained").unstable == 2


@pytest.mark.parametrize(
    "given",
    [
        {"label": "broken"},
        {"sync_interval": 0},
        {"lr": 0.0},
        {"lr": float("nan")},
        {"label": "collapsed", "onset": None},
        {"label": "collapsed", "onset": (8, 8)},
    ],
)
def test_observations_that_cannot_be(given):
    base = {"name": "x", "sync_interval": 8, "lr": 1e-6, "seed": 0, "label": "survived"}
    with pytest.raises(UserError, match="x"):
        Observation(**base | given)


def test_simulated_run_without_noise_exits_at_its_clock():
    truth = Truth(threshold_spread=0.0, radius_spread=0.0, noise=0.0)
    rng = np.random.default_rng(9)
    for s, eta in ((8, 1e-6), (16, 3e-7), (32, 2e-7)):
        run = simulate_run(truth, s, eta, 0, rng)
        assert s * (run.exit_index - 1) < 3.2e-5 / eta <= s * run.exit_index
        assert run.reward[run.exit_index :].max() < 0.2 < run.reward[: run.exit_index].min()
    stable = simulate_run(truth, 8, 1e-7, 0, rng)
    assert stable.exit_index is None
    assert stable.updates * 1e-7 >= 2 * truth.c2
    steeper = Truth(b=1.2, c=-0.4, threshold_spread=0.0, radius_spread=0.0, noise=0.0)
    ratio = steeper.clock_updates(32, 1e-7) / steeper.clock_updates(16, 4e-7)
    assert ratio == pytest.approx(4**1.2 * 2**-0.4)
    assert (Truth().has_lr_budget, steeper.has_lr_budget) == (True, False)


def test_boundary_of_the_simulator():
    for scale, offset in (("S", 0), ("S-1", 1)):
        truth = Truth(scale=scale, alpha=0.7)
        for s in (2, 8, 32):
            edge = 2.4e-6 / (16 - offset) * ((s - offset) / (16 - offset)) ** -0.7
            assert truth.persistent(s, edge * 1.001, 1.0)
            assert not truth.persistent(s, edge * 0.999, 1.0)


def test_small_validation_covers_and_reports():
    design = Design("small", Truth(scale="S"), (8, 16, 32), tuple(2e-7 * 1.5**k for k in range(-3, 5)), 2)
    rows = validate([design], 30, seed=900)
    assert rows[3] == check_study(design, 903)
    (summary,) = summarise([design], rows)
    for name in ("alpha", "b", "c", "c2"):
        assert summary[name]["coverage"] >= 0.8, name  # 30 studies at 95 %: below 0.8 once in ten thousand
    assert sum(summary["law_i"].values()) == pytest.approx(1)
    off = summarise([design], [row | {"c2_covered": None} for row in rows])[0]
    assert off["c2"]["coverage"] is None


def test_designs_reach_both_sides_of_the_boundary():
    for design in DESIGNS:
        runs = simulate_study(design, np.random.default_rng(10))
        for s in design.sync_intervals:
            labels = {run.label for run in runs if run.sync_interval == s}
            if len(design.rates) > 4:  # the paper's rates all collapse at S = 32
                assert labels == {"collapsed", "survived"}, (design.name, s)
