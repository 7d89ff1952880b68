"""Reward, gradient cosine and validation reward over learner updates (counterparts of Figures 1, 2 and 6).

A long curve is drawn as means over equal runs of neighbouring points.
"""

from __future__ import annotations

import numpy as np

from collapse_laws.figures.canvas import Drawing, nothing, panels, say, title
from collapse_laws.figures.multiples import small_multiples
from collapse_laws.figures.series import (
    QUANTITIES,
    Run,
    collapse_handle,
    legend,
    mark_collapse,
    reward_at,
    runs,
    stack,
    tidy,
)
from collapse_laws.figures.theme import MUTED, category_colours, points_for, thin
from collapse_laws.results import StudyResults
from collapse_laws.wording import number

MAX_SURVIVORS = 12


def draw_curves(results: StudyResults) -> Drawing:
    """Rows: reward, cosine, validation of each group; columns: S; colour: learning rate."""
    notes: list[str] = []
    grid = small_multiples(results, len(QUANTITIES), 1.5, notes, sharex="col", sharey="row")
    if grid is None:
        return nothing("No run record of this study is on this machine.")
    points, frames = points_for(3 * grid.runs), []
    for column, here, first in grid.columns:
        for panel, (quantity, words) in zip(column, QUANTITIES.items(), strict=True):
            frames += [_line(panel, run, quantity, grid.colours, points) for run in here]
            _dress(panel, quantity, words if first else "")
        column[-1].set_xlabel("learner updates")
    legend(grid.figure, grid.colours, "lr", [collapse_handle()], number)
    return Drawing(grid.figure, stack(frames), notes=notes)


def _line(panel, run: Run, quantity: str, colours: dict, points: int):
    colour = colours[run.cell["lr"]]
    x, y = thin(*run.series(quantity), points)
    if len(x):
        panel.plot(x, y, color=colour, linewidth=1.3, marker="." if len(x) < 3 else None, alpha=0.9)
    if quantity == "reward":
        mark_collapse(panel, run.cell, reward_at(run, run.cell["collapse_index"]), colour)
    return tidy(run, quantity, x, y)


def _dress(panel, quantity: str, words: str) -> None:
    panel.set_ylabel(words)
    if quantity == "cosine":
        panel.axhline(0, color=MUTED, linewidth=0.8)
    else:
        panel.set_ylim(-0.03, 1.03)


def draw_long_horizon(results: StudyResults) -> Drawing:
    """Survivors, longest first, over time in units of c2/lr; rows: reward, cosine, validation."""
    notes: list[str] = []
    cells = results.cells[results.cells["label"] == "survived"]
    if cells.empty:
        return nothing("No run of this study survived twice its reference clock.")
    found = runs(results, cells)
    if not found:
        return nothing("The survivors' run records are not on this machine.")
    found.sort(key=lambda run: -run.cell["sync_interval"] * run.cell["lr"])
    if len(found) > MAX_SURVIVORS:
        notes.append(f"The {MAX_SURVIVORS} survivors with the largest S x lr of {len(found)} are drawn.")
        found = found[:MAX_SURVIVORS]
    colours = category_colours(sorted({run.cell["sync_interval"] for run in found}))
    figure, axes = panels(1, len(QUANTITIES), 3.6, 2.9)
    frames = []
    for panel, (quantity, words) in zip(axes[0], QUANTITIES.items(), strict=True):
        for run in found:
            x, y = run.series(quantity)
            x, y = thin(x, y, 120)
            clock = x * run.cell["lr"] / run.cell["reference_lr_budget"]
            panel.plot(clock, y, color=colours[run.cell["sync_interval"]], linewidth=1.1, alpha=0.85)
            frames.append(tidy(run, quantity, x, y, reference_clocks=clock))
        for at in (1, 2):
            panel.axvline(at, color=MUTED, linewidth=1, linestyle=":" if at == 2 else "--")
        title(panel, words)
        panel.set_xlabel("time in reference clocks c2/lr")
        if quantity != "cosine":
            panel.set_ylim(-0.03, 1.03)
        if quantity == "cosine" and not any(np.isfinite(f["value"]).any() for f in frames[-len(found) :]):
            say(panel, "not recorded")
    legend(figure, colours, "S =")
    return Drawing(figure, stack(frames), notes=notes)
