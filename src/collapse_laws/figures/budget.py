"""Reward against cumulative learning rate: under law (ii) the drops of all collapsing runs line up."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from collapse_laws.figures.canvas import Drawing, blocks, nothing, say, title
from collapse_laws.figures.series import (
    Run,
    collapse_handle,
    columns_drawn,
    group_title,
    groups_drawn,
    legend,
    missing_note,
    runs,
    stack,
    tidy,
)
from collapse_laws.figures.theme import MUTED, points_for, rate_colours, thin
from collapse_laws.results import StudyResults
from collapse_laws.wording import number


def draw_by_budget(results: StudyResults) -> Drawing:
    """One row for each group, one column for each S; x: sum of learning rates, logarithmic."""
    notes: list[str] = []
    found = runs(results, results.cells)
    if not found:
        return nothing("No run record of this study is on this machine.")
    missing_note(results.cells, found, notes)
    groups = groups_drawn(results, notes)
    intervals = columns_drawn((run.cell["sync_interval"] for run in found), notes)
    colours = rate_colours(run.cell["lr"] for run in found)
    width = max(2.3, 9.6 / len(intervals)) if len(intervals) > 1 else 6.4
    titles = [group_title(results, *group) for group in groups]
    figure, axes = blocks(titles, 1, len(intervals), width, 2.2, sharex=True, sharey=True)
    points, frames = points_for(len(found)), []
    for group, (row,) in zip(groups, axes, strict=True):
        members = [run for run in found if (run.cell["arm"], run.cell["model"]) == group]
        for panel, interval in zip(row, intervals, strict=True):
            here = [run for run in members if run.cell["sync_interval"] == interval]
            frames += [_line(panel, run, colours, points) for run in here]
            title(panel, f"S = {interval}")
            panel.set(xscale="log", ylim=(-0.03, 1.03), xlabel="sum of learning rates")
            if not here:
                say(panel, "not run")
        row[0].set_ylabel("reward")
    grey = ("survived", Line2D([], [], color=MUTED, linewidth=1))
    legend(figure, colours, "lr", [grey, collapse_handle()], number)
    return Drawing(figure, stack(frames), notes=notes)


def _line(panel: Axes, run: Run, colours: dict, points: int) -> pd.DataFrame:
    x, y = thin(*run.series("reward"), points)
    budget = run.lr_budget
    spent = budget[np.minimum(x.astype(int), len(budget) - 1)]
    survived = run.cell["label"] == "survived"
    colour = MUTED if survived else colours[run.cell["lr"]]
    shown = spent > 0  # a logarithmic axis has no place for the start
    panel.plot(
        spent[shown], y[shown], color=colour, linewidth=1 if survived else 1.5,
        marker="." if shown.sum() < 3 else None, zorder=2 if survived else 3,
    )  # fmt: skip
    if run.cell["label"] == "collapsed":
        at = float(run.cell["collapse_step"]) * run.cell["lr"]
        panel.plot([at], [0.0], marker="v", color=colour, markersize=7, clip_on=False, zorder=5)
    return tidy(run, "reward", x, y, lr_budget=spent)
