"""The boundary map: every run at (S, learning rate), the band that separates outcomes, and what law
(i) asks (slope -1)."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullLocator

from collapse_laws.figures.canvas import Drawing, grid, legend_columns, nothing, title, wrapped
from collapse_laws.figures.series import describe, groups_drawn
from collapse_laws.figures.theme import BAND, INK, MUTED, category_colours
from collapse_laws.results import LABELS, StudyResults
from collapse_laws.wording import WORDS, interval, number

_COLOURS = category_colours(["survived", "collapsed", "oscillating"])
COLUMNS_OF_PANELS = 3


def draw_boundary(results: StudyResults) -> Drawing:
    """One panel for each (arm, model)."""
    if results.cells.empty:
        return nothing("The study has no cells.")
    drawing = Drawing()
    groups = groups_drawn(results, drawing.notes)
    columns = min(COLUMNS_OF_PANELS, len(groups))
    width = 6.4 if columns == 1 else 10.2 / columns
    figure, axes = grid(len(groups), columns, width, 4.3)
    drawing.figure = figure
    frames = []
    for panel, group in zip(axes.ravel(), groups, strict=False):
        cells = _spread(results.group(*group))
        laws = results.group_laws(*group).get("boundary") or {}
        _band(panel, cells, laws)
        for _, cell in cells.iterrows():
            drawing.tip(_point(panel, cell), describe(cell))
        _axes(panel, cells)
        title(panel, _title(results, group, laws, width - 0.9), fontsize=9)
        frames.append(cells)
    axes[0, 0].set_ylabel("learning rate")
    _legend(figure, pd.concat(frames)["label"].unique())
    names = "arm model sync_interval lr seed label updates horizon_clocks collapse_index onset_low onset_high"
    drawing.data = pd.concat(frames)[names.split()].reset_index(drop=True)
    return drawing


def _spread(cells: pd.DataFrame) -> pd.DataFrame:
    """Cells with a horizontal place: seeds of one (S, lr) lie side by side, and the horizon in reference clocks."""
    cells = cells.sort_values(["sync_interval", "lr", "seed"]).copy()
    place = cells.groupby(["sync_interval", "lr"]).cumcount()
    count = cells.groupby(["sync_interval", "lr"])["seed"].transform("size")
    step = np.minimum(0.24, 0.8 / count)
    cells["x"] = np.log2(cells["sync_interval"].astype(float)) + step * (place - (count - 1) / 2)
    updates = cells["updates"].astype("float64")
    cells["horizon_clocks"] = updates * cells["lr"] / cells["reference_lr_budget"]
    return cells


def _band(panel: Axes, cells: pd.DataFrame, laws: dict) -> None:
    """The separating band of S x lr, or the overlap where the product does not separate."""
    product = laws.get("product") or {}
    low, high = product.get("stable_max"), product.get("collapsed_min")
    x = np.array([cells["x"].min() - 0.5, cells["x"].max() + 0.5])
    for value in (low, high):
        if value is not None:
            panel.plot(x, value / 2**x, color=MUTED, linewidth=1, linestyle="--", zorder=1)
    if low is not None and high is not None:
        panel.fill_between(x, low / 2**x, high / 2**x, color=BAND, linewidth=0, zorder=0)


def _point(panel: Axes, cell: pd.Series) -> Line2D:
    label = cell["label"]
    style = dict(_style(label))
    if label == "survived" and pd.notna(cell["horizon_clocks"]):
        style["markersize"] = float(np.clip(5 + 1.6 * cell["horizon_clocks"], 6, 14))
    return panel.plot([cell["x"]], [cell["lr"]], linestyle="none", zorder=3, **style)[0]


def _style(label: str) -> dict:
    colour = _COLOURS.get(label, MUTED)
    base = {"marker": "o", "markersize": 9, "color": colour, "markeredgecolor": colour}
    return {
        "collapsed": base,
        "oscillating": {**base, "fillstyle": "left", "markerfacecoloralt": "none"},
        "survived": {**base, "markerfacecolor": "none", "markeredgewidth": 1.6},
        "undecided": {"marker": "$?$", "markersize": 9, "color": INK},
        "no_signal": {"marker": "x", "markersize": 7, "color": MUTED, "markeredgewidth": 1.6},
        "failed": {"marker": "+", "markersize": 10, "color": INK, "markeredgewidth": 1.6},
        "not_run": {"marker": ".", "markersize": 4, "color": MUTED},
    }[label]


def _axes(panel: Axes, cells: pd.DataFrame) -> None:
    panel.set_yscale("log")
    intervals = sorted(cells["sync_interval"].unique())
    panel.xaxis.set_major_locator(FixedLocator([float(np.log2(s)) for s in intervals]))
    panel.set_xticklabels([str(s) for s in intervals])
    every = sorted(cells["lr"].unique(), reverse=True)
    apart = (np.log(every[0]) - np.log(every[-1])) / 14  # labels closer than this would overlap
    rates = every[:1]
    for rate in every[1:]:
        if np.log(rates[-1]) - np.log(rate) >= apart:
            rates.append(rate)
    panel.yaxis.set_major_locator(FixedLocator(rates))
    panel.yaxis.set_minor_locator(NullLocator())
    panel.set_yticklabels([number(rate) for rate in rates])
    panel.set_xlim(cells["x"].min() - 0.5, cells["x"].max() + 0.5)
    panel.set_ylim(every[-1] / 1.6, every[0] * 1.6)
    panel.set_xlabel("synchronisation interval S (updates)")


def _title(results: StudyResults, group: tuple[str, str], laws: dict, inches: float) -> str:
    arm, model = group
    lines = [f"{model}: {results.arms.get(arm, arm)}"]
    if not laws:
        lines.append("law (i): not fitted")
    else:
        alpha = laws.get("alpha")
        lines.append(f"law (i): {laws['verdict']}")
        unknown = alpha is None or alpha[0] is None and alpha[1] is None
        lines.append("slope not bounded" if unknown else f"slope -alpha, alpha in {interval(alpha)}")
    return "\n".join(wrapped(line, inches, 9) for line in lines)


def _legend(figure, present: np.ndarray) -> None:
    handles = [
        Line2D([], [], linestyle="none", label=WORDS[label], **_style(label)) for label in LABELS if label in present
    ]
    handles.append(Line2D([], [], color=MUTED, linestyle="--", linewidth=1, label="S x lr constant (slope -1)"))
    fit = legend_columns(figure, [handle.get_label() for handle in handles])
    figure.legend(handles=handles, loc="outside lower center", ncols=fit)
