"""Whether the prepared files of a verl study are those that would be made now.

Snakemake asks while it plans, so nothing heavy is imported here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from collapse_laws.errors import UserError
from collapse_laws.fingerprint import PACKAGE, code_digest
from collapse_laws.runrecord import settings_digest
from collapse_laws.study import Cell, Study

REPORT = "prepare.json"

# What makes a row of a set a row of a file: the instruction, the template that is removed, the revision and
# deduplication of DAPO; which rows no answer can meet; how a gold is read. The code itself, so that no version has to
# be raised by hand.
_CODE = ("tasks/benchmark_registry.py", "tasks/benchmarks.py", "tasks/verl_checker.py", "verl/data.py")
_ROWS = "tasks/benchmark_rows.json"  # digests of the registered sets' rows


def data_settings(package: Path = PACKAGE) -> str:
    """Digest of all that decides the prepared files but their names, as `prepare.json` records it in `settings`."""
    rows = hashlib.sha256((package / _ROWS).read_bytes()).hexdigest()
    return settings_digest({"code": code_digest(_CODE, package), "rows": rows})


def file_names(models: Iterable[Mapping[str, Any]]) -> tuple[list[str], list[str]]:
    """The training and the validation sets of these models, each sorted and once."""
    models = list(models)
    training = {model["dataset"] for model in models}
    return sorted(training), sorted({name for model in models for name in model["validation"]})


def prepared_is_current(path: Path, study: Study) -> bool:
    """Whether the prepare.json at `path` and the files beside it are what `collapse-laws prepare` would write for the
    study; False where one is missing or damaged."""
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False
    if not _is_report(report) or report.get("settings") != data_settings():
        return False
    training, validation = file_names(study.models.values())
    return all(
        name in report["files"] and path.with_name(f"{name}.parquet").exists() for name in (*training, *validation)
    )


def prepared_report(cell: Cell, folder: Path) -> dict[str, Any]:
    """prepare.json of a folder that holds a run's files; UserError where it lacks one, or where `prepare` made it in
    another way than it would now. Files of the user's own name no study and are taken as they are."""
    again = f"run `collapse-laws prepare --study {cell.study}`"
    try:
        report = json.loads((folder / REPORT).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{folder / REPORT} is missing; {again} first.") from None
    except ValueError:
        report = None
    if not _is_report(report):
        raise UserError(f"{folder / REPORT} is damaged; {again} again.")
    training, validation = file_names([cell.settings["model"]])
    for name in (*training, *validation):
        if name not in report["files"] or not (folder / f"{name}.parquet").exists():
            raise UserError(f"{folder} lacks {name}.parquet; {again} again.")
    if "study" in report and report.get("settings") != data_settings():
        raise UserError(
            f"{folder} was prepared with other prompts, other rules or other sets than this version's; {again} again."
        )
    return report


def _is_report(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("files"), dict)
