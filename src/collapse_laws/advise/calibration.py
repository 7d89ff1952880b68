"""What is known of boundary and clock: the published brackets, or a file that `calibrate` wrote.

The published brackets are fitted to the published tables like any study's (`laws.published`). They are those of its
models, optimiser, batch and objective; another setting has its own.
"""

from __future__ import annotations

import functools
import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from collapse_laws.errors import UserError
from collapse_laws.laws.boundary import Boundary
from collapse_laws.laws.clock import Clock
from collapse_laws.laws.published import LLAMA, QWEN, fit_models, load_published
from collapse_laws.runrecord import write_json

SCHEMA_VERSION = 1
_WIDEST = 10.0  # [declared] a set of c2 that spans more than a decade dates nothing


@dataclass(frozen=True, slots=True)
class Brackets:
    """Boundary of S*eta and clock of t*eta for one family of runs; None where no run tells."""

    name: str
    stable_max: float | None  # largest S*eta of a surviving run
    collapsed_min: float | None  # smallest S*eta of a collapsed run
    c2_low: float | None  # the cumulative learning rate at the onset lies in (c2_low, c2_high]
    c2_high: float | None
    source: str
    refuted: bool = False  # the runs contradict one product for all S

    def position(self, product: float) -> str:
        """Where S*eta lies: stable | between | unstable | unknown."""
        if self.refuted:
            return "unknown"
        if self.stable_max is not None and product <= self.stable_max * (1 + 1e-9):
            return "stable"
        if self.collapsed_min is not None and product >= self.collapsed_min * (1 - 1e-9):
            return "unstable"
        return "unknown" if self.stable_max is None or self.collapsed_min is None else "between"

    def place(self, sync_interval: int, lr: float) -> str:
        """The sentence that says where S*eta lies."""
        product = sync_interval * lr
        low = "none" if self.stable_max is None else f"{self.stable_max:.3g}"
        high = "none" if self.collapsed_min is None else f"{self.collapsed_min:.3g}"
        bracket = f"{self.name}, {self.source}: stable up to {low}, collapsed from {high}"
        text = {
            "stable": f"at or below every product that is known to be stable ({bracket})",
            "unstable": f"at or above a product that is known to collapse ({bracket})",
            "between": f"between the largest stable and the smallest collapsed product ({bracket})",
            "unknown": f"not placed: this family has no usable bracket ({bracket})",
        }[self.position(product)]
        return f"S*eta = {sync_interval} * {lr:.3g} = {product:.3g} is {text}."

    def clock(self, lr: float) -> str | None:
        """What the clock of this family means at a learning rate; None where no run tells."""
        if self.c2_low is None or self.c2_high is None:
            return None
        return f"{self.c2_text}; c2/eta is {self.c2_high / lr:.4g} updates."

    @property
    def c2_text(self) -> str:
        """The clock's interval, where there is one, and whose it is."""
        return f"c2 in ({self.c2_low:.3g}, {self.c2_high:.3g}] of {self.name}, {self.source}"


@functools.cache
def published_brackets() -> tuple[Brackets, ...]:
    """Boundary and clock of the published runs, Llama-3.2 and Qwen3-8B apart [derived]."""
    runs = load_published()
    return tuple(
        brackets_of(*fit_models(runs, models), name, "published")
        for name, models in (("Llama-3.2-1B and 3B", LLAMA), ("Qwen3-8B", QWEN))
    )


def brackets_of(boundary: Boundary, clock: Clock, name: str, source: str) -> Brackets:
    """The brackets of a fitted boundary and clock."""
    low, high = clock.c2 or clock.c2_profile or (None, None)
    if clock.c2 is None and (not low or high is None or high > _WIDEST * low):
        low = high = None
    product = boundary.product
    return Brackets(name, product.stable_max, product.collapsed_min, low, high, source, product.refuted)


def reference_budget(brackets: tuple[Brackets, ...]) -> float | None:
    """The c2 that a survivor must outlive twice: the largest known, so that none is called a survivor too early."""
    return max((b.c2_high for b in brackets if b.c2_high is not None), default=None)


def save_calibration(path: Path, brackets: Brackets, details: dict[str, Any]) -> None:
    """Write a calibration file."""
    write_json(
        path,
        {
            "schema_version": SCHEMA_VERSION,
            "kind": "calibration",
            "brackets": asdict(brackets),
            **details,
        },
    )


def load_calibration(path: Path) -> tuple[Brackets, ...]:
    """The brackets of a calibration file; UserError where it is none."""
    try:
        value = json.loads(Path(path).read_text(encoding="utf-8"))
        brackets = value["brackets"]
        found = Brackets(**{name: brackets[name] for name in Brackets.__slots__})
    except FileNotFoundError:
        raise UserError(f"{path} does not exist; `collapse-laws calibrate` writes it.") from None
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(f"{path} is not a calibration file of `collapse-laws calibrate`.") from None
    for name in ("stable_max", "collapsed_min", "c2_low", "c2_high"):
        number = getattr(found, name)
        if number is not None and not (isinstance(number, int | float) and math.isfinite(number) and number > 0):
            raise UserError(f"{path}: {name} is {number!r}; allowed: a number above 0, or null.")
    return (found,)
