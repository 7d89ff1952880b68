"""Runs side by side: models, seeds, the S = 1 controls, and the cosine nearest the boundary (Figures 3, 4 and 5)."""

from __future__ import annotations

from collections import Counter

import pandas as pd

from collapse_laws.figures.canvas import Drawing, grid, nothing, panels, title
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
from collapse_laws.figures.theme import MUTED, category_colours, rate_colours, thin
from collapse_laws.results import AXES, StudyResults
from collapse_laws.wording import number

MAX_MODELS, MAX_SETTINGS = 5, 12
_ABSENT = "No run record of this study is on this machine."


def draw_families(results: StudyResults) -> Drawing:
    """Columns: the models of the arm that has most of them, at the S that most of them share."""
    models_of = results.cells.groupby("arm", sort=False)["model"].nunique()
    if models_of.empty or models_of.max() < 2:
        return nothing("The study has one model, so there is nothing to set side by side.")
    arm = models_of.idxmax()
    found = runs(results, results.cells[results.cells["arm"] == arm])
    if not found:
        return nothing(_ABSENT)
    pairs = {(run.cell["model"], run.cell["sync_interval"]) for run in found}
    shared = Counter(interval for _, interval in pairs)
    interval = max(shared, key=lambda s: (shared[s], s))
    found = [run for run in found if run.cell["sync_interval"] == interval]
    models = list(dict.fromkeys(run.cell["model"] for run in found))
    notes = [f"Arm {arm} at S = {interval}."]
    if len(models) > MAX_MODELS:
        notes.append(f"The first {MAX_MODELS} of {len(models)} models are drawn.")
    colours = rate_colours(run.cell["lr"] for run in found)
    figure, axes = panels(3, min(len(models), MAX_MODELS), 3.3, 1.9, sharey="row")
    frames = []
    for column, model in zip(axes.T, models, strict=False):
        here = [run for run in found if run.cell["model"] == model]
        for panel, (quantity, words) in zip(column, QUANTITIES.items(), strict=True):
            frames += [_plot(panel, run, quantity, colours[run.cell["lr"]]) for run in here]
            panel.set_ylabel(words if column is axes.T[0] else "")
        title(column[0], f"{model}, S = {interval}")
        column[-1].set_xlabel("learner updates")
    legend(figure, colours, "lr", [collapse_handle()], number)
    return Drawing(figure, stack(frames), notes=notes)


def draw_late_cosine(results: StudyResults) -> Drawing:
    """Reward and cosine of the collapsed setting with the smallest S x lr; one column for each
    group, one line a seed."""
    columns = []
    for group in results.groups:
        cells = results.group(*group)
        stale = cells[(cells["label"] == "collapsed") & (cells["sync_interval"] > 1)]
        if len(stale):
            nearest = stale.loc[(stale["sync_interval"].astype(float) * stale["lr"]).idxmin()]
            here = runs(results, cells[(cells[AXES] == nearest[AXES]).all(axis=1)])
            if here:
                columns.append((group, nearest, here))
    if not columns:
        return nothing("No collapsed run with S > 1 has a record here, so no cosine to look at.")
    figure, axes = panels(2, len(columns[:4]), max(3.4, 6.8 / len(columns[:4])), 2.2)
    seeds = sorted({run.cell["seed"] for *_, here in columns for run in here})
    colours = category_colours(seeds)
    frames = []
    for column, (group, nearest, here) in zip(axes.T, columns, strict=False):
        for panel, quantity in zip(column, ("reward", "cosine"), strict=True):
            frames += [_plot(panel, run, quantity, colours[run.cell["seed"]]) for run in here]
            panel.set_ylabel(QUANTITIES[quantity])
            for run in here:
                if run.cell["label"] == "collapsed":
                    panel.axvline(
                        float(run.cell["collapse_step"]), color=colours[run.cell["seed"]],
                        linewidth=0.8, linestyle=":",
                    )  # fmt: skip
        head = f"S = {nearest['sync_interval']}, lr {number(nearest['lr'])}"
        title(column[0], head if len(results.groups) == 1 else f"{group[1]}, {group[0]}\n{head}")
        column[-1].set_xlabel("learner updates")
    legend(figure, colours, "seed", [collapse_handle()])
    notes = [] if len(columns) <= 4 else [f"The first 4 of {len(columns)} groups are drawn."]
    return Drawing(figure, stack(frames), notes=notes)


