"""How numbers, intervals, labels and match marks are written for readers, in tables, figures and the page alike."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

WORDS = {
    "collapsed": "collapsed",
    "oscillating": "oscillating",
    "survived": "survived",
    "undecided": "undecided",
    "no_signal": "no signal",
    "failed": "failed",
    "not_run": "not run",
}
MEANINGS = {
    "collapsed": "the reward fell below half of its best and stayed there",
    "oscillating": "it fell below half of its best and climbed back, repeatedly",
    "survived": "no lasting drop over at least twice the reference clock",
    "undecided": "no lasting drop, but the run is too short to call it a survivor",
    "no_signal": "the reward never moved, so no drop could show",
    "failed": "the run crashed or its reward was not a number",
    "not_run": "planned, but no outcome exists",
}
SCALES = {
    "smoke": "smoke test, far below any claim",
    "proxy": "CPU proxy: tiny models on synthetic arithmetic",
    "pocket": "pocket scale: a small real language model",
    "paper": "paper scale",
}


def number(value: float | None, digits: int = 3) -> str:
    """A number for readers: 3.2e-05 as '3.2e-5', 0.05 as '0.05', nothing as '-'."""
    if value is None or pd.isna(value):
        return "-"
    if value == 0 or 1e-2 <= abs(value) < 1e5:
        return f"{value:.{digits}g}" if abs(value) < 10**digits else f"{value:.0f}"
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
    return f"{mantissa}e{int(exponent)}"


def interval(ends: Sequence[float | None] | None, brackets: str = "[]") -> str:
    """An interval for readers; an open end is an infinity, no interval a dash, the whole line
    "unbounded"."""
    if ends is None:
        return "-"
    low, high = ends
    if low is None and high is None:
        return "unbounded"
    left = "-∞" if low is None else number(low)
    right = "∞" if high is None else number(high)
    return f"{brackets[0]}{left}, {right}{brackets[1]}"


def plural(count: int, noun: str, ending: str = "s") -> str:
    """`1 run`, `2 runs`."""
    return f"{count} {noun}{'' if count == 1 else ending}"


def listing(values: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    values = list(values)
    if len(values) < 2:
        return "".join(values)
    return f"{', '.join(values[:-1])} and {values[-1]}"
