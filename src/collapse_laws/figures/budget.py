"""Reward against cumulative learning rate: under law (ii) the drops of all collapsing runs line up."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from collapse_laws.figures.canvas import Drawing, nothing
from collapse_laws.figures.multiples import small_multiples
from collapse_laws.figures.series import Run, collapse_handle, legend, stack, tidy
from collapse_laws.figures.theme import MUTED, points_for, thin
from collapse_laws.results import StudyResults
from collapse_laws.wording import number


def draw_by_budget(results: StudyResults) -> Drawing:
    """One row for each group, one column for each S; x: sum of learning rates, logarithmic."""
    notes: list[str] = []
    grid = small_multiples(results, 1, 2.2, notes, sharex=True, sharey=True)
    if grid is None:
        return nothing("No run record of this study is on this machine.")
    points, frames = points_for(grid.runs), []
    for (panel,), here, first in grid.columns:
        frames += [_line(panel, run, grid.colours, points) for run in here]
        panel.set(xscale="log", ylim=(-0.03, 1.03), xlabel="sum of learning rates", ylabel="reward" if first else "")
    grey = ("survived", Line2D([], [], color=MUTED, linewidth=1))
    legend(grid.figure, grid.colours, "lr", [grey, collapse_handle()], number)
    return Drawing(grid.figure, stack(frames), notes=notes)


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
