"""What DVC makes its stages of, workflow/cells.yaml: the cells whose outputs its remote holds and what decides them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from collapse_laws.errors import UserError
from collapse_laws.fingerprint import ENTRY_MODULES, is_current, training_fingerprint
from collapse_laws.runrecord import MANIFEST
from collapse_laws.study import EXTENTS, Cell, load_study, lr_text, resolved, study_names


def recorded_cells(params: Mapping[str, Any], name: str) -> list[Cell]:
    """The cells of a study whose outputs lie in the DVC remote, as its key `recorded` says; none without that key.

    Raises UserError where the key names a cell that the study does not have.
    """
    recorded = resolved(params["studies"], name).get("recorded", [])
    if recorded in EXTENTS:
        return list(load_study(params, name, recorded).cells)
    return [load_study(params, name).cell(cell) for cell in recorded]


def check_records(params: Mapping[str, Any], runs: Path) -> None:
    """UserError where a recorded cell has no run, or one of other settings or source: DVC would lock it as this one's.

    `runs`: the folder of runs/<study>/<cell>.
    """
    stale = [
        f"{cell.study}/{cell.name}"
        for name in study_names(params)
        for cell in recorded_cells(params, name)
        if not is_current(runs / name / cell.name / MANIFEST, cell.digest, training_fingerprint(cell.trainer))
    ]
    if stale:
        raise UserError(
            f"{len(stale)} recorded cell(s) have no run of params.yaml's settings and the present source, the first "
            f"{stale[0]}; run them, or take them out of their study's `recorded`."
        )


def cells_ledger(params: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The ledger's content: every recorded cell with its axes and digest, the starting models they need, and the
    fingerprint of each trainer's source.
    """
    cells: dict[str, dict[str, Any]] = {}
    models: dict[str, dict[str, Any]] = {}
    for name in study_names(params):
        cells[name] = {}
        for cell in recorded_cells(params, name):
            cells[name][cell.name] = {
                "arm": cell.arm,
                "model": cell.model,
                "sync_interval": cell.sync_interval,
                "lr": lr_text(cell.lr),
                "seed": cell.seed,
                "settings": cell.digest,
            }
            if cell.trainer == "local":
                models[f"{name}-{cell.model}"] = {
                    "study": name,
                    "model": cell.model,
                    "settings": cell.start_digest,
                }
    source = {trainer: training_fingerprint(trainer) for trainer in ENTRY_MODULES}
    return {"source": source, "models": models, "cells": cells}