def draw_seeds(results: StudyResults) -> Drawing:
    """One panel for each setting with several seeds, those with the smallest S x lr first."""
    sizes = results.cells.groupby(AXES, sort=False)["seed"].transform("size")
    found = runs(results, results.cells[sizes > 1])
    settings: dict[tuple, list[Run]] = {}
    for run in found:
        settings.setdefault(tuple(run.cell[AXES]), []).append(run)
    settings = {key: here for key, here in settings.items() if len(here) > 1}
    if not settings:
        return nothing("No setting of this study has run records of several seeds.")
    order = sorted(settings, key=lambda key: (key[0], key[1], key[2] * key[3]))
    notes = []
    if len(order) > MAX_SETTINGS:
        notes.append(f"{MAX_SETTINGS} of {len(order)} settings with several seeds are drawn.")
        order = order[:: -(-len(order) // MAX_SETTINGS)]
    several = len(results.groups) > 1
    members: dict[str, list[Run]] = {}
    for arm, model, interval, lr in order:
        head = f"S = {interval}, lr {number(lr)}"
        members[f"{model}, {arm}\n{head}" if several else head] = settings[arm, model, interval, lr]
    return _rewards(members, "seed", "seed", notes)


def draw_controls(results: StudyResults) -> Drawing:
    """One panel for each (group, lr) that was run at S = 1 as well; colour: S."""
    found = runs(results, results.cells)
    keys = dict.fromkeys(
        (run.cell["arm"], run.cell["model"], run.cell["lr"]) for run in found if run.cell["sync_interval"] == 1
    )
    if not keys:
        return nothing("No run at S = 1 has a record here, so staleness has no control.")
    notes = [] if len(keys) <= MAX_SETTINGS else [f"{MAX_SETTINGS} of {len(keys)} rates are drawn."]
    several = len(results.groups) > 1
    members: dict[str, list[Run]] = {}
    for arm, model, lr in list(keys)[:MAX_SETTINGS]:
        head = f"{model}, {arm}\nlr {number(lr)}" if several else f"lr {number(lr)}"
        members[head] = [
            run for run in found if (run.cell["arm"], run.cell["model"], run.cell["lr"]) == (arm, model, lr)
        ]
    return _rewards(members, "sync_interval", "S =", notes)


def _rewards(members: dict[str, list[Run]], by: str, words: str, notes: list[str]) -> Drawing:
    """A grid of panels under their headings: the reward of the runs of each, coloured by one of the cell's axes."""
    colours = category_colours(sorted({run.cell[by] for here in members.values() for run in here}))
    columns = min(4, len(members))
    figure, axes = grid(len(members), columns, 2.6 if columns > 2 else 4, 2.2, "reward", sharey=True)
    frames = []
    for panel, (head, here) in zip(axes.ravel(), members.items(), strict=False):
        frames += [_plot(panel, run, "reward", colours[run.cell[by]]) for run in here]
        title(panel, head)
        panel.set_xlabel("learner updates")
    legend(figure, colours, words, [collapse_handle()])
    return Drawing(figure, stack(frames), notes=notes)


def _plot(panel, run: Run, quantity: str, colour: str) -> pd.DataFrame:
    x, y = run.series(quantity)
    if quantity == "cosine":
        single = run.record.steps
        panel.plot(*thin(single["t"], single["grad_cos"]), color=colour, linewidth=0.6, alpha=0.35)
        panel.axhline(0, color=MUTED, linewidth=0.8)
    else:
        panel.set_ylim(-0.03, 1.03)
    if len(x):
        panel.plot(x, y, color=colour, linewidth=1.3, marker="." if len(x) < 3 else None)
    if quantity == "reward":
        mark_collapse(panel, run.cell, reward_at(run, run.cell["collapse_index"]), colour)
    return tidy(run, quantity, x, y)
