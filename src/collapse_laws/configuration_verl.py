"""Table 2's rows of a study that verl trains, from verl's own composed configuration where verl is installed.

Without verl the rows come from the study's settings and reference/knobs.csv; the table's notes say
which.
"""

from __future__ import annotations

import dataclasses
import importlib.util
from pathlib import Path

from collapse_laws.configuration import ConfigRow
from collapse_laws.results import StudyResults
from collapse_laws.tables import text_of


def composed_rows(results: StudyResults) -> list[ConfigRow] | None:
    """The rows over all models, values that differ listed with their models; None: make them from the settings."""
    if not any(cell.trainer == "verl" for cell in results.planned):
        return None
    if any(importlib.util.find_spec(n) is None for n in ("verl", "collapse_laws.verl")):
        return None
    from collapse_laws.verl.config import table2
    from collapse_laws.verl.overrides import Paths, overrides

    nowhere = Path("/")
    paths = Paths(nowhere, (nowhere,), (nowhere,), nowhere, nowhere, nowhere)
    first = {cell.model: cell for cell in reversed(results.planned)}
    found: dict[str, dict[str, list[str]]] = {}
    rows: dict[str, ConfigRow] = {}
    for model in dict.fromkeys(cell.model for cell in results.planned):
        for row in table2(first[model], overrides(first[model], paths)):
            rows.setdefault(
                row.key,
                ConfigRow(
                    row.group, row.label, row.key, "", "",
                    text_of(row.framework_default), row.dagger, row.mark,
                ),
            )  # fmt: skip
            found.setdefault(row.key, {}).setdefault(text_of(row.value), []).append(model)
    return [dataclasses.replace(row, value=_says(found[key])) for key, row in rows.items()]


def _says(values: dict[str, list[str]]) -> str:
    if len(values) == 1:
        return next(iter(values))
    return "; ".join(f"{value} ({', '.join(models)})" for value, models in values.items())
