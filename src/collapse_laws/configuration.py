"""Table 2: the configuration behind a study, one row a knob, joined with reference/knobs.csv.

The dagger is computed: it stands where the value equals the framework's default (verl 0.9.1) that
knobs.csv holds, or where a
composed verl configuration says so. A knob that differs between arms, models or cells lists its
values with their owners.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from collapse_laws.errors import UserError
from collapse_laws.results import StudyResults
from collapse_laws.tables import Table, text_of
from collapse_laws.wording import number

KNOBS = Path("reference/knobs.csv")
COLUMNS = ("key", "group", "description", "unit", "paper_mark", "framework_default")
MARKS = ("stated", "derived", "declared")
GROUPS = (
    "model data task schedule objective optimisation rollout evaluation warm-start stopping record system other"
).split()
DAGGER = "†"
_HIDDEN = {"trainer"}


@dataclass(frozen=True, slots=True)
class ConfigRow:
    """One line of Table 2."""

    group: str
    label: str
    key: str
    value: str
    unit: str
    framework_default: str
    dagger: bool
    mark: str  # stated | derived | declared | default


def read_knobs(root: Path) -> dict[str, dict[str, str]]:
    """reference/knobs.csv by key; UserError for a missing file or column, or a mark that is not allowed."""
    path = root / KNOBS
    try:
        with open(path, encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
            if missing:
                raise UserError(f"{path} lacks the column {missing[0]!r}.")
            rows = {row["key"]: row for row in reader}
    except FileNotFoundError:
        raise UserError(f"{path} is missing; it belongs to the repository.") from None
    for row in rows.values():
        if row["paper_mark"] not in MARKS:
            raise UserError(f"{path}, {row['key']}: mark {row['paper_mark']!r}; allowed: {', '.join(MARKS)}.")
    return rows


def flatten(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings under dotted keys; lists stay whole."""
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            flat |= flatten(value, f"{name}.")
        else:
            flat[name] = value
    return flat


def config_rows(results: StudyResults) -> list[ConfigRow]:
    """The rows from the settings of all planned cells."""
    knobs = read_knobs(results.root)
    values: dict[str, dict[str, list]] = {}
    for cell in results.planned:
        for key, value in flatten(cell.settings).items():
            owners = values.setdefault(key, {}).setdefault(_text(key, value), [])
            owners.append(cell)
    rows = []
    for key, texts in values.items():
        if key in _HIDDEN:
            continue
        knob = knobs.get(key, {})
        default = knob.get("framework_default", "")
        says = _says(key, texts, results)
        dagger = bool(default) and all(_same(text, default) for text in texts)
        rows.append(
            ConfigRow(
                group=knob.get("group", "other"),
                label=knob.get("description", key),
                key=key,
                value=says,
                unit=knob.get("unit", ""),
                framework_default=default,
                dagger=dagger,
                mark="default" if dagger else knob.get("paper_mark", "declared"),
            )
        )
    return sorted(rows, key=lambda row: GROUPS.index(row.group) if row.group in GROUPS else 99)


def _text(key: str, value: Any) -> str:
    return number(value) if key == "lr" else text_of(value)


def _same(text: str, default: str) -> bool:
    try:
        return abs(float(text) - float(default)) <= 1e-12 * abs(float(default))
    except ValueError:
        return text == default


def _says(key: str, texts: Mapping[str, list], results: StudyResults) -> str:
    """One value as it is; an axis as its list; otherwise each value with the arms or models that have it."""
    if len(texts) == 1:
        return next(iter(texts))
    if key in ("sync_interval", "lr", "seed"):
        return ", ".join(sorted(texts, key=float))
    for axis in ("arm", "model"):
        owners = {text: {getattr(cell, axis) for cell in cells} for text, cells in texts.items()}
        if sum(map(len, owners.values())) == len(set().union(*owners.values())):
            return "; ".join(f"{text} ({', '.join(sorted(who))})" for text, who in owners.items())
    return "; ".join(f"{text} ({len(cells)} cells)" for text, cells in texts.items())


def table2(results: StudyResults, rows: Iterable[Any] | None = None) -> Table:
    """Table 2. `rows` replaces the rows made from the settings, as by a composed framework configuration.

    A row has the attributes of ConfigRow; `unit` may be missing and values need not be text.
    """
    given = list(config_rows(results) if rows is None else rows)
    body = [
        {
            "group": row.group,
            "setting": row.label,
            "value": text_of(row.value) + (DAGGER if row.dagger else ""),
            "unit": getattr(row, "unit", ""),
            "mark": row.mark,
            "key": row.key,
        }
        for row in given
    ]
    tidy = [
        {
            "group": row.group, "key": row.key, "setting": row.label, "value": text_of(row.value),
            "unit": getattr(row, "unit", ""), "framework_default": text_of(row.framework_default),
            "is_framework_default": row.dagger, "mark": row.mark,
        }
        for row in given
    ]  # fmt: skip
    columns = ["group", "setting", "value", "unit", "mark", "key"]
    return Table(
        "table2",
        "Table 2. Configuration",
        f"{results.title}: settings of its {len(results.planned)} planned cells.",
        pd.DataFrame(body, columns=columns).astype(str),
        pd.DataFrame(tidy),
        (
            f"{DAGGER}: equals the default of the framework (verl 0.9.1), found by comparison.",
            "stated: in the paper's text. derived: worked out from it. declared: chosen by this project.",
        ),
    )
