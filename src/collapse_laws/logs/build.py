"""From a table of metrics to the fields of a read log: keys, series, S, snapshots, the run record, and the sentence
on exactness.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from collapse_laws.errors import UserError
from collapse_laws.logs import own
from collapse_laws.logs.keys import ORDINAL, choose, missing_key, missing_role, rivals
from collapse_laws.logs.numbers import MOST_UPDATES, credible
from collapse_laws.logs.series import Series, resolve_repeats, spans
from collapse_laws.logs.snapshots import SnapshotMeans, snapshot_means
from collapse_laws.logs.steps import is_setting, logging_stride, steps_of_rows
from collapse_laws.logs.table import MetricTable
from collapse_laws.runrecord import SNAPSHOT_COLUMNS, STEP_COLUMNS, RunRecord

_METRICS = (
    "lr entropy clip_fraction kl_behaviour kl_ref response_length grad_norm grad_cos degenerate_group_fraction loss"
).split()


# trainers that are known to average over the updates since their previous record
_AVERAGED = ("trl_trainer_state", "verl_file", "verl_console")


_UNDATED = (
    "Without S a drop in this log is dated by synchronisations, not by learner updates: the steps are their counts."
)


def build(
    where: str,
    table: MetricTable,
    notes: list[str],
    kind: str,
    reward_key: str | None,
    step_key: str | None,
    sync_interval: int | None,
) -> dict[str, Any]:
    """The fields of a ReadLog from a filled table; UserError where it has no reward."""
    keys = _choose_keys(where, table, notes, reward_key, step_key)
    step_of_row, counts = steps_of_rows(table, keys, step_key, notes)
    step_of_row = credible(step_of_row, MOST_UPDATES)
    rows, reward = table.column(keys["reward"])
    reward = credible(reward)
    step = step_of_row[rows]
    has_step = np.isfinite(step)
    if not has_step.any():
        raise UserError(f"{where}: no row with {keys['reward']!r} has a step; name the step's key with --step-key.")
    rows, reward, step = rows[has_step], reward[has_step], np.rint(step[has_step]).astype(np.int64)
    fully_async = counts and any(key.startswith("fully_async/") for key in (*table.keys(), *table.seen))
    kept, dropped, repeat_notes = resolve_repeats(step, reward, where)
    step, reward = step[kept], reward[kept]
    interval, source = _sync_interval(step, table, keys, fully_async, sync_interval, notes)
    undated = fully_async and "learner_step" not in keys and interval is None
    if "learner_step" not in keys and fully_async and interval is not None:
        step = step * interval - 1  # record v ends with update vS-1, counted from 1
    elif undated:
        notes.append("`step` counts synchronisations here; without S it cannot be turned into updates")
    every = None
    if kind in ("trl_trainer_state", "tensorboard") or (kind == "text" and table.count(ORDINAL)):
        every = logging_stride(step_of_row, table, keys)
    first, last, stride, zero_based = spans(step, fully_async, kind in _AVERAGED, every)
    made = last >= 0
    first, last, reward, step = first[made], last[made], reward[made], step[made]
    metrics = {
        role: _aligned(table, keys[role], step_of_row, step, interval if fully_async else None, keys)
        for role in _METRICS
        if role in keys
    }
    series = Series(first, last, reward, metrics, stride, zero_based, dropped, tuple(repeat_notes))
    means = snapshot_means(first, last, reward, interval or stride)
    stale = table.column(keys["stale"])[1] if "stale" in keys else np.empty(0)
    return {
        "record": _record(series, means, interval, where),
        "series": series,
        "snapshots": means,
        "sync_interval": interval,
        "sync_interval_source": source,
        "rows": table.rows,
        "keys": keys,
        "exactness": _UNDATED if undated else exactness(series, means, interval, fully_async),
        "counts_synchronisations": undated,
        "notes": tuple(notes + repeat_notes),
        "fully_async": fully_async,
        "stale": float(np.nanmax(stale)) if np.isfinite(stale).any() else None,
        "other_keys": tuple(table.seen)[:40],
    }


def build_own(directory: Path, sync_interval: int | None) -> dict[str, Any]:
    """The fields of a ReadLog from a run record of ours."""
    record, known = own.read_record(directory)
    if known is not None and sync_interval not in (None, known):
        raise UserError(f"{directory} was run with S={known}, but --sync-interval says {sync_interval}; leave it out.")
    interval = known or sync_interval
    frame = record.snapshots.dropna(subset=["M"])
    if frame.empty:
        raise UserError(f"{directory} holds no rollout batch yet.")
    steps = record.steps
    t = steps["t"].to_numpy()
    metrics = {role: steps[role].to_numpy() for role in _METRICS if steps[role].notna().any()}
    series = Series(t, t, steps["reward_mean"].to_numpy(), metrics, 1, True, 0, ())
    means = SnapshotMeans(
        frame["M"].to_numpy(),
        frame["reward_mean"].to_numpy(),
        frame["reward_se"].to_numpy(),
        np.ones(len(frame), dtype=int),
        "exact",
    )
    return {
        "record": record,
        "series": series,
        "snapshots": means,
        "sync_interval": interval,
        "sync_interval_source": "log" if known is not None else ("given" if interval else "unknown"),
        "rows": len(steps) + len(frame),
        "keys": {"step": "t", "reward": "reward_mean", **{role: role for role in metrics}},
        "exactness": "Rewards are means over whole rollout batches; the onset is known to one synchronisation "
        "interval.",
        "notes": () if record.manifest else ("the run has not finished: there is no run.json",),
    }


def exactness(series: Series, means: SnapshotMeans, interval: int | None, fully_async: bool) -> str:
    """How exactly the log dates a drop, in one sentence."""
    if interval is None:
        return (
            f"Without S a drop is dated by the logged records, one every {series.stride} update(s); the rollout batch "
            "that first shows it stays unknown."
        )
    shift = ""
    if fully_async:
        shift = (
            f"Each record averages {interval} updates and is shifted by one: record v holds updates (v-1)S to vS-1 "
            f"counted from 1, that is {interval - 1} from snapshot v-1 and one from the snapshot before, and the last "
            "update is never logged. "
        )
    if means.how == "exact":
        return (
            f"{shift}Every record lies within one synchronisation cycle, so the onset is known to {interval} updates."
        )
    if means.how == "unmixed":
        return (
            f"{shift}The mixture was solved for the snapshots, which is exact if the reward is constant within a "
            f"cycle; the onset is known to {interval} updates, and a drop at the boundary may read as a partial one in "
            "the record before."
        )
    blur = max(1, -(-series.stride // interval))
    return (
        f"{shift}Records of {series.stride} updates blur the snapshots of S={interval}: the collapse index may be off "
        f"by {blur}, and a drop shows at a part of its depth."
    )


def _choose_keys(
    where: str, table: MetricTable, notes: list[str], reward_key: str | None, step_key: str | None
) -> dict[str, str]:
    counts = [(key, table.count(key)) for key in table.keys()]
    keys: dict[str, str] = {}
    for name, asked, role in (
        ("--reward-key", reward_key, "reward"),
        ("--step-key", step_key, "step"),
    ):
        if asked is not None:
            if not table.count(asked):
                raise UserError(missing_key(where, name, asked, (*table.keys(), *table.seen)))
            keys[role] = asked
    dated = [(key, count) for key, count in counts if not is_setting(table, key)]
    for role in ("reward", "step", "learner_step", "version", "stale", *_METRICS):
        if role not in keys and (found := choose(dated if role == "step" else counts, role)):
            keys[role] = found
    if "reward" not in keys:
        raise UserError(missing_role(where, "reward", (*table.keys(), *table.seen)))
    if step_key is not None:
        keys.pop("learner_step", None)
    others = rivals(counts, "reward", keys["reward"]) if reward_key is None else []
    if others:
        notes.append(f"the reward is {keys['reward']!r}; {', '.join(map(repr, others[:3]))} would do as well")
    return keys


def _sync_interval(
    step: np.ndarray,
    table: MetricTable,
    keys: dict[str, str],
    fully_async: bool,
    given: int | None,
    notes: list[str],
) -> tuple[int | None, str]:
    """S and where it is from. A fully-async log shows it as the distance of training/global_step between
    synchronisations.
    """
    shown = None
    if fully_async and "learner_step" in keys and step.size > 2:
        distances, counts = np.unique(np.diff(step), return_counts=True)
        candidate = int(distances[np.argmax(counts)])
        shown = candidate if candidate > 0 and (step[0] + 1) % candidate == 0 else None
    if given is None:
        return shown, "log" if shown else "unknown"
    if shown and shown != given:
        notes.append(f"the log's own synchronisations are {shown} updates apart, not {given}")
    return given, "given"


def _aligned(
    table: MetricTable,
    key: str,
    step_of_row: np.ndarray,
    step: np.ndarray,
    interval: int | None,
    keys: dict[str, str],
) -> np.ndarray:
    """[records] a metric at the steps of the reward records, the last of repeated values."""
    rows, values = table.column(key)
    values = credible(values)
    at = step_of_row[rows]
    if interval is not None and "learner_step" not in keys:
        at = at * interval - 1
    aligned = np.full(step.size, np.nan)
    place = np.searchsorted(step, at)
    ok = (place < step.size) & np.isfinite(at)
    ok[ok] = step[place[ok]] == at[ok]
    aligned[place[ok]] = values[ok]
    return aligned


def _record(series: Series, means: SnapshotMeans, interval: int | None, where: str) -> RunRecord:
    cycle = interval or series.stride
    steps = {
        "t": series.last,
        "snapshot": series.last // cycle,
        "lag": series.last % cycle,
        "reward_mean": series.reward,
        **series.metrics,
    }
    snapshots = {"M": means.index, "t": means.index * cycle, "reward_mean": means.reward, "reward_se": means.se}
    lr = series.metrics.get("lr")
    constant = lr is not None and np.isfinite(lr).any() and np.nanmin(lr) == np.nanmax(lr)
    return RunRecord(
        steps=_frame(steps, STEP_COLUMNS),
        snapshots=_frame(snapshots, SNAPSHOT_COLUMNS),
        manifest={
            "sync_interval": interval,
            "lr": float(np.nanmax(lr)) if constant else None,
            "source": where,
        },
    )


def _frame(given: dict[str, np.ndarray], columns: dict[str, tuple[type, bool]]) -> pd.DataFrame:
    """A frame of the schema's columns and types, empty where nothing is given."""
    size = next(iter(given.values())).size
    frame = {}
    for name, (kind, nullable) in columns.items():
        values = given.get(name)
        if kind is float:
            frame[name] = np.full(size, np.nan) if values is None else values.astype(np.float64, copy=False)
        elif nullable:
            missing = np.full(size, values is None)
            whole = np.zeros(size, np.int64) if values is None else values.astype(np.int64)
            frame[name] = pd.arrays.IntegerArray(whole, missing)
        else:
            frame[name] = values.astype(np.int64)
    return pd.DataFrame(frame, copy=False)
