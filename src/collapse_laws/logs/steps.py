"""Which learner update each row of a table of metrics stands for."""

from __future__ import annotations

import math

import numpy as np

from collapse_laws.logs.keys import BAR_STEP, ORDINAL, TOTAL, role_of
from collapse_laws.logs.series import stride_of
from collapse_laws.logs.table import MetricTable


def steps_of_rows(
    table: MetricTable, keys: dict[str, str], step_key: str | None, notes: list[str]
) -> tuple[np.ndarray, bool]:
    """[rows] step of each row; whether the log has fully-async counters whose `step` counts synchronisations."""
    if "step" in keys and step_key is None and _dictionaries_carry_the_reward(table, keys):
        keys.pop("step")
    if "step" in keys:
        step = table.dense(keys["step"])
        if step_key is None and table.count(ORDINAL):
            step = _closing_steps(table, keys, step, notes)
    elif table.count(ORDINAL):
        return _steps_of_dictionaries(table, notes), False
    elif "learner_step" in keys:
        step = table.dense(keys["learner_step"])
    else:
        rows, _ = table.column(keys["reward"])
        step = np.full(table.rows, np.nan)
        step[rows] = np.arange(1, rows.size + 1)
        notes.append("no step is known by its name: each row with a reward is taken for one update")
        return step, False
    if "learner_step" in keys and step_key is None:
        step = _learner_steps(table, keys, step)
    return step, True


def _closing_steps(table: MetricTable, keys: dict[str, str], step: np.ndarray, notes: list[str]) -> np.ndarray:
    """The steps moved up by one row where each stands below its metrics: the first reward precedes the first step, and
    of all steps the last alone has none behind it.
    """
    rewarded, printed = np.zeros(step.size, bool), np.isfinite(table.dense(ORDINAL))
    rewarded[table.column(keys["reward"])[0]] = True
    rows = np.flatnonzero(np.isfinite(step))
    before = np.flatnonzero(printed)
    late = rows.size > 2 and before[-1] < rows[0] and np.count_nonzero(rewarded[before]) == 1
    if not late or rewarded[rows[-1]] or not rewarded[rows[:-1]].all():
        return step
    moved = np.full(step.shape, np.nan)
    moved[before] = step[rows[0]]
    moved[rows[:-1]] = step[rows[1:]]
    notes.append("each step stands below its metrics in this log")
    return moved


def is_setting(table: MetricTable, key: str) -> bool:
    """Whether a name that may stand for a step never changes, as `n_step` of a configuration; a plain `step` is always
    believed.
    """
    role = role_of(key)
    if role is None or role[0] != "step" or role[1] < 2:
        return False
    values = table.column(key)[1]
    return values.size > 2 and bool(np.all(values == values[0]))


def growing_keys(table: MetricTable, reward: str) -> list[str]:
    """Keys that grow as a step does and are none by name: whole numbers on the rows with a reward, nearly always larger
    than the one before (a resumed run goes back once).
    """
    rows, _ = table.column(reward)
    found = []
    for key in table.keys() if rows.size > 2 else []:
        values = table.dense(key)[rows]
        if (
            (role_of(key) or ("version",))[0] == "version"
            and key != reward
            and np.all(np.isfinite(values))
            and np.all(values == np.rint(values))
            and np.mean(np.diff(values) > 0) >= 0.9
        ):
            found.append(key)
    return found


def _dictionaries_carry_the_reward(table: MetricTable, keys: dict[str, str]) -> bool:
    """Whether most rewards stand in printed dictionaries, which have no step: a "Step 3" between them, in a title or in
    what the model wrote, then dates nothing.
    """
    if not table.count(ORDINAL):
        return False
    rows, _ = table.column(keys["reward"])
    dated = np.isfinite(table.dense(keys["step"])[rows])
    printed = np.isfinite(table.dense(ORDINAL)[rows])
    return bool(2 * np.count_nonzero(printed & ~dated) > rows.size)


def _learner_steps(table: MetricTable, keys: dict[str, str], step: np.ndarray) -> np.ndarray:
    """training/global_step in place of the log's own step, where every row with a reward has it (or its step has)."""
    learner = table.dense(keys["learner_step"])
    rows, _ = table.column(keys["reward"])
    known = np.isfinite(learner) & np.isfinite(step)
    if not np.all(np.isfinite(learner[rows])):  # one metric a row: the number stands in another row of the same step
        order = np.argsort(step[known], kind="stable")
        steps, values = step[known][order], learner[known][order]
        place = np.searchsorted(steps, step, side="right") - 1
        found = (place >= 0) & (steps[np.maximum(place, 0)] == step) if steps.size else np.zeros(step.shape, bool)
        learner = np.where(found, values[np.maximum(place, 0)] if steps.size else np.nan, np.nan)
    if np.all(np.isfinite(learner[rows]) | ~np.isfinite(step[rows])):
        return learner
    keys.pop("learner_step")
    return step


def _steps_of_dictionaries(table: MetricTable, notes: list[str]) -> np.ndarray:
    """Steps of printed dictionaries: the bar's position, snapped to the logging interval; their ordinal where there
    was no bar.
    """
    ordinal, bar = table.dense(ORDINAL), table.dense(BAR_STEP)
    rows = np.flatnonzero(np.isfinite(ordinal))
    known = rows[np.isfinite(bar[rows])]
    if not known.size:
        return ordinal * _updates_a_dictionary(table, rows.size, notes)
    notes.append(f"{rows.size} records without a step of their own were dated by the progress bar")
    if known.size == 1:
        return bar
    stride = float(np.median(np.maximum(np.diff(bar[known]), 1)))
    snapped = np.rint(bar / stride) * stride
    if stride > 1 and np.nanmax(np.abs(snapped - bar)) < stride / 2 and np.nanmin(snapped) > 0:
        bar = snapped
    for row in rows[~np.isfinite(bar[rows])]:  # the last dictionary of a log that ends before the bar is redrawn
        before = known[known < row]
        if before.size:
            bar[row] = bar[before[-1]] + stride * (ordinal[row] - ordinal[before[-1]])
    return bar


def _updates_a_dictionary(table: MetricTable, printed: int, notes: list[str]) -> int:
    """Updates between printed dictionaries that have no step and no bar: told by the closing summary, or else one."""
    lead = "printed dictionaries carry no step and there is no progress bar, so steps were inferred by counting them:"
    _, totals = table.column(TOTAL)
    total = float(totals[-1]) if totals.size else math.nan
    if math.isfinite(total) and printed <= total < 1e9:
        every = round(total / printed)
        if abs(total / every - printed) <= 1 + 1e-3 * printed:
            notes.append(f"{lead} one every {every} update(s), since the closing summary tells of {total:.0f} updates")
            return every
    notes.append(f"{lead} each is taken for one update, which is wrong unless logging_steps is 1")
    return 1


def logging_stride(step_of_row: np.ndarray, table: MetricTable, keys: dict[str, str]) -> int | None:
    """Updates between the records of a TRL log, with or without a reward: with several updates a generation batch, only
    the first of them logs a reward.
    """
    if "lr" not in keys:
        return None
    logged = step_of_row[table.column(keys["lr"])[0]]
    logged = np.unique(logged[np.isfinite(logged)])
    return int(stride_of(logged)) if logged.size > 1 else None
