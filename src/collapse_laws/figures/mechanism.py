"""What the theory says of the inside of a run, where the record measured it (paper, Appendix A.9).

Displacement grows with the sum of learning rates under coherent drift and with the root of the sum
of their squares under diffusion [stated]; staleness bends the field by an amount that grows with
the distance from the snapshot (eq. 9) [derived]; a feedback cosine above 0 means that the stale
part of the field pushes on along that distance. Colour and line style tell the outcome.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from collapse_laws.figures.canvas import Drawing, blocks, nothing, plain_ticks, say, title
from collapse_laws.figures.series import Run, group_title, groups_drawn, runs, stack
from collapse_laws.figures.theme import MUTED, category_colours, thin
from collapse_laws.results import LABELS, StudyResults
from collapse_laws.wording import WORDS

MAX_RUNS = 18  # of one group
_COLOURS = category_colours(["survived", "collapsed", "oscillating"])
_STYLES = {"survived": "-", "collapsed": (0, (4, 1.5)), "oscillating": (0, (1, 1))}
Points = tuple[np.ndarray, np.ndarray]


def draw_mechanism(results: StudyResults) -> Drawing:
    """Six panels for each group; a panel without data says so."""
    notes: list[str] = []
    groups = groups_drawn(results, notes)
    members = {group: _members(results, group, notes) for group in groups}
    members = {group: found for group, found in members.items() if found}
    if not members:
        return nothing("No run record of this study is on this machine.")
    titles = [group_title(results, *group) for group in members]
    figure, axes = blocks(titles, 2, [3] * len(titles), 3.4, 2.2)
    frames = []
    for found, block in zip(members.values(), axes, strict=True):
        for panel, (name, draw) in zip(block.ravel(), _PANELS.items(), strict=True):
            frames += draw(panel, name, found)
    present = [
        label for label in LABELS if any(run.cell["label"] == label for found in members.values() for run in found)
    ]
    handles = [Line2D([], [], label=WORDS[label], **_look(label)) for label in present]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), handlelength=2.6)
    return Drawing(figure, stack(frames), notes=notes)


def _members(results: StudyResults, group: tuple[str, str], notes: list[str]) -> list[Run]:
    cells = results.group(*group)
    done = cells[cells["label"] != "not_run"]
    order = (done["sync_interval"].astype(float) * done["lr"]).sort_values(kind="stable").index
    if len(order) > MAX_RUNS:
        notes.append(f"{group[1]}, {group[0]}: {MAX_RUNS} of {len(order)} runs are drawn.")
        order = [order[i * len(order) // MAX_RUNS] for i in range(MAX_RUNS)]
    return runs(results, done.loc[order])


def _look(label: str) -> dict:
    return {
        "color": _COLOURS.get(label, MUTED),
        "linestyle": _STYLES.get(label, (0, (3, 1, 1, 1))),
        "linewidth": 1.2,
    }


def _lines(
    panel: Axes, name: str, found: list[Run], points: Callable[[Run], Points], markers: bool = False
) -> list[pd.DataFrame]:
    """Draw each run's points; returns them as rows. Without any, the panel says so."""
    frames = []
    for run in found:
        x, y = points(run)
        if len(x):
            look = _look(run.cell["label"])
            if markers:
                look |= {"marker": "o", "markersize": 3, "linewidth": 0.7}
            panel.plot(x, y, **look)
            head = {n: run.cell[n] for n in "arm model sync_interval lr seed label".split()}
            frames.append(pd.DataFrame({**head, "panel": name, "x": x, "y": y}))
    if not frames:
        say(panel, "not recorded in these runs")
    return frames


def _slope_one(panel: Axes) -> None:
    low, high = panel.get_xlim()
    bottom, top = panel.get_ylim()
    x = np.array([low, high])
    middle = np.sqrt(bottom * top) / np.sqrt(low * high)
    panel.plot(x, x * middle, color=MUTED, linestyle="--", linewidth=1, zorder=1)
    panel.set(xlim=(low, high), ylim=(bottom, top))
    plain_ticks(panel.xaxis, low, high)
    plain_ticks(panel.yaxis, bottom, top)


def _displacement(axis: str) -> Callable[[Run], Points]:
    def points(run: Run) -> Points:
        steps = run.record.steps
        lr = steps["lr"].to_numpy()
        x = np.cumsum(lr) if axis == "sum" else np.sqrt(np.cumsum(lr**2))
        return thin(x, steps["displacement_rms"], 80)

    return points


def _log_displacement(axis: str, words: str, label: str):
    def draw(panel: Axes, name: str, found: list[Run]) -> list[pd.DataFrame]:
        frames = _lines(panel, name, found, _displacement(axis))
        title(panel, words)
        if frames:
            panel.set(xscale="log", yscale="log", xlabel=label, ylabel="displacement (RMS)")
            _slope_one(panel)
        return frames

    return draw


def _by_lag(panel: Axes, name: str, found: list[Run]) -> list[pd.DataFrame]:
    def points(run: Run) -> Points:
        mean = run.record.steps.groupby("lag")["kl_behaviour"].mean().dropna()
        return mean.index.to_numpy(dtype=float), mean.to_numpy(dtype=float)

    frames = _lines(panel, name, found, points)
    title(panel, "Divergence from the snapshot")
    if frames:
        panel.set(xlabel="lag (updates)", ylabel="KL to behaviour")
    return frames


def _feedback(panel: Axes, name: str, found: list[Run]) -> list[pd.DataFrame]:
    def points(run: Run) -> Points:
        kept = run.record.steps[["t", "stale_feedback_cos"]].dropna()
        return kept["t"].to_numpy(dtype=float), kept["stale_feedback_cos"].to_numpy(dtype=float)

    frames = _lines(panel, name, found, points, markers=True)
    title(panel, "Stale field: > 0 reinforces")
    if frames:
        panel.axhline(0, color=MUTED, linewidth=1)
        panel.set(xlabel="learner updates", ylabel="feedback cosine")
    return frames


def _bias(panel: Axes, name: str, found: list[Run]) -> list[pd.DataFrame]:
    def points(run: Run) -> Points:
        kept = run.record.steps[["lag_displacement_rms", "stale_gap_rms"]].dropna()
        kept = kept[(kept > 0).all(axis=1)].sort_values("lag_displacement_rms")
        return tuple(kept[column].to_numpy(dtype=float) for column in kept)

    frames = _lines(panel, name, found, points, markers=True)
    title(panel, "Bias of the field against distance")
    if frames:
        panel.set(xscale="log", yscale="log", xlabel="distance from the snapshot (RMS)")
        panel.set_ylabel("stale - fresh field (RMS)")
        _slope_one(panel)
    return frames


def _update(panel: Axes, name: str, found: list[Run]) -> list[pd.DataFrame]:
    def points(run: Run) -> Points:
        return thin(run.record.steps["t"], run.record.steps["update_rms"], 80)

    frames = _lines(panel, name, found, points)
    title(panel, "Applied update / learning rate")
    if frames:
        panel.set(xlabel="learner updates", ylabel="update (RMS)")
        panel.set_ylim(bottom=0)
    return frames


_PANELS = {
    "displacement against the sum of learning rates": _log_displacement(
        "sum", "Coherent drift: slope 1", "sum of learning rates"
    ),
    "displacement against the root of the sum of squares": _log_displacement(
        "root", "Diffusion: slope 1", "root of the sum of squares"
    ),
    "KL to the behaviour snapshot by lag": _by_lag,
    "feedback cosine": _feedback,
    "bias against distance": _bias,
    "applied update": _update,
}
