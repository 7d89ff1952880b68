"""Do the estimators recover a known truth? Coverage and power on simulated studies (theory, not training).

Each study runs the simulator over a grid, labels every run with the criterion and fits both laws, as for real records.
Coverage is the share of studies whose 95 % profile-likelihood set holds the truth; power the share whose verdict on the
laws is `holds` (or `refuted` where the truth breaks them). The designs below are [declared].
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from collapse_laws.collapse import classify
from collapse_laws.laws.boundary import SCALES, fit_boundary
from collapse_laws.laws.clock import fit_clock
from collapse_laws.laws.observation import Interval, Observation
from collapse_laws.theory.simulator import Truth, simulate_run

PARAMETERS = ("alpha", "b", "c", "c2")
FINE = tuple(2e-7 * 1.25**k for k in range(-6, 10))  # factor 1.25 around the boundary
COARSE = (1e-6, 5e-7, 2e-7, 1e-7)  # the paper's rates


@dataclass(frozen=True, slots=True)
class Design:
    """A grid with a truth: S, rates, and how many seeds at each point."""

    name: str
    truth: Truth = Truth()
    sync_intervals: tuple[int, ...] = (4, 8, 16, 32)
    rates: tuple[float, ...] = FINE
    seeds: int = 3


DESIGNS = (
    Design("paper grid, 1 seed", sync_intervals=(8, 16, 32), rates=COARSE, seeds=1),
    Design("paper grid, 3 seeds", sync_intervals=(8, 16, 32), rates=COARSE),
    Design("factor 1.25, 1 seed", seeds=1),
    Design("factor 1.25, 3 seeds"),
    Design("factor 1.25, 5 seeds", seeds=5),
    Design("factor 1.25, 3 seeds, S to 64", sync_intervals=(2, 4, 8, 16, 32, 64)),
    Design("off the laws: alpha 0.5, c -0.4", truth=Truth(alpha=0.5, c=-0.4)),
)
MAIN_DESIGN = "factor 1.25, 3 seeds"


def simulate_study(design: Design, rng: np.random.Generator) -> list[Observation]:
    """The labelled runs of one simulated study."""
    found = []
    for interval in design.sync_intervals:
        for lr in design.rates:
            for seed in range(design.seeds):
                run = simulate_run(design.truth, interval, lr, seed, rng)
                outcome = classify(
                    run.reward,
                    sync_interval=interval,
                    n=np.full(run.reward.size, run.rollouts),
                    updates=run.updates,
                    lr=lr,
                    reference_lr_budget=design.truth.c2,
                )
                onset = None
                if outcome.label == "collapsed":
                    onset = (outcome.onset_low, outcome.onset_high)
                found.append(Observation(f"S{interval}_{lr:g}_{seed}", interval, lr, seed, outcome.label, onset))
    return found


def check_study(design: Design, seed: int) -> dict[str, Any]:
    """Sets and verdicts of one simulated study, and whether each set holds the truth."""
    runs = simulate_study(design, np.random.default_rng([seed, 7]))
    boundary, clock = fit_boundary(runs), fit_clock(runs)
    exponent = boundary.exponents[SCALES.index(design.truth.scale)]
    sets = {
        "alpha": exponent.profile,
        "b": clock.b_profile,
        "c": clock.c_profile,
        "c2": clock.c2_profile,
    }
    row: dict[str, Any] = {
        "design": design.name,
        "study": seed,
        "runs": len(runs),
        "collapsed": boundary.unstable,
        "survived": boundary.stable,
        "law_i": boundary.verdict,
        "law_ii": clock.verdict,
    }
    for name in PARAMETERS:
        low, high = sets[name] or (None, None)
        row |= {
            f"{name}_low": low,
            f"{name}_high": high,
            f"{name}_covered": _holds(sets[name], getattr(design.truth, name)),
        }
    return row


def _holds(interval: Interval | None, value: float) -> bool:
    if interval is None:  # no set at all: nothing is excluded, but nothing recovered either
        return False
    low, high = interval
    return (low is None or low <= value) and (high is None or value <= high)


def _check(task: tuple[Design, int]) -> dict[str, Any]:
    return check_study(*task)


def validate(designs: Sequence[Design], studies: int, seed: int = 0, jobs: int = 1) -> list[dict[str, Any]]:
    """Rows of `check_study` for `studies` studies of each design, in order; `jobs` processes."""
    tasks = [(design, seed + k) for design in designs for k in range(studies)]
    if jobs == 1:
        return [_check(task) for task in tasks]
    with ProcessPoolExecutor(jobs) as pool:
        return list(pool.map(_check, tasks, chunksize=8))


def summarise(designs: Iterable[Design], rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Coverage with its standard error, median width and verdict shares, one entry a design."""
    summary = []
    for design in designs:
        own = [row for row in rows if row["design"] == design.name]
        entry: dict[str, Any] = {
            "design": design.name,
            "truth": dataclasses.asdict(design.truth),
            "sync_intervals": design.sync_intervals,
            "rates": design.rates,
            "seeds": design.seeds,
            "studies": len(own),
        }
        for name in PARAMETERS:
            covered = float(np.mean([row[f"{name}_covered"] for row in own]))
            entry[name] = {
                "coverage": covered,
                "coverage_se": float(np.sqrt(covered * (1 - covered) / len(own))),
                "median_width": _median_width(own, name),
            }
        for law in ("law_i", "law_ii"):
            verdicts = [row[law] for row in own]
            entry[law] = {verdict: verdicts.count(verdict) / len(own) for verdict in sorted(set(verdicts))}
        summary.append(entry)
    return summary


def _median_width(rows: Sequence[dict[str, Any]], name: str) -> float | None:
    """Median width of the sets, unbounded ones counting as infinite; None where the median is infinite."""
    widths = [
        np.inf
        if row[f"{name}_low"] is None or row[f"{name}_high"] is None
        else row[f"{name}_high"] - row[f"{name}_low"]
        for row in rows
    ]
    median = float(np.median(widths))
    return median if np.isfinite(median) else None
