"""The collapse clock: when collapsing runs collapse (law ii), log t = a - b log eta + c log S.

Law (ii) [stated]: b = 1, c = 0, so that t eta = c2 for all S. A collapse index M only says that the onset lies in
(S(M-1), SM], so:

* the set of c2 that all intervals share, and the polygon of (b, c) that some noiseless line through all intervals has
  [derived];
* an interval-censored log-normal accelerated-failure-time model on the collapsed runs, 95 % profile-likelihood sets
  with a floor under sigma, without which the likelihood is flat as sigma -> 0, and a cut-off that counts each run by
  what its interval is worth [declared].

Surviving runs are not late failures but on another branch (Section 3.3 [stated]), so they never enter as
right-censored: on the published table that would give b near 1.5 and c near -0.6. Verdicts are on |b-1| <= 0.1 and |c|
<= 0.1 [declared], judged on the hull of both sets.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from collapse_laws.laws.aft import AftFit, fit_aft
from collapse_laws.laws.feasible import ClockSet, clock_set
from collapse_laws.laws.observation import (
    HOLDS,
    NOT_DECIDED,
    REFUTED,
    Interval,
    Observation,
    clean,
    clean_interval,
    equivalence,
    hull,
    interval_text,
    stale,
)

MARGIN = 0.1  # declared, for b and c alike


@dataclass(frozen=True, slots=True)
class Clock:
    """All that is known of the clock of one model."""

    event: str  # collapse, or first_drop: the first drop of any run, lasting or not
    runs: int  # with that event and S >= 2
    c2: Interval | None  # (low, high]: shared by all intervals; None where none is
    c2_estimate: float | None  # median t*eta of the model with b = 1, c = 0
    c2_profile: Interval | None  # its 95 % set
    consistent: bool | None  # one noiseless line passes all intervals; None without runs
    slack: float | None  # least widening of all intervals, in log t, that makes one pass
    b_feasible: Interval | None
    c_feasible: Interval | None
    b_feasible_at_c0: Interval | None  # b if c = 0
    c_feasible_at_b1: Interval | None  # c if b = 1
    polygon: tuple[tuple[float, float], ...]  # corners (b, c), counter-clockwise; cut at the search box
    b_estimate: float | None
    b_profile: Interval | None
    c_estimate: float | None
    c_profile: Interval | None
    sigma: float | None
    sigma_at_floor: bool
    b: Interval | None  # hull of feasible and profile set
    c: Interval | None
    verdict_b: str
    verdict_c: str
    verdict: str  # on law (ii)
    reason: str
    margin: float = MARGIN

    def to_json(self) -> dict[str, Any]:
        """A dictionary of JSON values."""
        return dataclasses.asdict(self)


def fit_clock(runs: Sequence[Observation], event: str = "collapse") -> Clock:
    """The clock of one model and arm, from the runs with the event; any number of them, also none."""
    used = [run for run in stale(runs) if _onset(run, event) is not None]
    onsets = np.array([_onset(run, event) for run in used], dtype=float).reshape(-1, 2)
    lr = np.array([run.lr for run in used], dtype=float)
    interval = np.array([run.sync_interval for run in used], dtype=float)
    found = clock_set(onsets[:, 0], onsets[:, 1], lr, interval)
    fit = fit_aft(onsets[:, 0], onsets[:, 1], lr, interval)
    b, c = hull(found.b, fit.b), hull(found.c, fit.c)
    verdict_b, verdict_c = equivalence(b, 1.0, MARGIN), equivalence(c, 0.0, MARGIN)
    verdict, reason = _verdict(used, b, c, verdict_b, verdict_c)
    return Clock(
        event=event,
        runs=len(used),
        **_set_fields(found, len(used)),
        **_fit_fields(fit),
        b=clean_interval(b),
        c=clean_interval(c),
        verdict_b=verdict_b,
        verdict_c=verdict_c,
        verdict=verdict,
        reason=reason,
    )


def _onset(run: Observation, event: str) -> tuple[float, float] | None:
    if event == "first_drop":
        return run.first_drop
    return run.onset if run.label == "collapsed" else None


def _set_fields(found: ClockSet, runs: int) -> dict[str, Any]:
    return {
        "c2": clean_interval(found.c2),
        "consistent": None if not runs else found.b is not None,
        "slack": clean(found.slack),
        "b_feasible": clean_interval(found.b),
        "c_feasible": clean_interval(found.c),
        "b_feasible_at_c0": clean_interval(found.b_at_c0),
        "c_feasible_at_b1": clean_interval(found.c_at_b1),
        "polygon": tuple((clean(b), clean(c)) for b, c in found.polygon),
    }


def _fit_fields(fit: AftFit) -> dict[str, Any]:
    return {
        "c2_estimate": clean(fit.c2_estimate),
        "c2_profile": clean_interval(fit.c2),
        "b_estimate": clean(fit.b_estimate),
        "b_profile": clean_interval(fit.b),
        "c_estimate": clean(fit.c_estimate),
        "c_profile": clean_interval(fit.c),
        "sigma": clean(fit.sigma),
        "sigma_at_floor": fit.at_floor,
    }


def _verdict(
    runs: Sequence[Observation],
    b: Interval | None,
    c: Interval | None,
    verdict_b: str,
    verdict_c: str,
) -> tuple[str, str]:
    if not runs:
        return NOT_DECIDED, "No run of this model has the event, so nothing is known of the clock."
    verdict = NOT_DECIDED
    if REFUTED in (verdict_b, verdict_c):
        verdict = REFUTED
    elif verdict_b == verdict_c == HOLDS:
        verdict = HOLDS
    return verdict, (
        f"b lies in {interval_text(b)}, c in {interval_text(c)}, from {len(runs)} run(s); the law asks for 1 and 0 "
        f"within {MARGIN:g}."
    )
