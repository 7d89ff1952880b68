"""The collapse clock: onset intervals against the learning rate, against S x lr, and relative to the common clock.

Runs that collapsed enter with their interval (t - S, t] [derived]; survivors are on another branch and are left out [stated].
Without a lasting collapse the first drops of oscillating runs are drawn, and the title says so.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from collapse_laws.figures.canvas import Drawing, nothing, panels, say
from collapse_laws.figures.series import describe, groups_drawn
from collapse_laws.figures.theme import BAND, MUTED, category_colours, category_markers
from collapse_laws.results import StudyResults
from collapse_laws.wording import interval


def draw_clock(results: StudyResults) -> Drawing:
    """One row of three panels for each (arm, model)."""
    drawing = Drawing()
    groups = groups_drawn(results, drawing.notes)
    onsets = {group: _onsets(results.group(*group)) for group in groups}
    if not any(len(cells) for cells, _ in onsets.values()):
        return nothing("No run of this study collapsed or dropped, so there is no onset to time.")
    intervals = sorted({s for cells, _ in onsets.values() for s in cells["sync_interval"]})
    looks = category_colours(intervals), category_markers(intervals)
    figure, axes = panels(len(groups), 3, 3.5, 3.5)
    drawing.figure = figure
    for row, group in zip(axes, groups, strict=True):
        cells, event = onsets[group]
        laws = _clock_laws(results, group, event)
        if cells.empty:
            for panel in row:
                say(panel, "no run collapsed" if panel is row[0] else "")
        else:
            c2 = laws.get("c2")
            scale = laws.get("c2_estimate") or _middle(cells)
            _against_rate(row[0], cells, looks, drawing, c2)
            _against_product(row[1], cells, looks, c2)
            _residuals(row[2], cells, looks, scale)
        row[0].set_title(_title(results, group, laws, event), parse_math=False)
    handles = [
        Line2D([], [], color=looks[0][s], marker=looks[1][s], linewidth=1.5, label=f"S = {s}")
        for s in intervals
    ]
    handles.append(Line2D([], [], color=MUTED, linestyle="--", linewidth=1, label="t x lr constant (slope -1)"))
    figure.legend(handles=handles, loc="outside lower center", ncols=min(7, len(handles)))
    kept = [cells.assign(event=event) for cells, event in onsets.values() if len(cells)]
    names = "arm model sync_interval lr seed label event low high budget_low budget_high"
    drawing.data = pd.concat(kept)[names.split()].reset_index(drop=True)
    return drawing


def _onsets(cells: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """The group's onset intervals: of collapses, or of first drops where nothing collapsed. S = 1 has no clock."""
    cells = cells[cells["sync_interval"] > 1]
    collapsed = cells[(cells["label"] == "collapsed") & cells["onset_high"].notna()]
    if len(collapsed):
        return _bars(collapsed, "onset"), "collapse"
    return _bars(cells[cells["first_drop_high"].notna()], "first_drop"), "first drop"


def _bars(cells: pd.DataFrame, prefix: str) -> pd.DataFrame:
    bars = cells.assign(
        low=cells[f"{prefix}_low"].astype(float), high=cells[f"{prefix}_high"].astype(float)
    )
    bars["budget_low"], bars["budget_high"] = bars["low"] * bars["lr"], bars["high"] * bars["lr"]
    bars["place"] = _places(bars)
    return bars.sort_values(["sync_interval", "lr", "seed"])


def _places(bars: pd.DataFrame) -> pd.Series:
    """A factor near 1 that keeps bars of equal learning rate apart: by S, then by seed."""
    rank = bars.groupby("lr")["sync_interval"].rank(method="first")
    count = bars.groupby("lr")["sync_interval"].transform("size")
    return 1 + np.minimum(0.05, 0.24 / count) * (rank - (count + 1) / 2)


def _clock_laws(results: StudyResults, group: tuple[str, str], event: str) -> dict:
    laws = results.group_laws(*group)
    return laws.get("clock" if event == "collapse" else "clock_first_drop") or {}


def _middle(cells: pd.DataFrame) -> float:
    return float(np.sqrt(np.median(cells["budget_high"]) * max(np.median(cells["budget_low"]), 1e-12)))


def _bar(panel: Axes, cell: pd.Series, looks, x: float, low: float, high: float):
    colour, marker = looks[0][cell["sync_interval"]], looks[1][cell["sync_interval"]]
    bottom = max(low, high / 50)  # (0, S] has no lower end on a logarithmic axis
    panel.plot([x, x], [bottom, high], color=colour, linewidth=2.2, solid_capstyle="butt", zorder=3)
    return panel.plot([x], [high], color=colour, marker=marker, markersize=6, linestyle="none", zorder=4)[0]


def _against_rate(panel: Axes, cells: pd.DataFrame, looks, drawing: Drawing, c2) -> None:
    for _, cell in cells.iterrows():
        drawing.tip(
            _bar(panel, cell, looks, cell["lr"] * cell["place"], cell["low"], cell["high"]),
            describe(cell),
        )
    x = np.geomspace(cells["lr"].min() / 1.4, cells["lr"].max() * 1.4, 2)
    if c2 is not None:
        panel.fill_between(x, c2[0] / x, c2[1] / x, color=BAND, linewidth=0, zorder=0)
    middle = c2[1] if c2 is not None else _middle(cells)
    panel.plot(x, middle / x, color=MUTED, linestyle="--", linewidth=1, zorder=1)
    panel.set(xscale="log", yscale="log", xlabel="learning rate", ylabel="onset t (updates)")


def _against_product(panel: Axes, cells: pd.DataFrame, looks, c2) -> None:
    for _, cell in cells.iterrows():
        x = cell["lr"] * cell["sync_interval"] * cell["place"]
        _bar(panel, cell, looks, x, cell["budget_low"], cell["budget_high"])
    if c2 is not None:
        panel.axhspan(c2[0], c2[1], color=BAND, linewidth=0, zorder=0)
    panel.set(xscale="log", yscale="log", xlabel="S x learning rate", ylabel="onset x learning rate")
    panel.set_title("flat under law (ii)")


def _residuals(panel: Axes, cells: pd.DataFrame, looks, scale: float) -> None:
    for _, cell in cells.iterrows():
        x = cell["sync_interval"] * cell["place"] ** 2
        _bar(panel, cell, looks, x, cell["budget_low"] / scale, cell["budget_high"] / scale)
    panel.axhline(1, color=MUTED, linewidth=1)
    intervals = sorted(cells["sync_interval"].unique())
    panel.set(xscale="log", yscale="log", xlabel="S", ylabel="onset relative to the clock")
    panel.set_xticks(intervals, [str(s) for s in intervals])
    panel.minorticks_off()
    panel.set_title(f"clock: t x lr = {scale:.3g}")


def _title(results: StudyResults, group: tuple[str, str], laws: dict, event: str) -> str:
    arm, model = group
    head = f"{model}: {results.arms.get(arm, arm)}"
    if event != "collapse":
        head += " (first drops, for nothing collapsed)"
    if not laws:
        return f"{head}\nlaw (ii): not fitted"
    c2 = laws.get("c2")
    text = "no c2 in common" if c2 is None else f"c2 in {interval(c2, '(]')}"
    return f"{head}\nlaw (ii): {laws['verdict']}; {text}"
