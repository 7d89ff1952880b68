"""One panel for each configuration (counterpart of Appendix E); beyond a limit the panels are
chosen and that is said."""

from __future__ import annotations

from collapse_laws.figures.canvas import Drawing, grid, nothing, title
from collapse_laws.figures.series import (
    Run,
    collapse_handle,
    legend,
    mark_collapse,
    missing_note,
    reward_at,
    runs,
    stack,
    tidy,
)
from collapse_laws.figures.theme import MUTED, category_colours, thin
from collapse_laws.results import AXES, StudyResults
from collapse_laws.wording import WORDS, number

MAX_PANELS, COLUMNS = 48, 4


def draw_traces(results: StudyResults) -> Drawing:
    """Reward of each rollout batch over the reward of each learner batch, one panel for each (arm, model, S, lr)."""
    notes: list[str] = []
    wanted, total = _chosen(results)
    cells = results.cells[[key in wanted for key in results.cells[AXES].itertuples(index=False, name=None)]]
    found = runs(results, cells)
    if not found:
        return nothing("No run record of this study is on this machine.")
    missing_note(cells, found, notes)
    if total > MAX_PANELS:
        notes.append(
            f"{len(wanted)} of {total} configurations are drawn, evenly chosen by S x lr; Table 1 has them all."
        )
    panels_of: dict[tuple, list[Run]] = {}
    for run in found:
        panels_of.setdefault(tuple(run.cell[AXES]), []).append(run)
    columns = min(COLUMNS, len(panels_of))
    width = 2.55 if columns > 2 else 4
    figure, axes = grid(len(panels_of), columns, width, 1.75, "reward", sharey=True)
    colours = category_colours(sorted({run.cell["seed"] for run in found}))
    frames = []
    for panel, (key, members) in zip(axes.ravel(), panels_of.items(), strict=False):
        for run in members:
            frames.append(_trace(panel, run, colours[run.cell["seed"]]))
        words = ", ".join(dict.fromkeys(WORDS[run.cell["label"]] for run in members))
        where = "" if len(results.groups) == 1 else f"{key[1]}, {key[0]}\n"
        title(panel, f"{where}S = {key[2]}, lr {number(key[3])}: {words}", fontsize=8)
        panel.set_ylim(-0.03, 1.03)
    for panel in axes[-1]:
        panel.set_xlabel("learner updates")
    legend(figure, colours, "seed", [collapse_handle()])
    return Drawing(figure, stack(frames), notes=notes)


def _chosen(results: StudyResults) -> tuple[set[tuple], int]:
    """The configurations to draw, evenly spread over S x lr where there are too many, and how many there are."""
    done = results.cells[results.cells["label"] != "not_run"]
    keys = list(dict.fromkeys(done[AXES].itertuples(index=False, name=None)))
    total = len(keys)
    if total > MAX_PANELS:
        keys.sort(key=lambda key: (key[2] * key[3], key))
        keys = [keys[i * total // MAX_PANELS] for i in range(MAX_PANELS)]
    return set(keys), total


def _trace(panel, run: Run, colour: str):
    steps = run.record.steps
    panel.plot(*thin(steps["t"], steps["reward_mean"], 80), color=MUTED, linewidth=0.6, alpha=0.6)
    x, y = run.series("reward")
    panel.plot(*thin(x, y, 80), color=colour, linewidth=1.2, marker="." if len(x) < 3 else None)
    mark_collapse(panel, run.cell, reward_at(run, run.cell["collapse_index"]), colour)
    return tidy(run, "reward", x, y)
