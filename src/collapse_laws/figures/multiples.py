"""Small multiples of a study's runs: one block of panels for each (arm, model), one column for each S it was run at."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from collapse_laws.figures.canvas import blocks, title
from collapse_laws.figures.series import Run, columns_drawn, group_title, groups_drawn, missing_note, runs
from collapse_laws.figures.theme import rate_colours
from collapse_laws.results import StudyResults


@dataclass(frozen=True, slots=True)
class Multiples:
    """An empty figure and what goes where.

    `columns` holds for every panel column its axes [rows] and its runs, and whether it is the first of its block.
    """

    figure: Figure
    columns: list[tuple[np.ndarray, list[Run], bool]]
    colours: dict[float, str]  # of the learning rates
    runs: int


def small_multiples(
    results: StudyResults, rows: int, height: float, notes: list[str], **sharing: bool | str
) -> Multiples | None:
    """The panels for all runs that have a record here, each column headed by its S; None where there is no record.

    `height` of a panel in inches; `sharing`: sharex and sharey of the panels of a block. What is left out is said in
    `notes`.
    """
    found = runs(results, results.cells)
    if not found:
        return None
    missing_note(results.cells, found, notes)
    kept = columns_drawn((run.cell["sync_interval"] for run in found), notes)
    members: dict[tuple[str, str], dict[int, list[Run]]] = {}
    for group in groups_drawn(results, notes):
        here = [run for run in found if (run.cell["arm"], run.cell["model"]) == group]
        by_interval = {s: [run for run in here if run.cell["sync_interval"] == s] for s in kept}
        by_interval = {s: column for s, column in by_interval.items() if column}
        if by_interval:
            members[group] = by_interval
    titles = [group_title(results, *group) for group in members]
    widest = max(len(block) for block in members.values())
    width = max(2.3, 9.6 / widest) if widest > 1 else 6.4
    figure, axes = blocks(titles, rows, [len(block) for block in members.values()], width, height, **sharing)
    columns = []
    for block, panels in zip(members.values(), axes, strict=True):
        for place, (column, (interval, here)) in enumerate(zip(panels.T, block.items(), strict=True)):
            title(column[0], f"S = {interval}")
            columns.append((column, here, place == 0))
    return Multiples(figure, columns, rate_colours(run.cell["lr"] for run in found), len(found))
