"""The series of a run that figures draw, and the legends and marks that all line figures share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from collapse_laws.figures.canvas import legend_columns
from collapse_laws.figures.theme import MUTED
from collapse_laws.results import StudyResults
from collapse_laws.runrecord import RunRecord
from collapse_laws.wording import WORDS, number

MAX_GROUPS = 6  # groups of one (arm, model) in one figure
MAX_COLUMNS = 6
WINDOW_UPDATES = 8  # as the collapse criterion averages
QUANTITIES = {
    "reward": "reward",
    "cosine": "gradient cosine",
    "validation": "validation reward",
}


@dataclass(frozen=True, slots=True)
class Run:
    """A cell's row and its record."""

    cell: pd.Series
    record: RunRecord

    @property
    def lr_budget(self) -> np.ndarray:
        """Sum of learning rates before each update, and after the last: [updates + 1]."""
        return np.concatenate([[0.0], np.cumsum(self.record.steps["lr"].to_numpy())])

    def series(self, quantity: str) -> tuple[np.ndarray, np.ndarray]:
        """Learner updates and values of one of QUANTITIES, invalid points left out.

        With S < 8 rewards are means over batches that span 8 updates, so that every S shows as many rollouts a point.
        A cosine is the mean over the updates of a rollout batch, of 8 updates where S < 8: single ones scatter by
        their batch's noise.
        """
        frame, x, y = {
            "reward": (self.record.snapshots, "t", "reward_mean"),
            "cosine": (self.record.steps, "t", "grad_cos"),
            "validation": (self.record.snapshots, "t", "validation_reward"),
        }[quantity]
        kept = frame[[x, y]].dropna()
        t, value = kept[x].to_numpy(dtype=float), kept[y].to_numpy(dtype=float)
        interval = int(self.cell["sync_interval"])
        window = {"reward": -(-WINDOW_UPDATES // interval), "cosine": max(WINDOW_UPDATES, interval)}.get(quantity, 1)
        if window == 1 or len(t) < (window if quantity == "cosine" else 2 * window):
            return t, value
        whole = len(t) // window * window
        return t[:whole:window], value[:whole].reshape(-1, window).mean(axis=1)


def runs(results: StudyResults, cells: pd.DataFrame) -> list[Run]:
    """The runs among `cells` whose records are here, in the order of the frame."""
    found = ((cell, results.record(cell["cell"])) for _, cell in cells.iterrows())
    return [Run(cell, record) for cell, record in found if record is not None]


def groups_drawn(results: StudyResults, notes: list[str]) -> list[tuple[str, str]]:
    """The groups that a figure shows; says so in `notes` when there are more."""
    groups = results.groups
    if len(groups) > MAX_GROUPS:
        notes.append(f"The first {MAX_GROUPS} of {len(groups)} groups (arm, model) are drawn.")
    return groups[:MAX_GROUPS]


def columns_drawn(values: Iterable[int], notes: list[str]) -> list[int]:
    """The S values that get a column of their own: at most MAX_COLUMNS, evenly chosen."""
    ordered = sorted(set(values))
    if len(ordered) <= MAX_COLUMNS:
        return ordered
    chosen = [ordered[i] for i in np.linspace(0, len(ordered) - 1, MAX_COLUMNS).round().astype(int)]
    note = f"Of {len(ordered)} values of S, {MAX_COLUMNS} are drawn: {', '.join(map(str, chosen))}."
    if note not in notes:
        notes.append(note)
    return chosen


def missing_note(cells: pd.DataFrame, found: list[Run], notes: list[str]) -> None:
    """Say in `notes` which outcomes had no record to draw from, and how many cells were not run."""
    absent = int((cells["label"] != "not_run").sum()) - len([run for run in found if run.cell["label"] != "not_run"])
    if absent > 0:
        notes.append(f"{absent} run(s) have an outcome but no run record on this machine.")
    not_run = int((cells["label"] == "not_run").sum())
    if not_run:
        notes.append(f"{not_run} planned cell(s) were not run.")


def group_title(results: StudyResults, arm: str, model: str) -> str:
    """`model, surrogate` of a group."""
    return f"{model}: {results.arms.get(arm, arm)}"


def legend(
    figure: Figure,
    colours: Mapping,
    heading: str,
    styles: Iterable[tuple[str, Line2D]] = (),
    text=str,
) -> None:
    """One legend under the figure: a line for each colour, then marks with their words."""
    handles = [Line2D([], [], color=colour, label=f"{heading} {text(value)}") for value, colour in colours.items()]
    for words, handle in styles:
        handle.set_label(words)
        handles.append(handle)
    if handles:
        fit = legend_columns(figure, [handle.get_label() for handle in handles])
        figure.legend(handles=handles, loc="outside lower center", ncols=fit, handlelength=1.6)


def collapse_handle() -> tuple[str, Line2D]:
    return "collapse", Line2D([], [], marker="v", linestyle="none", color=MUTED, markersize=7)


def mark_collapse(axes: Axes, cell: pd.Series, y: float, colour: str) -> None:
    """A triangle at a run's collapse, at reward `y`; nothing for a run that did not collapse."""
    if cell["label"] == "collapsed":
        x = float(cell["collapse_step"])
        axes.plot([x], [y], marker="v", color=colour, markersize=7, linestyle="none", zorder=4)


def describe(cell: pd.Series) -> str:
    """One line on a run, for hover texts."""
    text = f"S={cell['sync_interval']}, lr={number(cell['lr'])}, seed {cell['seed']}: "
    text += WORDS[cell["label"]]
    if cell["label"] == "collapsed":
        text += f" at M={cell['collapse_index']}, onset in ({cell['onset_low']}, {cell['onset_high']}]"
    elif pd.notna(cell["updates"]):
        text += f", {cell['updates']} updates"
    if cell["label"] == "oscillating":
        text += f", first drop at M={cell['first_drop_index']} (update {cell['first_drop_step']})"
    return text


def tidy(run: Run, quantity: str, x: np.ndarray, y: np.ndarray, **more: np.ndarray) -> pd.DataFrame:
    """Plotted points as rows: the cell's axes, label, quantity, update and value."""
    names = ("arm", "model", "sync_interval", "lr", "seed", "label")
    head = {name: run.cell[name] for name in names}
    return pd.DataFrame({**head, "quantity": quantity, "t": x, "value": y, **more})


def stack(frames: Iterator[pd.DataFrame] | list[pd.DataFrame]) -> pd.DataFrame:
    """All frames below each other; an empty frame with no columns where there are none."""
    kept = [frame for frame in frames if len(frame)]
    return pd.concat(kept, ignore_index=True) if kept else pd.DataFrame({"note": []})


def reward_at(run: Run, index: object) -> float:
    """The reward of rollout batch `index`; NaN where the record has none."""
    rows = run.record.snapshots
    rows = rows[rows["M"] == index]
    return float(rows["reward_mean"].iloc[0]) if len(rows) else float("nan")
