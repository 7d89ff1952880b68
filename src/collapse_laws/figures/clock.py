"""The collapse clock: onset intervals against the learning rate, against S x lr, and relative to the common clock.

Runs that collapsed enter with their interval (t - S, t] [derived]; survivors are on another branch
and are left out [stated]. Without a lasting collapse the first drops of oscillating runs are drawn,
and the title says so.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullLocator

from collapse_laws.figures.canvas import Drawing, blocks, nothing, plain_ticks
from collapse_laws.figures.series import describe, groups_drawn
from collapse_laws.figures.theme import BAND, MUTED, category_colours, category_markers
from collapse_laws.results import StudyResults
from collapse_laws.wording import interval, number


def draw_clock(results: StudyResults) -> Drawing:
    """One row of three panels for each (arm, model)."""
    drawing = Drawing()
    groups = groups_drawn(results, drawing.notes)
    onsets = {group: _onsets(results.group(*group)) for group in groups}
    if not any(len(cells) for cells, _ in onsets.values()):
        return nothing("No run of this study collapsed or dropped, so there is no onset to time.")
    intervals = sorted({s for cells, _ in onsets.values() for s in cells["sync_interval"]})
    looks = category_colours(intervals), category_markers(intervals)
    timed = [group for group in groups if len(onsets[group][0])]
    for group in groups:
        if group not in timed:
            drawing.notes.append(f"{group[1]}, {group[0]}: no run with S > 1 collapsed or dropped.")
    titles = [
        _title(results, group, _clock_laws(results, group, onsets[group][1]), onsets[group][1]) for group in timed
    ]
    drawing.figure, axes = blocks(titles, 1, [3] * len(titles), 3.4, 3.1)
    for group, (row,) in zip(timed, axes, strict=True):
        cells, event = onsets[group]
        laws = _clock_laws(results, group, event)
        scale = laws.get("c2_estimate") or float(np.median(cells["budget_high"]))
        _against_rate(row[0], cells, looks, drawing, laws.get("c2"), scale)
        _against_product(row[1], cells, looks, drawing, laws.get("c2"))
        _residuals(row[2], cells, looks, drawing, scale)
    handles = [
        Line2D([], [], color=looks[0][s], marker=looks[1][s], linewidth=1.5, label=f"S = {s}") for s in intervals
    ]
    handles.append(Line2D([], [], color=MUTED, linestyle="--", linewidth=1, label="t x lr constant (slope -1)"))
    drawing.figure.legend(handles=handles, loc="outside lower center", ncols=min(7, len(handles)))
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
    bars = cells.assign(low=cells[f"{prefix}_low"].astype(float), high=cells[f"{prefix}_high"].astype(float))
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


def _bar(panel: Axes, cell: pd.Series, looks, drawing: Drawing, x: float, low: float, high: float):
    """An onset interval, open below where it starts at 0, with a mark at its upper end."""
    colour, marker = looks[0][cell["sync_interval"]], looks[1][cell["sync_interval"]]
    bottom = low if low > 0 else high / 1e3  # (0, S] has no lower end on a logarithmic axis
    panel.plot([x, x], [bottom, high], color=colour, linewidth=2.2, solid_capstyle="butt", zorder=3)
    mark = panel.plot([x], [high], color=colour, marker=marker, markersize=6, linestyle="none", zorder=4)
    drawing.tip(mark[0], describe(cell))


def _fit(panel: Axes, low: pd.Series, high: pd.Series) -> None:
    """A logarithmic axis that shows all upper ends and every lower end that is not 0."""
    ends = pd.concat([low[low > 0], high / 2])
    panel.set_yscale("log")
    panel.set_ylim(ends.min() / 1.3, high.max() * 1.4)
    plain_ticks(panel.yaxis, ends.min(), high.max())


def _against_rate(panel: Axes, cells: pd.DataFrame, looks, drawing: Drawing, c2, scale) -> None:
    for _, cell in cells.iterrows():
        _bar(panel, cell, looks, drawing, cell["lr"] * cell["place"], cell["low"], cell["high"])
    x = np.array([cells["lr"].min() / 1.4, cells["lr"].max() * 1.4])
    if c2 is not None:
        panel.fill_between(x, c2[0] / x, c2[1] / x, color=BAND, linewidth=0, zorder=0)
    panel.plot(x, scale / x, color=MUTED, linestyle="--", linewidth=1, zorder=1)
    panel.set(xscale="log", xlabel="learning rate", ylabel="onset t (updates)", xlim=x)
    plain_ticks(panel.xaxis, *x)
    _fit(panel, cells["low"], cells["high"])


def _against_product(panel: Axes, cells: pd.DataFrame, looks, drawing: Drawing, c2) -> None:
    product = cells["lr"] * cells["sync_interval"]
    for (_, cell), x in zip(cells.iterrows(), product * cells["place"], strict=True):
        _bar(panel, cell, looks, drawing, x, cell["budget_low"], cell["budget_high"])
    if c2 is not None:
        panel.axhspan(c2[0], c2[1], color=BAND, linewidth=0, zorder=0)
    panel.set(xscale="log", xlabel="S x learning rate", ylabel="onset x learning rate")
    plain_ticks(panel.xaxis, product.min(), product.max())
    _fit(panel, cells["budget_low"], cells["budget_high"])
    panel.set_title("flat under law (ii)")


def _residuals(panel: Axes, cells: pd.DataFrame, looks, drawing: Drawing, scale: float) -> None:
    low, high = cells["budget_low"] / scale, cells["budget_high"] / scale
    spots = cells["sync_interval"] * _seed_places(cells)
    for (_, cell), x, bottom, top in zip(cells.iterrows(), spots, low, high, strict=True):
        _bar(panel, cell, looks, drawing, x, bottom, top)
    panel.axhline(1, color=MUTED, linewidth=1, linestyle="--")
    intervals = sorted(cells["sync_interval"].unique())
    panel.set(xscale="log", xlabel="S", ylabel="onset / clock")
    panel.set_xlim(intervals[0] / 1.6, intervals[-1] * 1.6)
    panel.xaxis.set_major_locator(FixedLocator(intervals))
    panel.xaxis.set_minor_locator(NullLocator())
    panel.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    _fit(panel, low, high)
    panel.set_title(f"relative to t x lr = {number(scale)}")


def _seed_places(cells: pd.DataFrame) -> pd.Series:
    """A factor near 1 that keeps bars of equal S apart."""
    rank = cells.groupby("sync_interval")["lr"].rank(method="first")
    count = cells.groupby("sync_interval")["lr"].transform("size")
    return 1 + np.minimum(0.09, 0.5 / count) * (rank - (count + 1) / 2)


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
