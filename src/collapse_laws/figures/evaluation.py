"""Scores of saved policies on the study's benchmarks, with the intervals that the evaluation gives."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullLocator
from numpy.typing import ArrayLike

from collapse_laws.evaluation_table import collect
from collapse_laws.figures.canvas import Drawing, grid, nothing, title
from collapse_laws.figures.series import legend
from collapse_laws.figures.theme import MUTED, category_colours, category_markers, rate_colours
from collapse_laws.results import StudyResults
from collapse_laws.wording import number

MAX_PANELS = 12
_ABSENT = "No checkpoint of this study has been evaluated on this machine."


def evaluation_frame(results: StudyResults) -> pd.DataFrame:
    """All evaluations of the study, one row a score; empty where there is none."""
    return collect(results.root / "evals" / results.name, results.root / "runs" / results.name, results.planned)


def draw_evaluation(results: StudyResults) -> Drawing:
    """One panel for each benchmark: the reported score over learner updates, one line for each cell.

    Where no cell has more than its last policy scored, one panel for each arm, model and benchmark instead: the score
    over the learning rate, seeds of one S side by side.
    """
    frame = evaluation_frame(results)
    if frame.empty:
        return nothing(_ABSENT)
    frame = frame[frame["primary"] & frame["t"].notna()]
    over_time = frame.groupby(["cell", "benchmark"])["t"].nunique().max() > 1
    keys = ["benchmark"] if over_time else ["arm", "model", "benchmark"]
    found = dict(iter(frame.groupby(keys, sort=False)))
    if not over_time:
        found = {key: found[key] for key in sorted(found, key=lambda key: results.groups.index(key[:2]))}
    notes = []
    if len(found) > MAX_PANELS:
        notes.append(f"The first {MAX_PANELS} of {len(found)} panels are drawn.")
        found = dict(list(found.items())[:MAX_PANELS])
    columns = min(3, len(found))
    figure, axes = grid(len(found), columns, 3.5 if columns > 1 else 6.4, 2.8, "score", sharey=True)
    intervals = sorted(set(frame["sync_interval"]))
    markers = category_markers(intervals)
    colours = rate_colours(frame["lr"]) if over_time else category_colours(intervals)
    for panel, (key, here) in zip(axes.ravel(), found.items(), strict=False):
        if over_time:
            for _, cell in here.groupby("cell", sort=False):
                cell = cell.sort_values("t")
                colour, marker = colours[cell["lr"].iloc[0]], markers[cell["sync_interval"].iloc[0]]
                _scores(panel, cell["t"], cell, colour, marker, linewidth=1.1)
        else:
            for interval, cells in here.groupby("sync_interval"):
                _scores(panel, _beside(cells, intervals), cells, colours[interval], markers[interval], linestyle="none")
            panel.set_xscale("log")
            rates = sorted(set(here["lr"]))
            panel.xaxis.set_major_locator(FixedLocator(rates))
            panel.xaxis.set_minor_locator(NullLocator())
            panel.set_xticklabels([number(rate) for rate in rates])
        title(panel, ", ".join([*key[:-1][::-1], f"{key[-1]}, {here['metric'].iloc[0]}"]))
        panel.set(xlabel="learner updates" if over_time else "learning rate", ylim=(-0.03, 1.03))
    shapes = [(f"S = {s}", _mark(marker, MUTED if over_time else colours[s])) for s, marker in markers.items()]
    legend(figure, colours if over_time else {}, "lr", shapes, number)
    return Drawing(figure, frame.reset_index(drop=True), notes=notes)


def _mark(marker: str, colour: str) -> Line2D:
    return Line2D([], [], linestyle="none", marker=marker, color=colour, markersize=6)


def _beside(cells: pd.DataFrame, intervals: list[int]) -> np.ndarray:
    """Learning rates [scores], moved apart so that S values and the seeds of one S lie side by side."""
    place = cells["sync_interval"].map(intervals.index) - (len(intervals) - 1) / 2
    count = cells.groupby("lr")["seed"].transform("size")
    seed = cells.groupby("lr").cumcount() - (count - 1) / 2
    return cells["lr"].to_numpy() * 1.1 ** (place + 0.25 * seed).to_numpy(dtype=float)


def _scores(panel: Axes, x: ArrayLike, scores: pd.DataFrame, colour: str, marker: str, **line: object) -> None:
    mean = scores["mean"].to_numpy(dtype=float)
    ends = np.vstack([mean - scores["low"], scores["high"] - mean]).clip(min=0)
    panel.errorbar(x, mean, yerr=ends, color=colour, marker=marker, markersize=5, elinewidth=0.9, capsize=2, **line)
