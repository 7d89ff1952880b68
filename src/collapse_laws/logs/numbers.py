"""Numbers as logs print them: 0.5, 1e-06, nan, np.float64(0.5), tensor(0.5, device='cuda:0'), "0.5"."""

from __future__ import annotations

import math
import re
from typing import Any

PLAIN = r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|NaN|NAN|inf|Infinity|Inf)\b"
# np.float64(0.5), numpy.float32(0.5), tensor(0.5, device='cuda:0'), array(0.5, dtype=float32)
WRAPPED = r"(?:(?:np|numpy|torch|jnp|jax)\.)?(?:float|int|bfloat|uint)\d*\(\s*|tensor\(\s*|array\(\s*"
_WRAPPED_NUMBER = re.compile(rf"(?:{WRAPPED})\[?\s*({PLAIN})")


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
