"""Scores of saved policies on the study's benchmarks, with the intervals that the evaluation gives."""

from __future__ import annotations

import numpy as np
import pandas as pd

from collapse_laws.evaluation_table import collect
from collapse_laws.figures.canvas import Drawing, nothing, panels, title
from collapse_laws.figures.series import legend
from collapse_laws.figures.theme import category_markers, rate_colours
from collapse_laws.results import StudyResults
from collapse_laws.wording import number

MAX_BENCHMARKS = 8
_ABSENT = "No checkpoint of this study has been evaluated on this machine."


def evaluation_frame(results: StudyResults) -> pd.DataFrame:
    """All evaluations of the study, one row a score; empty where there is none."""
    folder = results.root / "evals" / results.name
    if next(folder.glob("*/*/*.json"), None) is None:
        return pd.DataFrame()
    return collect(folder, results.root / "runs" / results.name)


def draw_evaluation(results: StudyResults) -> Drawing:
    """One panel for each benchmark: the reported score over learner updates, one line for each cell."""
    frame = evaluation_frame(results)
    if frame.empty:
        return nothing(_ABSENT)
    frame = frame[frame["primary"]]
    names = list(dict.fromkeys(frame["benchmark"]))
    notes = []
    if len(names) > MAX_BENCHMARKS:
        notes.append(f"The first {MAX_BENCHMARKS} of {len(names)} benchmarks are drawn.")
        names = names[:MAX_BENCHMARKS]
    columns = min(4, len(names))
    rows = -(-len(names) // columns)
    figure, axes = panels(rows, columns, 2.6 if columns > 2 else 4, 2.6)
    colours, markers = (
        rate_colours(frame["lr"]),
        category_markers(sorted(set(frame["sync_interval"]))),
    )
    for panel, name in zip(axes.ravel(), names, strict=False):
        here = frame[frame["benchmark"] == name]
        for _, cell in here.groupby("cell", sort=False):
            _line(panel, cell, colours, markers)
        title(panel, f"{name}, {here['metric'].iloc[0]}")
        panel.set_xlabel("learner updates")
        panel.set_ylim(-0.03, 1.03)
    for panel in axes.ravel()[len(names) :]:
        panel.set_axis_off()
    for row in axes:
        row[0].set_ylabel("score")
    legend(figure, colours, "lr", text=number)
    notes.append("Markers by S: " + ", ".join(f"{_MARK_WORDS[m]} S = {s}" for s, m in markers.items()) + ".")
    return Drawing(figure, frame.reset_index(drop=True), notes=notes)


_MARK_WORDS = {
    "o": "circle", "s": "square", "D": "diamond", "^": "triangle", "v": "triangle down",
    "P": "plus", "X": "cross", "<": "triangle left", ">": "triangle right",
}  # fmt: skip


def _line(panel, cell: pd.DataFrame, colours, markers) -> None:
    cell = cell[cell["t"].notna()].sort_values("t")
    if cell.empty:
        return
    first = cell.iloc[0]
    t, mean = cell["t"].to_numpy(dtype=float), cell["mean"].to_numpy(dtype=float)
    ends = np.vstack([mean - cell["low"], cell["high"] - mean]).clip(min=0)
    panel.errorbar(
        t, mean, yerr=ends, color=colours[first["lr"]], marker=markers[first["sync_interval"]],
        markersize=5, linewidth=1.1, elinewidth=0.9, capsize=2,
    )  # fmt: skip
