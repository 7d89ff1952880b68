"""calibrate: boundary bracket and clock interval from several runs, and the rule's advice for a setting that was not
run.

Section 5 of the paper [stated]: calibrate (S, eta) jointly and validate on the intended horizon. For a new S: stable if
eta is at most the largest stable S*eta over S, expected to fail near c2/eta if it is at least the smallest collapsed
one over S, undecided between; the next run to make bisects the bracket of the product [derived].
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collapse_laws.advise.calibration import Brackets, brackets_of, reference_budget
from collapse_laws.advise.judge import judge, rates
from collapse_laws.errors import UserError
from collapse_laws.laws.boundary import Boundary, fit_boundary
from collapse_laws.laws.clock import Clock, fit_clock
from collapse_laws.laws.observation import Observation
from collapse_laws.logs import read_log
from collapse_laws.logs.numbers import MOST_SYNC_INTERVAL, is_rate, parse_number

_POINT = re.compile(r"(\d+)(?:,(.+))?")


@dataclass(frozen=True, slots=True)
class Calibration:
    """Runs and what they say together."""

    brackets: Brackets
    runs: tuple[Observation, ...]
    boundary: Boundary
    clock: Clock

    def details(self) -> dict[str, Any]:
        """What the calibration file keeps beside the brackets."""
        return {
            "runs": [{**run.as_point(), "onset": run.onset} for run in self.runs],
            "boundary": self.boundary.to_json(),
            "clock": self.clock.to_json(),
        }


def calibrate(runs: Sequence[Observation], name: str) -> Calibration:
    """Brackets of runs of one model and objective. A run that neither survived nor collapsed says nothing of the
    boundary.
    """
    boundary, clock = fit_boundary(runs), fit_clock(runs)
    brackets = brackets_of(boundary, clock, name, f"{len(runs)} runs")
    return Calibration(brackets, tuple(runs), boundary, clock)


def observe_logs(
    arguments: Sequence[str], sync_interval: int | None, lr: float | None, keys: dict[str, Any]
) -> list[Observation]:
    """Runs from logs given as LOG, LOG@S or LOG@S,ETA; a first pass finds the clock that says which runs outlived
    it.
    """
    logs = []
    for argument in arguments:
        path, interval, rate = _split(argument, sync_interval, lr)
        log = read_log(path, sync_interval=interval, **keys)
        found = rates(log, rate)
        if log.sync_interval is None or found.lr is None:
            lacking = "S" if log.sync_interval is None else "eta"
            raise UserError(f"{path}: {lacking} is not in the log; give it as {path.name}@S or {path.name}@S,ETA.")
        logs.append((path, log, found))
    reference = None
    for _ in range(2):
        runs = []
        for number, (path, log, found) in enumerate(logs):
            outcome = judge(log, found, reference)
            onset = None
            if outcome.onset_high is not None and outcome.label == "collapsed":
                onset = float(outcome.onset_low or 0), float(outcome.onset_high)
            runs.append(Observation(str(path), log.sync_interval, found.lr, number, outcome.label, onset))
        reference = reference_budget((calibrate(runs, "").brackets,))
        if reference is None:
            break
    return runs


def observe_study(study: str) -> list[Observation] | None:
    """Runs of a study's extracted cells; None where there is no such study."""
    files = sorted((Path("results") / study / "cells").glob("*.json"))
    if not files:
        return None
    cells = []
    for file in files:
        try:
            cells.append(json.loads(file.read_text(encoding="utf-8")))
        except ValueError:
            raise UserError(f"{file} is not JSON; run `collapse-laws extract` again.") from None
    groups = sorted({(cell.get("arm"), cell.get("model")) for cell in cells}, key=str)
    if len(groups) > 1:
        raise UserError(
            f"study {study!r} holds {len(groups)} groups ({', '.join('/'.join(map(str, group)) for group in groups)}), "
            f"whose calibrations must not be merged; give one as {study}:ARM/MODEL."
        )
    return [Observation.from_cell(cell) for cell in cells]


def observe_group(argument: str) -> list[Observation] | None:
    """As `observe_study`, for STUDY:ARM/MODEL."""
    study, mark, group = argument.partition(":")
    if not mark or not (Path("results") / study / "cells").is_dir():
        return observe_study(argument)
    cells = [json.loads(file.read_text("utf-8")) for file in sorted((Path("results") / study / "cells").glob("*.json"))]
    chosen = [cell for cell in cells if f"{cell.get('arm')}/{cell.get('model')}" == group]
    if not chosen:
        raise UserError(f"study {study!r} has no group {group!r}; a group is ARM/MODEL.")
    return [Observation.from_cell(cell) for cell in chosen]


