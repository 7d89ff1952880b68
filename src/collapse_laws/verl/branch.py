"""The updates of a verl run that its weights descend from, out of the lines of all its attempts.

A run may take several attempts (preemption). Each starts at a parameter version that was
checkpointed; the updates that an attempt made after the checkpoint from which the next one started
belong to a branch that was given up, and are left out. So every update is there once, and each
learned from the weights of the one before it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from collapse_laws.errors import UserError
from collapse_laws.verl.hooks import parse_lines

LINES, VERL_LOG, START = "updates.jsonl", "verl.jsonl", "start.json"  # files of an attempt


@dataclass(frozen=True, slots=True)
class Attempt:
    """One start of the trainer: the parameter version that it began with, and its lines."""

    version: int
    lines: list[dict[str, Any]]

    @classmethod
    def read(cls, directory: Path) -> Attempt:
        """From `start.json` and `updates.jsonl` of an attempt's folder."""
        start = json.loads((directory / START).read_text(encoding="utf-8"))
        return cls(start["version"], parse_lines(directory / LINES))


def read_attempts(directory: Path) -> list[Attempt]:
    """All attempts of a run in the order in which they were started."""
    return [Attempt.read(path.parent) for path in sorted(Path(directory).glob(f"*/{START}"))]


@dataclass(frozen=True, slots=True)
class Branch:
    """The updates of a run that its final weights descend from, and the validations along them."""

    updates: list[dict[str, Any]]  # t = 0, 1, ... without a gap
    validations: dict[int, dict[str, float]]  # parameter version -> verl's scores

    def cycles(self, sync_interval: int) -> list[list[dict[str, Any]]]:
        """The updates by snapshot, whole cycles only."""
        whole = len(self.updates) // sync_interval
        return [self.updates[m * sync_interval : (m + 1) * sync_interval] for m in range(whole)]

    def snapshot_rewards(self, sync_interval: int) -> list[float]:
        """Mean reward of the rollouts of each snapshot whose cycle is complete."""
        return [float(np.mean(joined(cycle, "group_rewards"))) for cycle in self.cycles(sync_interval)]


def surviving_branch(attempts: Sequence[Attempt], sync_interval: int) -> Branch:
    """Every update once; UserError where lines are missing before a checkpoint from which an attempt went on."""
    kept: dict[int, dict[str, Any]] = {}
    validations: dict[int, dict[str, float]] = {}
    for number, attempt in enumerate(attempts):
        end = min((later.version for later in attempts[number + 1 :]), default=None)
        for line in attempt.lines:
            if line["kind"] == "update" and (end is None or line["t"] < end * sync_interval):
                kept[line["t"]] = line
            elif line["kind"] == "validation" and (end is None or line["version"] <= end):
                validations.setdefault(line["version"], line["metrics"])
    updates = [kept[t] for t in sorted(kept)]
    gaps = [t for t, line in enumerate(updates) if line["t"] != t]
    if gaps:
        raise UserError(
            f"the lines of update {gaps[0]} are missing, although update {updates[gaps[0]]['t']} is there: the folder "
            "of this run is damaged; remove it and train the cell again."
        )
    return Branch(updates, validations)


def joined(lines: Sequence[Mapping[str, Any]], key: str) -> np.ndarray:
    """The lists under one key of several lines as one array."""
    return np.concatenate([np.asarray(line[key], dtype=float) for line in lines])
