"""The recorder behind the hooks: metrics of a trainer in, our run record and the alarm out.

It knows no framework and needs no PyTorch. Rollout batches are closed as the updates pass; a collapse counts once the
batch after it confirms it, as in `collapse-laws watch`.
"""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from collapse_laws.advise.watch import Batches
from collapse_laws.errors import UserError
from collapse_laws.logs.keys import choose
from collapse_laws.outcome import Outcome
from collapse_laws.runrecord import SCHEMA_VERSION, STEP_COLUMNS, USER, RunWriter, finish, settings_digest

_METRICS = (
    "entropy clip_fraction kl_behaviour kl_ref response_length grad_norm grad_cos degenerate_group_fraction loss"
).split()


class Recorder:
    """Writes the record of a run into `directory` while it trains.

    Args:
        directory: of the record; None keeps the judgement but writes nothing (other ranks of a distributed run).
        sync_interval: S, learner updates between synchronisations.
        lr: the learning rate, for updates whose metrics hold none.
        trainer: name of the framework, for run.json.
    """

    def __init__(self, directory: Path | str | None, sync_interval: int, lr: float, trainer: str) -> None:
        if sync_interval < 1 or not lr > 0:
            raise UserError(
                f"recorder: S is {sync_interval} and the learning rate {lr}; allowed: S from 1, a rate above 0."
            )
        self.directory = None if directory is None else Path(directory)
        self.sync_interval, self.lr, self.trainer = sync_interval, lr, trainer
        self.outcome: Outcome | None = None
        self._writer = None if self.directory is None else RunWriter(self.directory)
        self._batches = Batches()
        self._open: int | None = None
        self._values: list[float] = []
        self._updates = 0
        self._started = time.time()

    @property
    def collapsed(self) -> bool:
        """Whether a collapse is confirmed."""
        found = None if self.outcome is None else self.outcome.collapse_index
        return found is not None and found < self._batches.index[-1]

    def update(self, t: int, metrics: Mapping[str, Any]) -> bool:
        """Take in the metrics of learner update t (from 0), under the framework's names; returns `collapsed`.

        Metrics without a reward (an evaluation) are ignored.
        """
        numbers = {k: float(v) for k, v in metrics.items() if isinstance(v, int | float) and not isinstance(v, bool)}
        names = [(key, 1) for key in numbers]
        reward_key = choose(names, "reward")
        if reward_key is None:
            return self.collapsed
        reward, batch = numbers[reward_key], t // self.sync_interval
        if self._open is not None and batch != self._open:
            self._close()
        self._open, self._updates = batch, max(self._updates, t + 1)
        if math.isfinite(reward):
            self._values.append(reward)
        if self._writer is not None:
            lr_key = choose(names, "lr")
            lr = numbers[lr_key] if lr_key else self.lr
            row = {
                "t": t,
                "snapshot": batch,
                "lag": t % self.sync_interval,
                "lr": lr,
                "reward_mean": reward,
            }
            row |= {role: numbers[key] for role in _METRICS if role in STEP_COLUMNS and (key := choose(names, role))}
            self._writer.steps.append(row)
        return self.collapsed

    def close(self, failed: bool = False) -> Outcome | None:
        """Close the last batch and write run.json; returns the outcome, None for a run without a reward."""
        self._close()
        if self._writer is not None and self.directory is not None:
            self._writer.close()
            self._writer = None
            reason = "failed" if failed else ("collapse" if self.collapsed else "horizon")
            finish(self.directory, self.directory, self._manifest(reason))
        return self.outcome

    def _close(self) -> None:
        if self._open is None or not self._values:
            return
        mean = sum(self._values) / len(self._values)
        if self._writer is not None:
            self._writer.snapshots.append({"M": self._open, "t": self._open * self.sync_interval, "reward_mean": mean})
        self._batches.add(self._open, mean)
        self._values = []
        self.outcome = self._batches.outcome(self.sync_interval)

    def _manifest(self, stop_reason: str) -> dict[str, Any]:
        settings = {"sync_interval": self.sync_interval, "lr": self.lr, "trainer": self.trainer}
        unknown = dict.fromkeys(("model", "seed", "ratio", "source_fingerprint", "horizon_updates"))
        return {
            **unknown,
            "schema_version": SCHEMA_VERSION,
            "study": USER,
            "cell": self.directory.name if self.directory else "",
            "scale": USER,
            "trainer": self.trainer,
            "arm": USER,
            "sync_interval": self.sync_interval,
            "lr": self.lr,
            "settings": settings,
            "settings_digest": settings_digest(settings),
            "updates": self._updates,
            "stop_reason": stop_reason,
            "versions": {
                name: found for name in ("collapse-laws", "trl", "verl", "torch") if (found := _version(name))
            },
            "hardware": {"machine": platform.machine()},
            "timings": {"wall_seconds": round(time.time() - self._started, 3)},
        }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