def _split(argument: str, sync_interval: int | None, lr: float | None) -> tuple[Path, int | None, float | None]:
    name, mark, point = argument.rpartition("@")
    found = _POINT.fullmatch(point)
    if not mark or Path(argument).exists() or (found is None and name and not Path(name).exists()):
        return Path(argument), sync_interval, lr
    if not name or found is None or not 1 <= int(found.group(1)[:19]) <= MOST_SYNC_INTERVAL:
        raise UserError(
            f"{argument!r} is not LOG, LOG@S or LOG@S,ETA; S is a whole number from 1 to {MOST_SYNC_INTERVAL}, ETA a "
            "learning rate such as 1e-6."
        )
    rate = lr if found.group(2) is None else parse_number(found.group(2))
    if found.group(2) is not None and (rate is None or not is_rate(rate)):
        raise UserError(f"{argument!r}: {found.group(2)!r} is not a learning rate; allowed: a number such as 1e-6.")
    return Path(name), int(found.group(1)), rate


def advice(brackets: Brackets, sync_interval: int, lr: float | None, horizon: int | None) -> list[str]:
    """Sentences for a wanted S, with eta or a horizon in learner updates where they are given."""
    said = []
    low, high, c2 = brackets.stable_max, brackets.collapsed_min, brackets.c2_high
    if brackets.refuted:
        return [
            "The runs contradict one product for all S (a stable S*eta is not below a collapsed one), so no rate can "
            "be advised."
        ]
    if low is not None:
        said.append(
            f"S={sync_interval}: eta up to {low / sync_interval:.3g} is expected to be stable, since S*eta = "
            f"{low:.3g} was."
        )
    if high is not None:
        near = f" near update {c2 * sync_interval / high:.0f} (c2/eta)" if c2 else ""
        said.append(
            f"S={sync_interval}: eta from {high / sync_interval:.3g} is expected to fail{near}, since S*eta = "
            f"{high:.3g} did."
        )
    if lr is not None:
        product = sync_interval * lr
        fate = {
            "stable": "expected to be stable",
            "unstable": "expected to fail" + (f" near update {c2 / lr:.0f}" if c2 else ""),
            "between": "undecided: between the largest stable and the smallest collapsed product",
            "unknown": "undecided: the bracket has one side only",
        }[brackets.position(product)]
        said.append(f"S={sync_interval}, eta={lr:.3g}: S*eta = {product:.3g}, {fate}.")
    if horizon is not None and brackets.c2_low is not None:
        said.append(
            f"A run of {horizon} updates ends before the clock if eta is below {brackets.c2_low / horizon:.3g}; it "
            "would then show no collapse whether or not the setting is stable."
        )
    said.append(_next_run(brackets, sync_interval))
    if c2 is not None:
        chosen = lr if lr is not None else (low / sync_interval if low is not None else None)
        if chosen is not None:
            said.append(
                f"Validate eta={chosen:.3g} to {math.ceil(2 * c2 / chosen)} updates (2 c2/eta): only a run that long "
                "is a survivor."
            )
    else:
        why = "No run of S >= 2 collapsed" if high is None else "The collapsed runs share no clock"
        said.append(f"{why}, so the clock is unknown and no horizon can be said to be long enough.")
    return said


def _next_run(brackets: Brackets, sync_interval: int) -> str:
    low, high = brackets.stable_max, brackets.collapsed_min
    if low is not None and high is not None:
        product, why = (
            math.sqrt(low * high),
            f"it halves the bracket ({low:.3g}, {high:.3g}) on the log scale",
        )
    elif low is not None:
        product, why = (
            2 * low,
            "nothing has collapsed yet, so the upper side of the bracket is open",
        )
    elif high is not None:
        product, why = (
            high / 2,
            "nothing has survived yet, so the lower side of the bracket is open",
        )
    else:
        return (
            "No run of S >= 2 collapsed, so none can be called a survivor: run one until it collapses, at a larger "
            "S*eta; without one the clock is unknown."
        )
    eta = product / sync_interval
    horizon = f", for {math.ceil(2 * brackets.c2_high / eta)} updates (2 c2/eta)" if brackets.c2_high else ""
    return f"Next run: S={sync_interval}, eta={eta:.3g} (S*eta = {product:.3g}){horizon}: {why}."
