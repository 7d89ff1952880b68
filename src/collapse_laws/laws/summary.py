"""The fits of a study as a few lines of text for the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from collapse_laws.laws.observation import interval_text


def summary(group: Mapping[str, Any]) -> list[str]:
    """The fits of one (arm, model) as lines of text."""
    counts = ", ".join(f"{number} {label}" for label, number in group["counts"].items() if number)
    if group["not_run"]:
        counts = f"{counts}, {group['not_run']} not run" if counts else f"{group['not_run']} not run"
    boundary, clock = group["boundary"], group["clock"]
    product = boundary["product"]
    lines = [
        f"{group['arm']} / {group['model']}: {counts}",
        f"  S*eta: stable up to {_number(product['stable_max'])}, collapsed from {_number(product['collapsed_min'])}",
        f"  law (i)  {boundary['verdict']}: {boundary['reason']}",
        f"  c2 = t*eta: {_half_open(clock['c2'])}; median {interval_text(clock['c2_profile'])}",
        f"  law (ii) {clock['verdict']}: {clock['reason']}",
    ]
    if product["refuted"]:
        stable, collapsed = product["violating_pair"]
        lines.insert(
            2,
            f"  constant S*eta is contradicted by {stable['cell']} (stable) and {collapsed['cell']} (unstable)",
        )
    return lines


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.4g}"


def _half_open(interval: list[float] | tuple[float, float] | None) -> str:
    return "no value in all intervals" if interval is None else f"({interval[0]:.4g}, {interval[1]:.4g}]"
