"""Numbers as logs print them: 0.5, 1e-06, nan, np.float64(0.5), tensor(0.5, device='cuda:0'), "0.5"."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from collapse_laws.errors import UserError

# [declared] what is beyond these bounds is a fault of the log, not a number to calculate with
MOST_UPDATES = 10**12
MOST_SYNC_INTERVAL = 10**9
LARGEST = 1e100
_RATES = (1e-30, 1e30)

PLAIN = r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|NaN|NAN|inf|Infinity|Inf)\b"
# np.float64(0.5), numpy.float32(0.5), tensor(0.5, device='cuda:0'), array(0.5, dtype=float32)
WRAPPED = r"(?:(?:np|numpy|torch|jnp|jax)\.)?(?:float|int|bfloat|uint)\d*\(\s*|tensor\(\s*|array\(\s*"
_WRAPPED_NUMBER = re.compile(rf"(?:{WRAPPED})\[?\s*({PLAIN})")
_POSITION = re.compile(r"\s*(\d{1,12})\s*/\s*\d{1,12}\s*")


def parse_number(text: str) -> float | None:
    """The number a log printed, None where the text is none. 'nan' and 'inf' are numbers."""
    try:
        return float(text)
    except ValueError:
        pass
    found = _WRAPPED_NUMBER.match(text.strip(" '\""))
    if found:
        return float(found.group(1))
    try:
        return float(text.strip(" ,;'\"|%)}]"))
    except ValueError:
        return None


def as_number(value: Any) -> float | None:
    """The number a JSON value stands for; None for a null, a text without a number, a list or an object."""
    kind = type(value)
    if kind is float:
        return value
    if kind is int:
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    if kind is str and len(value) < 60:
        return parse_number(value)
    return None


def position(text: str) -> float | None:
    """The first number of "2/48", as trainers write the step and the planned steps; None for another text."""
    found = _POSITION.fullmatch(text)
    return float(found.group(1)) if found else None


def credible(values: np.ndarray, bound: float = LARGEST) -> np.ndarray:
    """The values with NaN for what is infinite or beyond the bound."""
    wrong = ~(np.abs(values) <= bound)
    return np.where(wrong, np.nan, values) if wrong.any() else values


def is_rate(lr: float) -> bool:
    """Whether a number can be a learning rate."""
    return _RATES[0] <= lr <= _RATES[1]


def check_rate(lr: float | None) -> None:
    """UserError for a learning rate that a user gives and that is none."""
    if lr is not None and not is_rate(lr):
        raise UserError(f"--lr {lr!r} is not allowed; allowed: a number from {_RATES[0]:g} to {_RATES[1]:g}.")


def check_sync_interval(sync_interval: int | None) -> None:
    """UserError for an S that a user gives and that is none."""
    if sync_interval is not None and not 1 <= sync_interval <= MOST_SYNC_INTERVAL:
        raise UserError(
            f"--sync-interval {sync_interval} is not allowed; allowed: a whole number from 1 to {MOST_SYNC_INTERVAL}."
        )
