"""The result files of a study: results/<study>/cells/<cell>.json and results/<study>/laws.json.

A cell's file holds its outcome, the sensitivity of it to rho, and the cross-checks; laws.json holds the fits of each
(arm, model), which are never merged.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from collapse_laws.changepoint import crosschecks
from collapse_laws.collapse import SENSITIVITY_RHOS, classify, run_arguments, sensitivity
from collapse_laws.errors import UserError
from collapse_laws.fingerprint import training_fingerprint
from collapse_laws.laws.boundary import fit_boundary
from collapse_laws.laws.clock import fit_clock
from collapse_laws.laws.observation import Observation
from collapse_laws.outcome import LABELS, Outcome
from collapse_laws.rewards import RewardSeries
from collapse_laws.runrecord import SNAPSHOTS, STEPS, RunRecord
from collapse_laws.study import Cell, Study

SCHEMA_VERSION = 1
_SECONDS = re.compile(rb'"seconds": ?[^,}]*')  # of a row: the one value that differs between equal runs


def cell_path(study: str, cell: str) -> Path:
    """Where a cell's outcome lies, relative to the project."""
    return Path("results") / study / "cells" / f"{cell}.json"


def laws_path(study: str) -> Path:
    """Where a study's fits lie, relative to the project."""
    return Path("results") / study / "laws.json"


def cell_result(cell: Cell, record: RunRecord) -> dict[str, Any]:
    """The content of a cell's file, from its run record.

    Raises UserError where the record was made with other settings than the study now asks for.
    """
    manifest = record.manifest
    if manifest["settings_digest"] != cell.digest:
        raise UserError(
            f"{record.directory} was made with settings {manifest['settings_digest']}, but params.yaml now gives "
            f"{cell.digest} for {cell.name}; restore params.yaml, or move the record away and train the cell again."
        )
    given = run_arguments(record, cell.reference_lr_budget)
    outcome = classify(**given)
    series = RewardSeries.build(given["reward"], given["sync_interval"], snapshot=given["snapshot"], n=given["n"])
    return {
        "schema_version": SCHEMA_VERSION,
        **_coordinates(cell),
        "settings_digest": cell.digest,
        "outcome": outcome.to_json(),
        "sensitivity": sensitivity_rows(sensitivity(**given)),
        "crosschecks": crosschecks(series),
        "run": {
            "updates": manifest["updates"],
            "horizon_updates": manifest["horizon_updates"],
            "stop_reason": manifest["stop_reason"],
            "wall_seconds": manifest["timings"].get("wall_seconds"),
            "source_fingerprint": manifest["source_fingerprint"],
            "record_digest": record_digest(record.directory),
            "versions": manifest["versions"],
            "hardware": manifest["hardware"],
        },
    }


def _coordinates(cell: Cell) -> dict[str, Any]:
    settings = cell.settings
    return {
        "study": cell.study,
        "cell": cell.name,
        "scale": cell.scale,
        "arm": cell.arm,
        "model": cell.model,
        "sync_interval": cell.sync_interval,
        "lr": cell.lr,
        "seed": cell.seed,
        "ratio": settings.get("ratio"),
        "clip_low": settings.get("clip_low"),
        "clip_high": settings.get("clip_high"),
    }


def sensitivity_rows(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """Label and date of a run under each rho."""
    return [
        {
            "rho": outcome.criterion["rho"],
            "label": outcome.label,
            "collapse_index": outcome.collapse_index,
            "collapse_step": outcome.collapse_step,
        }
        for outcome in outcomes
    ]


def record_digest(directory: Path) -> str:
    """16 hex digits of the SHA-256 of a record's rows less the seconds they took: a run made again has the same."""
    digest = hashlib.sha256()
    for name in (STEPS, SNAPSHOTS):
        digest.update(_SECONDS.sub(b"", (Path(directory) / name).read_bytes()))
    return digest.hexdigest()[:16]


def read_cell(path: Path) -> dict[str, Any]:
    """A cell's file; UserError where it is damaged."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path} is not JSON ({error}); run `collapse-laws extract` again.") from None


def outdated(cell: Cell, found: Mapping[str, Any]) -> str:
    """Why an outcome does not count, as a sentence, or nothing; one that does not say what made it counts."""
    if found.get("settings_digest") != cell.digest:
        return "Only a record made with other settings than params.yaml's exists."
    source = found.get("run", {}).get("source_fingerprint")
    if source is not None and source != training_fingerprint(cell.trainer):
        return "Only a record made by another version of the trainer's source exists."
    return ""


def study_laws(study: Study) -> dict[str, Any]:
    """The content of laws.json for a study, from those of its planned cells' files that are there and not outdated.

    Raises UserError where an outdated file is of a cell within the study's extent.
    """
    results = {}
    asked = {cell.name for cell in study.cells}
    for cell in study.planned:
        path = cell_path(study.name, cell.name)
        if not path.exists():
            continue
        found = read_cell(path)
        reason = outdated(cell, found)
        if reason and cell.name in asked:
            raise UserError(f"{path} does not count for {cell.name}: {reason} Run `collapse-laws extract` again.")
        if not reason:
            results[cell.name] = found
    planned = [(cell.arm, cell.model, cell.name) for cell in study.planned]
    return laws_result(study.name, study.scale, planned, results)


def laws_result(
    study: str,
    scale: str,
    planned: Sequence[tuple[str, str, str]],
    results: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    """The content of laws.json: planned cells as (arm, model, name), and the results of those that were run."""
    groups: dict[tuple[str, str], list[str]] = {}
    for arm, model, name in planned:
        groups.setdefault((arm, model), []).append(name)
    return {
        "schema_version": SCHEMA_VERSION,
        "study": study,
        "scale": scale,
        "groups": [{"arm": arm, "model": model, **_group(names, results)} for (arm, model), names in groups.items()],
    }


def _group(names: Sequence[str], results: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    runs = [Observation.from_cell(results[name]) for name in names if name in results]
    counts = Counter(run.label for run in runs)
    return {
        "counts": {label: counts[label] for label in LABELS},
        "not_run": len(names) - len(runs),
        "boundary": fit_boundary(runs, "collapse").to_json(),
        "boundary_sustained": fit_boundary(runs, "sustained").to_json(),
        "clock": fit_clock(runs, "collapse").to_json(),
        "clock_first_drop": fit_clock(runs, "first_drop").to_json(),
        "sensitivity": _rho_table(names, results),
    }


def _rho_table(names: Sequence[str], results: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """How many runs keep label and index under each rho."""
    rows = []
    for rho in SENSITIVITY_RHOS:
        found = [
            (results[name]["outcome"], row)
            for name in names
            if name in results
            for row in results[name].get("sensitivity", ())
            if row["rho"] == rho
        ]
        if found:
            rows.append(
                {
                    "rho": rho,
                    "runs": len(found),
                    "collapsed": sum(row["label"] == "collapsed" for _, row in found),
                    "same_label": sum(row["label"] == outcome["label"] for outcome, row in found),
                    "same_index": sum(row["collapse_index"] == outcome["collapse_index"] for outcome, row in found),
                }
            )
    return rows
