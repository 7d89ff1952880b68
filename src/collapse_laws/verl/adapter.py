"""From verl's runs to run records: the hooks' lines of all attempts, or a plain verl log with what it has lost."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from collapse_laws.errors import UserError
from collapse_laws.protocol import check_realised_lag
from collapse_laws.runrecord import (
    SNAPSHOT_COLUMNS,
    STEP_COLUMNS,
    RunRecord,
    check_row,
    empty_frame,
)
from collapse_laws.verl.branch import Branch, joined

# step column -> verl's metric of that update
_METRICS = {
    "lr": "actor/lr",
    "loss": "actor/loss",
    "grad_norm": "actor/grad_norm",
    "grad_cos": "actor/grad_cos",
    "clip_fraction": "actor/pg_clipfrac",
    "dual_clip_fraction": "actor/pg_clipfrac_lower",
    "ratio_max": "actor/ratio_max",
    "kl_ref": "actor/kl_loss",
    "kl_behaviour": "actor/ppo_kl",
    "displacement_rms": "actor/displacement_rms",
    "update_rms": "actor/update_rms",
}


def step_rows(branch: Branch, sync_interval: int) -> list[dict[str, Any]]:
    """Rows of steps.jsonl; LagError where a behaviour version is not floor(t/S)."""
    check_realised_lag(
        [line["t"] for line in branch.updates],
        [line["behaviour"][0] for line in branch.updates],
        sync_interval,
    )
    rows = []
    for line in branch.updates:
        samples, prompts = sum(line["group_sizes"]), len(line["group_sizes"])
        snapshot = line["behaviour"][0]
        row = {name: line["metrics"].get(metric) for name, metric in _METRICS.items()}
        row |= {
            "t": line["t"],
            "snapshot": snapshot,
            "lag": line["t"] - snapshot * sync_interval,
            "reward_mean": float(np.average(line["group_rewards"], weights=line["group_sizes"])),
            "entropy": line["entropy"],
            "response_length": line["tokens"] / samples,
            "degenerate_group_fraction": line["degenerate_groups"] / prompts,
            "tokens": line["tokens"],
            "seconds": line["seconds"],
        }
        rows.append(check_row(row, STEP_COLUMNS))
    return rows


def snapshot_rows(branch: Branch, sync_interval: int, validation_sizes: Mapping[str, int]) -> list[dict[str, Any]]:
    """Rows of snapshots.jsonl, one for each snapshot whose rollouts were all learned from.

    The standard error is over prompts. The entropy is the mean over the cycle's batches weighted by
    tokens. `validation_sizes`: problems of each validation set, by verl's data source.
    """
    rows = []
    for snapshot, cycle in enumerate(branch.cycles(sync_interval)):
        groups = joined(cycle, "group_rewards")
        samples, tokens = (
            int(joined(cycle, "group_sizes").sum()),
            sum(line["tokens"] for line in cycle),
        )
        entropies = [line["entropy"] for line in cycle]
        before = (
            branch.updates[snapshot * sync_interval - 1]["metrics"] if snapshot else {"actor/displacement_rms": 0.0}
        )
        score, problems = validation_reward(branch.validations.get(snapshot, {}), validation_sizes)
        row = {
            "M": snapshot,
            "t": snapshot * sync_interval,
            "reward_mean": float(groups.mean()),
            "reward_se": float(groups.std(ddof=1) / np.sqrt(len(groups))) if len(groups) > 1 else None,
            "n": samples,
            "degenerate_group_fraction": sum(line["degenerate_groups"] for line in cycle) / len(groups),
            "truncated_fraction": sum(line["truncated"] for line in cycle) / samples,
            "response_length": tokens / samples,
            "entropy": None if None in entropies else sum(line["entropy"] * line["tokens"] for line in cycle) / tokens,
            "displacement_rms": before.get("actor/displacement_rms"),
            "validation_reward": score,
            "validation_n": problems,
        }
        rows.append(check_row(row, SNAPSHOT_COLUMNS))
    return rows


def validation_reward(metrics: Mapping[str, float], sizes: Mapping[str, int]) -> tuple[float | None, int | None]:
    """Mean accuracy over all validation problems, and their number; (None, None) where a set was not scored."""
    scores = {}
    for key, value in metrics.items():
        parts = key.split("/")  # val-core/<data source>/<variable>/mean@1, and data sources have slashes too
        if parts[-1] == "mean@1" and parts[-2] in ("acc", "reward"):
            source = "/".join(parts[1:-2])
            if parts[-2] == "acc" or source not in scores:
                scores[source] = value
    if not sizes or set(scores) != set(sizes):
        return None, None
    total = sum(sizes.values())
    return sum(scores[source] * sizes[source] for source in sizes) / total, total


LOST_WITHOUT_HOOKS = (
    "one averaged record a synchronisation instead of one an update: no per-update rows, no lag and no clip fraction "
    "by lag",
    "record v averages the last update of the cycle before with the first S-1 of its own, so a snapshot's reward is a "
    "mixture",
    "the run's last update is in no record",
    "no gradient cosine, no displacement, no standard error over prompts",
    "the file is overwritten when a run resumes",
)


def plain_log(path: Path | str, sync_interval: int | None = None) -> tuple[RunRecord, tuple[str, ...]]:
    """A verl fully-async file log without hooks as a record of snapshots alone, and what it lacks, a sentence each.

    The three records that share a `step` (rollouter, validation, training aggregate) are merged. S
    is read off `training/global_step` where it is not given: that number grows by S from record to
    record. UserError for a file of another kind.
    """
    merged: dict[int, dict[str, float]] = {}
    for number, text in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
        try:
            record = json.loads(text)
            merged.setdefault(int(record["step"]), {}).update(record["data"])
        except (ValueError, KeyError, TypeError):
            raise UserError(f"{path}, line {number}, is not a record of verl's file logger.") from None
    cycles = {v: data for v, data in sorted(merged.items()) if "training/global_step" in data}
    if not cycles or not any("critic/score/mean" in data for data in cycles.values()):
        raise UserError(f"{path} has no training record of verl's fully-async trainer.")
    steps = [data["training/global_step"] for data in cycles.values()]
    if sync_interval is None:
        versions = list(cycles)
        sync_interval = (
            round((steps[-1] - steps[0]) / (versions[-1] - versions[0])) if len(steps) > 1 else int(steps[0]) + 1
        )
    rows = []
    for version, data in cycles.items():
        validation = [
            v for k, v in merged.get(version - 1, {}).items() if k.startswith("val-core/") and k.endswith("mean@1")
        ]
        row = {
            "M": version - 1,
            "t": (version - 1) * sync_interval,
            "reward_mean": data.get("critic/score/mean"),
            "truncated_fraction": data.get("response_length/clip_ratio"),
            "response_length": data.get("response_length/mean"),
            "entropy": data.get("actor/entropy"),
            "validation_reward": validation[0] if len(validation) == 1 else None,
        }
        rows.append(check_row(row, SNAPSHOT_COLUMNS))
    frame = pd.DataFrame(rows, columns=list(SNAPSHOT_COLUMNS)).astype(empty_frame(SNAPSHOT_COLUMNS).dtypes)
    lr = next((data["actor/lr"] for data in cycles.values() if "actor/lr" in data), None)
    manifest = {"trainer": "verl", "sync_interval": sync_interval, "lr": lr}
    return RunRecord(empty_frame(STEP_COLUMNS), frame, manifest, Path(path)), LOST_WITHOUT_HOOKS
