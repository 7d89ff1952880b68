"""What is known of a study: one row for each planned cell, the fitted laws, and the run records behind them.

The one reader that tables, figures and page share. A planned cell without an outcome stays in the
frame with the label `not_run`; it is never dropped. An outcome extracted under other settings than
params.yaml's counts as not run, with that reason. `published` is the study of the paper's own
tables: outcomes without run records.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from collapse_laws.errors import UserError
from collapse_laws.laws.results import outdated
from collapse_laws.runrecord import MANIFEST, RunRecord, read_run
from collapse_laws.study import Cell, load_params, load_study, study_names

PUBLISHED = "published"
NOT_RUN = "not_run"
LABELS = (
    "collapsed",
    "oscillating",
    "survived",
    "undecided",
    "no_signal",
    "failed",
    NOT_RUN,
)
# taken from an outcome as they are; null where the label has none
OUTCOME_COLUMNS = (
    "label collapse_index collapse_step onset_low onset_high partial_drop_index partial_drop_step first_drop_index "
    "first_drop_step first_drop_low first_drop_high recovered start_reward peak_reward last_reward updates "
    "lr_budget_spent reason"
).split()
INTEGERS = (
    "collapse_index collapse_step onset_low onset_high partial_drop_index partial_drop_step first_drop_index "
    "first_drop_step first_drop_low first_drop_high updates horizon_updates sync_interval seed"
).split()
AXES = ["arm", "model", "sync_interval", "lr"]


@dataclass(frozen=True, slots=True)
class StudyResults:
    """A study's outcomes (`cells`, one row a planned cell), laws and where its records lie."""

    name: str
    title: str
    scale: str  # smoke | proxy | pocket | paper
    cells: pd.DataFrame
    laws: dict[str, Any] | None  # laws.json; None: not fitted yet
    arms: dict[str, str]  # arm -> title naming surrogate and clip range
    root: Path
    planned: tuple[Cell, ...] = ()
    outcomes: dict[str, dict[str, Any]] = field(default_factory=dict)  # cell -> its whole JSON file
    unplanned: tuple[str, ...] = ()  # outcome files that params.yaml knows no cell for

    @property
    def directory(self) -> Path:
        """results/<study>/."""
        return self.root / "results" / self.name

    @property
    def published(self) -> bool:
        return self.name == PUBLISHED

    @property
    def groups(self) -> list[tuple[str, str]]:
        """The (arm, model) pairs, in the order of params.yaml. Laws are never merged across them."""
        return list(dict.fromkeys(zip(self.cells["arm"], self.cells["model"], strict=True)))

    def group(self, arm: str, model: str) -> pd.DataFrame:
        """The cells of one group."""
        return self.cells[(self.cells["arm"] == arm) & (self.cells["model"] == model)]

    def group_laws(self, arm: str, model: str) -> dict[str, Any]:
        """The group's entry in laws.json; `{}` where it has none."""
        for group in (self.laws or {}).get("groups", []):
            if (group["arm"], group["model"]) == (arm, model):
                return group
        return {}

    def record(self, cell: str) -> RunRecord | None:
        """The run record of a cell; None where it is not on this machine."""
        directory = self.root / "runs" / self.name / cell
        return _record(directory) if (directory / MANIFEST).exists() else None


@cache
def _record(directory: Path) -> RunRecord:
    return read_run(directory)


def read_json(path: Path) -> dict[str, Any] | None:
    """A JSON object; None where the file is missing, UserError where it is damaged."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise UserError(f"{path} is not JSON ({error}); make it again.") from None
    if not isinstance(value, dict):
        raise UserError(f"{path} holds no JSON object; make it again.")
    return value


def load_results(params: Path, name: str | None = None) -> StudyResults:
    """All that is known of the study `name` (default: the active one, or `published`).

    `params` is the path of params.yaml; results/ and runs/ lie beside it. Raises UserError for an
    unknown study and for a damaged file.
    """
    root = Path(params).parent
    if name == PUBLISHED:
        from collapse_laws.results_published import load_published

        return load_published(root)
    values = load_params(params)
    if name is not None and name not in study_names(values):
        allowed = ", ".join([*study_names(values), PUBLISHED])
        raise UserError(f"params.yaml has no study {name!r}; allowed: {allowed}.")
    study = load_study(values, name)
    directory = root / "results" / study.name
    rows, outcomes = [], {}
    for cell in study.planned:
        found = read_json(directory / "cells" / f"{cell.name}.json")
        if found is not None and not outdated(cell, found):
            outcomes[cell.name] = found
        rows.append(_row(cell, study.arms[cell.arm], found))
    known = {cell.name for cell in study.planned}
    files = sorted((directory / "cells").glob("*.json"))
    return StudyResults(
        name=study.name,
        title=study.title,
        scale=study.scale,
        cells=typed_cells(rows),
        laws=read_json(directory / "laws.json"),
        arms={arm: body["title"] for arm, body in study.arms.items()},
        root=root,
        planned=study.planned,
        outcomes=outcomes,
        unplanned=tuple(path.stem for path in files if path.stem not in known),
    )


def typed_cells(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Rows as the frame of cells: whole numbers nullable, a missing value never 0."""
    frame = pd.DataFrame(rows)
    for column in INTEGERS:
        frame[column] = pd.array(frame[column], dtype="Int64")
    for column in ("lr", "reference_lr_budget", "peak_reward", "last_reward", "start_reward"):
        frame[column] = pd.to_numeric(frame[column]).astype("float64")
    return frame


def _row(cell: Cell, arm: dict[str, Any], found: dict[str, Any] | None) -> dict[str, Any]:
    outcome: dict[str, Any] = {"label": NOT_RUN, "reason": "This cell was not run."}
    run: dict[str, Any] = {}
    if found is not None and (reason := outdated(cell, found)):
        outcome["reason"] = reason
    elif found is not None:
        outcome, run = found["outcome"], found.get("run", {})
    return {
        "cell": cell.name,
        "arm": cell.arm,
        "surrogate": arm["title"],
        "ratio": arm["ratio"],
        "clip_low": arm["clip_low"],
        "clip_high": arm["clip_high"],
        "dual_clip": arm["dual_clip"],
        "model": cell.model,
        "sync_interval": cell.sync_interval,
        "lr": cell.lr,
        "seed": cell.seed,
        "blocks": " ".join(cell.blocks),
        "horizon_updates": cell.horizon_updates,
        "reference_lr_budget": cell.reference_lr_budget,
        **{name: outcome.get(name) for name in OUTCOME_COLUMNS},
        "updates": outcome.get("updates", run.get("updates")),
    }
