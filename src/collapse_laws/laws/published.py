"""The published tables as outcomes, through the same estimators as any study.

reference/ beside this module holds table1.csv (both Llama sweeps and Qwen3-8B), table3.csv (three seeds) and
extended.csv (longer horizons): the paper's labels and indices, each with its mark [stated] or [derived]. All that is
concluded from them here is computed: the published t_obs is the upper end of an onset interval
(S(M-1), SM], so that the exact equality t_obs*eta = c2 becomes an interval of about 10 %.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collapse_laws.errors import UserError
from collapse_laws.laws.boundary import Boundary, fit_boundary
from collapse_laws.laws.clock import Clock, fit_clock
from collapse_laws.laws.observation import Interval, Observation
from collapse_laws.laws.results import SCHEMA_VERSION, cell_path, laws_path, laws_result
from collapse_laws.outcome import LABELS, Outcome
from collapse_laws.protocol import collapse_step, onset_interval
from collapse_laws.runrecord import write_json
from collapse_laws.study import cell_name

REFERENCE = Path(__file__).parent / "reference"
STUDY, SCALE, ARM = "published", "paper", "vanilla"
TABLES = ("table1.csv", "table3.csv", "extended.csv")
MAIN_GRID = "table1.csv"
MARKS = ("stated", "derived")
COLUMNS = (
    "model sync_interval lr seed label label_mark collapse_index collapse_index_mark collapse_step collapse_step_mark "
    "horizon_updates horizon_mark source"
).split()
REFERENCE_LR_BUDGET = {"llama1b": 3.2e-5, "llama3b": 3.2e-5, "qwen8b": 6.4e-5}  # [stated]
LLAMA, QWEN = ("llama1b", "llama3b"), ("qwen8b",)
DIGITS = 6  # significant, of the numbers that the command prints


@dataclass(frozen=True, slots=True)
class PublishedRun:
    """One published run: its point, its outcome, and where each number comes from."""

    table: str
    model: str
    sync_interval: int
    lr: str
    seed: int
    label: str
    collapse_index: int | None
    horizon_updates: int | None
    marks: dict[str, str]
    source: str

    @property
    def cell(self) -> str:
        """The name of the same cell in a study."""
        return cell_name(ARM, self.model, self.sync_interval, self.lr, self.seed)

    @property
    def outcome(self) -> Outcome:
        """The published result in the form of an outcome; reward and thresholds are not published."""
        eta, reference = float(self.lr), REFERENCE_LR_BUDGET[self.model]
        dated: dict[str, Any] = {}
        if self.collapse_index is not None:
            low, high = onset_interval(self.collapse_index, self.sync_interval)
            dated = {
                "collapse_index": self.collapse_index,
                "collapse_step": high,
                "onset_low": low,
                "onset_high": high,
                "first_drop_index": self.collapse_index,
                "first_drop_step": high,
                "first_drop_low": low,
                "first_drop_high": high,
            }
        return Outcome(
            label=self.label,
            reason=f"As published: {self.source}.",
            sync_interval=self.sync_interval,
            updates=self.horizon_updates,
            lr_budget_spent=None if self.horizon_updates is None else eta * self.horizon_updates,
            reference_lr_budget=reference,
            **dated,
        )

    def to_cell(self) -> dict[str, Any]:
        """The run in the shape of results/<study>/cells/<cell>.json, with its marks."""
        return {
            "schema_version": SCHEMA_VERSION,
            "study": STUDY,
            "cell": self.cell,
            "scale": SCALE,
            "arm": ARM,
            "model": self.model,
            "sync_interval": self.sync_interval,
            "lr": float(self.lr),
            "seed": self.seed,
            "ratio": "behaviour",
            "clip_low": None,
            "clip_high": None,
            "settings_digest": None,
            "outcome": self.outcome.to_json(),
            "sensitivity": [],
            "crosschecks": {"cusum_index": None, "page_hinkley_index": None, "bayes": None},
            "run": {
                "updates": self.horizon_updates,
                "horizon_updates": self.horizon_updates,
                "stop_reason": None,
                "wall_seconds": None,
                "source_fingerprint": None,
                "record_digest": None,
                "versions": {},
                "hardware": {},
            },
            "marks": self.marks,
            "source": self.source,
        }


def load_published(reference: Path = REFERENCE) -> list[PublishedRun]:
    """The published runs of all three tables, each cell once.

    Raises UserError, naming file and line, for a missing file or column, a value that is not allowed, an
    index that does not fit its step, and two tables that disagree on a cell.
    """
    runs: dict[str, PublishedRun] = {}
    for table in TABLES:
        for run in _read(Path(reference) / table):
            known = runs.setdefault(run.cell, run)
            if (known.label, known.collapse_index) != (run.label, run.collapse_index):
                raise UserError(f"{known.table} and {table} disagree on {run.cell}.")
    return list(runs.values())


def _read(path: Path) -> list[PublishedRun]:
    try:
        with open(path, encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
            if missing:
                raise UserError(f"{path} lacks the column {missing[0]!r}.")
            return [_run(path, reader.line_num, row) for row in reader]
    except FileNotFoundError:
        raise UserError(f"{path} is missing; it belongs to the package.") from None


def _run(path: Path, line: int, row: Mapping[str, str]) -> PublishedRun:
    where = f"{path}, line {line}"
    if None in row or None in row.values():
        raise UserError(f"{where}: the row has not {len(COLUMNS)} values.")
    allowed = {"model": tuple(REFERENCE_LR_BUDGET), "label": LABELS}
    for column, values in allowed.items():
        if row[column] not in values:
            raise UserError(f"{where}: {column} {row[column]!r}; allowed: {', '.join(values)}.")
    marks = {}
    for column in ("label", "collapse_index", "collapse_step", "horizon"):
        mark = row[f"{column}_mark"]
        value = row["horizon_updates" if column == "horizon" else column]
        if bool(value) != bool(mark) or (mark and mark not in MARKS):
            raise UserError(f"{where}: every number has one mark of {', '.join(MARKS)}: {column}.")
        if mark:
            marks[column] = mark
    try:
        interval, seed = int(row["sync_interval"]), int(row["seed"])
        index, step, horizon = (
            int(row[name]) if row[name] else None for name in ("collapse_index", "collapse_step", "horizon_updates")
        )
        float(row["lr"])
    except ValueError as error:
        raise UserError(f"{where}: {error}.") from None
    expected = None if index is None else collapse_step(index, interval)
    if step != expected or (row["label"] == "collapsed") != (index is not None):
        raise UserError(f"{where}: collapse_step must be S times collapse_index of a collapsed run.")
    return PublishedRun(
        path.name,
        row["model"],
        interval,
        row["lr"],
        seed,
        row["label"],
        index,
        horizon,
        marks,
        row["source"],
    )


def write_published(runs: Sequence[PublishedRun], root: Path = Path()) -> dict[str, Any]:
    """Write results/published/ under `root` (cells and laws.json); return the content of laws.json."""
    results = {run.cell: run.to_cell() for run in runs}
    for name, result in results.items():
        write_json(root / cell_path(STUDY, name), result)
    laws = laws_result(STUDY, SCALE, [(ARM, run.model, run.cell) for run in runs], results)
    write_json(root / laws_path(STUDY), laws)
    return laws


def fit_models(runs: Sequence[PublishedRun], models: Sequence[str]) -> tuple[Boundary, Clock]:
    """Boundary and clock of the published runs of some models together."""
    observed = [_observation(run) for run in runs if run.model in models]
    return fit_boundary(observed), fit_clock(observed)


def headline(runs: Sequence[PublishedRun]) -> dict[str, Any]:
    """The sets that the published numbers allow, both Llama models together, Qwen3-8B alone.

    c2 is (low, high]; b, c and alpha are the ends of open sets. The `main_grid` values leave the longer
    runs out.
    """
    main = [_observation(run) for run in runs if run.model in LLAMA and run.table == MAIN_GRID]
    boundary, clock = fit_models(runs, LLAMA)
    boundary_main = fit_boundary(main)
    _, qwen = fit_models(runs, QWEN)
    return {
        "llama": {
            "c2": _rounded(clock.c2),
            "b": _rounded(clock.b_feasible),
            "c": _rounded(clock.c_feasible),
            "alpha": _rounded(_feasible(boundary)),
            "alpha_main_grid": _rounded(_feasible(boundary_main)),
            "stable_max": boundary.product.stable_max,
            "stable_max_main_grid": boundary_main.product.stable_max,
            "collapsed_min": boundary.product.collapsed_min,
        },
        "qwen3-8b": {"c2": _rounded(qwen.c2)},
    }


def _observation(run: PublishedRun) -> Observation:
    return Observation.from_cell(run.to_cell())


def _feasible(boundary: Boundary) -> Interval | None:
    return boundary.exponents[0].feasible


def _rounded(interval: Interval | None) -> list[float | None] | None:
    if interval is None:
        return None
    return [None if end is None else float(f"{end:.{DIGITS}g}") for end in interval]
