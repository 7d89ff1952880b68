"""The paper's own tables as a study: outcomes without run records, as `collapse-laws published` wrote them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from collapse_laws.errors import UserError
from collapse_laws.results import OUTCOME_COLUMNS, PUBLISHED, StudyResults, read_json, typed_cells

TITLE = "The published tables, re-analysed"
SURROGATE = "behaviour ratio with the clip, as published"


def load_published(root: Path) -> StudyResults:
    """results/published/ as a study; UserError where it has not been written."""
    directory = root / "results" / PUBLISHED
    found = [read_json(path) for path in sorted((directory / "cells").glob("*.json"))]
    if not found:
        raise UserError(f"{directory / 'cells'} is empty; run `collapse-laws published` first.")
    found.sort(key=lambda f: (f["arm"], f["model"], f["sync_interval"], -f["lr"], f["seed"]))
    return StudyResults(
        name=PUBLISHED,
        title=TITLE,
        scale="paper",
        cells=typed_cells([_row(cell) for cell in found]),
        laws=read_json(directory / "laws.json"),
        arms={cell["arm"]: SURROGATE for cell in found},
        root=root,
        outcomes={cell["cell"]: cell for cell in found},
    )


def _row(cell: dict[str, Any]) -> dict[str, Any]:
    names = "cell arm model sync_interval lr seed ratio clip_low clip_high".split()
    return {
        **{name: cell[name] for name in names},
        "surrogate": SURROGATE,
        "dual_clip": None,
        "blocks": "",
        "horizon_updates": cell["run"]["horizon_updates"],
        "reference_lr_budget": cell["outcome"]["reference_lr_budget"],
        **{name: cell["outcome"].get(name) for name in OUTCOME_COLUMNS},
    }
