"""What the estimators see of a run: its point (S, eta, seed), its label and the interval of its onset.

S = 1 has no lag, so neither law speaks of it (Section 3.5 [stated]); such runs are controls and enter no estimate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from collapse_laws.collapse import LABELS
from collapse_laws.errors import UserError

HOLDS, REFUTED, NOT_DECIDED = "holds", "refuted", "not decided by these data"
Interval = tuple[float | None, float | None]  # None: unbounded on that side


@dataclass(frozen=True, slots=True)
class Observation:
    """One run. Onsets are half-open intervals (low, high] of learner updates, None where there was none."""

    name: str
    sync_interval: int
    lr: float
    seed: int
    label: str
    onset: tuple[float, float] | None = None
    first_drop: tuple[float, float] | None = None
    recovered: bool = False

    def __post_init__(self) -> None:
        if self.label not in LABELS:
            raise UserError(f"run {self.name!r}: label {self.label!r} is not allowed; allowed: {', '.join(LABELS)}.")
        if self.sync_interval < 1 or not 0 < self.lr < float("inf"):
            raise UserError(f"run {self.name!r}: S must be at least 1 and the learning rate above 0.")
        if self.label == "collapsed" and self.onset is None:
            raise UserError(f"run {self.name!r} collapsed, but the interval of its onset is missing.")
        for onset in (self.onset, self.first_drop):
            if onset is not None and not 0 <= onset[0] < onset[1]:
                raise UserError(f"run {self.name!r}: the onset interval {onset} is empty or negative.")

    @classmethod
    def from_cell(cls, cell: Mapping[str, Any]) -> Observation:
        """The observation in results/<study>/cells/<cell>.json; UserError names a missing key."""
        try:
            outcome = cell["outcome"]
            return cls(
                name=cell["cell"],
                sync_interval=cell["sync_interval"],
                lr=cell["lr"],
                seed=cell["seed"],
                label=outcome["label"],
                onset=_interval(outcome["onset_low"], outcome["onset_high"]),
                first_drop=_interval(outcome["first_drop_low"], outcome["first_drop_high"]),
                recovered=outcome["recovered"],
            )
        except KeyError as error:
            raise UserError(
                f"cell {cell.get('cell', '?')!r}: the key {error} is missing; run `collapse-laws extract` again."
            ) from None

    def as_point(self) -> dict[str, Any]:
        """Name and coordinates, as JSON values."""
        return {
            "cell": self.name,
            "sync_interval": self.sync_interval,
            "lr": self.lr,
            "seed": self.seed,
            "label": self.label,
        }


def _interval(low: float | None, high: float | None) -> tuple[float, float] | None:
    return None if low is None or high is None else (low, high)


def stale(runs: Iterable[Observation]) -> list[Observation]:
    """The runs with S >= 2, of which the laws speak."""
    return [run for run in runs if run.sync_interval > 1]


def clean(value: float | None) -> float | None:
    """A float without the last digits of binary arithmetic, for printing: 32 * 1e-7 -> 3.2e-06."""
    return None if value is None or value != value or abs(value) == float("inf") else float(f"{value:.12g}")


def clean_interval(interval: Interval | None) -> Interval | None:
    """Both ends as `clean` gives them; an infinite end becomes None."""
    return None if interval is None else (clean(interval[0]), clean(interval[1]))


def hull(*intervals: Interval | None) -> Interval | None:
    """The smallest interval that holds all of those given."""
    given = [interval for interval in intervals if interval is not None]
    if not given:
        return None
    lows, highs = zip(*given, strict=True)
    return (
        None if None in lows else min(lows),
        None if None in highs else max(highs),
    )


def interval_text(interval: Interval | None) -> str:
    """An interval as a sentence shows it."""
    if interval is None:
        return "no set that these data give"
    low, high = (None if end is None or abs(end) == float("inf") else f"{end:.3g}" for end in interval)
    if low is None and high is None:
        return "no bounded set"
    return f"[{low or 'unbounded'}, {high or 'unbounded'}]"


def equivalence(interval: Interval | None, target: float, margin: float) -> str:
    """Holds if the whole interval lies within `margin` of `target`, refuted if it misses it, else not decided."""
    if interval is None:
        return NOT_DECIDED
    low = float("-inf") if interval[0] is None else interval[0]
    high = float("inf") if interval[1] is None else interval[1]
    slack = 1e-9  # a set that ends on the margin itself lies within it
    if target - margin - slack <= low and high <= target + margin + slack:
        return HOLDS
    if high < target - margin - slack or low > target + margin + slack:
        return REFUTED
    return NOT_DECIDED
