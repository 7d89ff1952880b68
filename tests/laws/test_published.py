"""The published tables as golden data, and why survivors must not enter the clock."""

from __future__ import annotations

import json
import shutil

import lifelines
import numpy as np
import pandas as pd
import pytest
from scipy.optimize import linprog, minimize
from scipy.stats import norm

from collapse_laws.cli import main
from collapse_laws.errors import UserError
from collapse_laws.laws.clock import fit_clock
from collapse_laws.laws.observation import Observation
from collapse_laws.laws.published import REFERENCE, load_published

ETA = (1e-6, 5e-7, 2e-7, 1e-7)
TABLE = {8: (4, 8, 0, 0), 16: (2, 4, 10, 0), 32: (1, 2, 5, 10)}


def cells():
    for interval, row in TABLE.items():
        for eta, index in zip(ETA, row, strict=True):
            yield interval, eta, index


def collapsed():
    return np.array([(s * (m - 1), s * m, eta, s) for s, eta, m in cells() if m], dtype=float)


def test_json_has_the_published_sets(capsys):
    assert main(["published", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    llama = found["llama"]
    assert llama["c2"] == [2.88e-5, 3.2e-5]
    assert found["qwen3-8b"]["c2"] == [6.08e-5, 6.4e-5]
    assert llama["b"] == pytest.approx([0.954, 1.314], abs=1e-3)
    assert llama["c"] == pytest.approx([-0.322, 0.096], abs=1e-3)
    assert llama["alpha"] == pytest.approx([0.50, 1.32], abs=5e-3)
    assert llama["alpha_main_grid"] == pytest.approx([0.50, 2.32], abs=5e-3)
    assert (llama["stable_max"], llama["stable_max_main_grid"], llama["collapsed_min"]) == (
        2.56e-6,
        1.6e-6,
        3.2e-6,
    )


def test_polygon_agrees_with_a_linear_programming_solver():
    low, high, eta, s = collapsed().T
    line = np.column_stack([np.ones_like(s), -np.log(eta), np.log(s)])
    finite = low > 0
    rows, limits = np.vstack([line, -line[finite]]), np.r_[np.log(high), -np.log(low[finite])]
    clock = fit_clock(
        [
            Observation(f"{k}", int(row[3]), row[2], 0, "collapsed", (row[0], row[1]))
            for k, row in enumerate(collapsed())
        ]
    )
    for axis, found in ((1, clock.b_feasible), (2, clock.c_feasible)):
        for sign, end in zip((1, -1), found, strict=True):
            goal = np.zeros(3)
            goal[axis] = sign
            result = linprog(goal, A_ub=rows, b_ub=limits, bounds=[(None, None)] * 3)
            assert end == pytest.approx(sign * result.fun, abs=1e-6)
    assert clock.b_feasible_at_c0 == pytest.approx((0.954, 1.083), abs=1e-3)
    assert clock.c_feasible_at_b1 == pytest.approx((-0.076, 0.096), abs=1e-3)
    assert clock.verdict == "not decided by these data"


def test_survivors_as_late_failures_would_make_up_a_dependence_on_s():
    """One model with stable cells right-censored: b near 1.5, c near -0.6, far outside the feasible set."""
    low, high, eta, s = (
        np.array(column)
        for column in zip(
            *[((s * (m - 1), s * m, e, s) if m else (2 * 3.2e-5 / e, np.inf, e, s)) for s, e, m in cells()],
            strict=True,
        )
    )
    with np.errstate(divide="ignore"):
        log_low, log_high = np.log(low), np.log(high)
    design = np.column_stack([np.ones(len(s)), -np.log(eta) - 15, np.log(s)])

    def negative(theta):
        mean, sigma = design @ theta[:3], np.exp(theta[3])
        mass = norm.cdf((log_high - mean) / sigma) - norm.cdf((log_low - mean) / sigma)
        return -np.log(np.maximum(mass, 1e-300)).sum()

    best = minimize(
        negative,
        [5.0, 1.0, 0.0, -1.0],
        method="Nelder-Mead",
        options={"maxiter": 8000, "xatol": 1e-8, "fatol": 1e-10},
    )
    assert best.x[1] == pytest.approx(1.5, abs=0.1)
    assert best.x[2] == pytest.approx(-0.6, abs=0.1)
    stable_too = [
        Observation(f"{k}", s, e, 0, "collapsed" if m else "survived", (s * (m - 1), s * m) if m else None)
        for k, (s, e, m) in enumerate(cells())
    ]
    alone = [run for run in stable_too if run.label == "collapsed"]
    assert fit_clock(stable_too) == fit_clock(alone)
    assert fit_clock(alone).c_feasible[0] > -0.4


@pytest.mark.filterwarnings("ignore")
def test_aft_agrees_with_lifelines_on_noisy_intervals():
    rng = np.random.default_rng(3)
    rows, runs = [], []
    for interval in (4, 8, 16):
        for eta in np.geomspace(1e-7, 1e-6, 6):
            for seed in range(4):
                t = 3.2e-5 / eta * np.exp(0.25 * rng.normal())
                index = int(np.ceil(t / interval))
                low, high = interval * (index - 1), interval * index
                runs.append(Observation(f"{len(runs)}", interval, eta, seed, "collapsed", (low, high)))
                rows.append(
                    {
                        "low": max(low, 1e-3),
                        "high": high,
                        "x": -np.log(eta),
                        "s": np.log(interval),
                        "e": False,
                    }
                )
    oracle = lifelines.LogNormalAFTFitter().fit_interval_censoring(pd.DataFrame(rows), "low", "high", "e")
    clock = fit_clock(runs)
    assert clock.b_estimate == pytest.approx(oracle.params_["mu_"]["x"], abs=0.02)
    assert clock.c_estimate == pytest.approx(oracle.params_["mu_"]["s"], abs=0.02)
    assert clock.sigma == pytest.approx(np.exp(oracle.params_["sigma_"]["Intercept"]), rel=0.05)
    assert clock.b_profile[0] < 1 < clock.b_profile[1]


def test_published_writes_the_shapes_of_a_study(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["published", "--reference", str(REFERENCE)]) == 0
    laws = json.loads((tmp_path / "results/published/laws.json").read_text())
    assert [group["model"] for group in laws["groups"]] == ["llama1b", "llama3b", "qwen8b"]
    assert laws["groups"][1]["boundary"]["product"]["stable_max"] == 2.56e-6
    cell = json.loads((tmp_path / "results/published/cells/vanilla_llama3b_S32_eta2e-7_seed100.json").read_text())
    assert (cell["outcome"]["collapse_index"], cell["outcome"]["onset_low"]) == (5, 128)
    assert len(list((tmp_path / "results/published/cells").iterdir())) == 48
    assert "c2 in (2.88e-05, 3.2e-05]" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (",4,stated,32,", ",4,stated,33,", "collapse_step"),
        ("llama1b,8,1e-6", "gpt,8,1e-6", "allowed"),
        ("collapsed,stated,4,stated", "collapsed,stated,4,guessed", "mark"),
        ("seed,label", "seed,lable", "lacks the column"),
        (
            "llama3b,32,1e-6,42,collapsed,stated,1,stated,32",
            "llama3b,32,1e-6,42,collapsed,stated,2,stated,64",
            "disagree",
        ),
    ],
)
def test_faults_in_the_tables_are_named(tmp_path, old, new, message):
    shutil.copytree(REFERENCE, tmp_path / "reference")
    table = tmp_path / "reference/table1.csv"
    text = table.read_text()
    assert old in text
    table.write_text(text.replace(old, new))
    with pytest.raises(UserError, match=message):
        load_published(tmp_path / "reference")
