"""What DVC makes its stages of, workflow/cells.yaml: the cells whose outputs its remote holds and what decides them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from collapse_laws.fingerprint import ENTRY_MODULES, training_fingerprint
from collapse_laws.study import EXTENTS, Cell, load_study, lr_text, resolved, study_names


def recorded_cells(params: Mapping[str, Any], name: str) -> list[Cell]:
    """The cells of a study whose outputs lie in the DVC remote, as its key `recorded` says; none without that key.

    Raises UserError where the key names a cell that the study does not have.
    """
    recorded = resolved(params["studies"], name).get("recorded", [])
    if recorded in EXTENTS:
        return list(load_study(params, name, recorded).cells)
    return [load_study(params, name).cell(cell) for cell in recorded]


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
