"""The one look of every figure: colours with a dark counterpart, markers, labels of outcomes, and byte-stable settings.

Each colour has a twin for dark pages; the page swaps them through CSS variables, so a figure is
drawn once. Lines over the learning rate take viridis, cut so that both twins stay legible;
categories take the Okabe-Ito colours. A marker says by shape what a colour says, so no verdict
hangs on colour alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import matplotlib
import numpy as np
import seaborn as sns

from collapse_laws.figures.palette import BAND, CATEGORIES, GRID, INK, MUTED, RATES

matplotlib.use("Agg")

__all__ = ["BAND", "GRID", "INK", "MUTED"]  # drawing modules take these from here
MARKERS = "osD^vPX<>"


def rate_colours(rates: Iterable[float]) -> dict[float, str]:
    """A colour for each learning rate, dark for the largest, by rank."""
    ordered = sorted(set(rates), reverse=True)
    slots = np.linspace(0, len(RATES) - 1, max(len(ordered), 2)).round().astype(int)
    return {rate: RATES[slot][0] for rate, slot in zip(ordered, slots, strict=False)}


def category_colours(values: Iterable) -> dict:
    """A colour for each value in the order given; colours repeat after six."""
    return {value: CATEGORIES[i % len(CATEGORIES)][0] for i, value in enumerate(dict.fromkeys(values))}


def category_markers(values: Iterable) -> dict:
    """A marker for each value in the order given."""
    return {value: MARKERS[i % len(MARKERS)] for i, value in enumerate(dict.fromkeys(values))}


def set_theme() -> None:
    """Seaborn's theme and the settings that make equal input give equal bytes."""
    sns.set_theme(
        context="notebook",
        style="ticks",
        rc={
            "figure.facecolor": "none",
            "axes.facecolor": "none",
            "savefig.facecolor": "none",
            "figure.dpi": 100,
            "font.family": "sans-serif",
            "font.sans-serif": ["DejaVu Sans"],
            "font.size": 10,
            "axes.titlesize": 10,
            "axes.labelsize": 10,
            "xtick.labelsize": 9,
            "ytick.labelsize": 9,
            "legend.fontsize": 9,
            "legend.frameon": False,
            "axes.edgecolor": MUTED,
            "axes.labelcolor": INK,
            "axes.titlecolor": INK,
            "axes.titlelocation": "left",
            "text.color": INK,
            "xtick.color": MUTED,
            "ytick.color": MUTED,
            "xtick.labelcolor": INK,
            "ytick.labelcolor": INK,
            "axes.grid": True,
            "axes.axisbelow": True,
            "grid.color": GRID,
            "grid.linewidth": 0.7,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.linewidth": 0.8,
            "lines.linewidth": 1.5,
            "patch.edgecolor": INK,
            "svg.hashsalt": "collapse-laws",
            "svg.fonttype": "none",
            "pdf.fonttype": 42,
            "axes.formatter.useoffset": False,
            "axes.unicode_minus": True,
        },
    )


def points_for(lines: int) -> int:
    """Points to draw of each of so many lines, so that a figure stays small: from 20 to 160."""
    return int(np.clip(24_000 / max(lines, 1), 20, 160))


def thin(x: Sequence[float], y: Sequence[float], points: int = 160) -> tuple[np.ndarray, np.ndarray]:
    """At most `points` points of a curve: means of equal runs of neighbours; a short curve as it is."""
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    keep = np.isfinite(x) & np.isfinite(y)
    x, y = x[keep], y[keep]
    if len(x) <= points:
        return x, y
    edges = np.linspace(0, len(x), points + 1).astype(int)
    counts = np.diff(edges)
    return np.add.reduceat(x, edges[:-1]) / counts, np.add.reduceat(y, edges[:-1]) / counts
