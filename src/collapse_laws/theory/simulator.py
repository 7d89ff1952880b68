"""A simulator of the conditional model: staleness feedback, persistent drift, snapshot exit. Theory, not training.

A run is on the persistent branch where its gain gamma = gamma_c eta x^alpha / product exceeds gamma_c (x = S or S-1);
its displacement, in units of the exit radius, then grows by 1/t* an update, t* = c2 eta^-b S^c at b = 1, c = 0, plus
martingale noise; other runs only diffuse. The reward improves until the first synchronisation outside the radius and is
lost after it. Run-to-run spread is log-normal in the threshold and in the radius. alpha, b and c are free, so that
estimators meet known truths on and off the laws.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from collapse_laws.runrecord import SCHEMA_VERSION, RunWriter, finish, settings_digest

LR_UNIT, INTERVAL_UNIT = 2e-7, 16.0  # where b and c leave the clock at c2 [declared]
AFTERMATH = 3  # rollout batches recorded from the exit on


@dataclass(frozen=True, slots=True)
class Truth:
    """The parameters that estimators are asked to recover."""

    alpha: float = 1.0
    scale: str = "S-1"  # of the boundary: "S" or "S-1"
    product: float = 2.4e-6  # threshold of eta x^alpha, at alpha = 1
    c2: float = 3.2e-5
    b: float = 1.0
    c: float = 0.0
    threshold_spread: float = 0.1  # standard deviation of log threshold between runs
    radius_spread: float = 0.1  # of log radius
    noise: float = 0.0002  # martingale noise of an update, relative to the radius, at eta = LR_UNIT
    rollouts: int = 512
    horizon_clocks: float = 2.2  # a run that does not exit ends after so many c2/eta

    @property
    def has_lr_budget(self) -> bool:
        """Whether t*eta is one number c2."""
        return self.b == 1 and self.c == 0

    def clock_updates(self, sync_interval: int, lr: float) -> float:
        """t*, updates to the exit without noise."""
        return self.c2 / lr * (lr / LR_UNIT) ** (1 - self.b) * (sync_interval / INTERVAL_UNIT) ** self.c

    def persistent(self, sync_interval: int, lr: float, threshold: float) -> bool:
        """Whether the gain reaches the critical one; `threshold` is the run's factor on the product."""
        x = sync_interval - (self.scale == "S-1")
        unit = INTERVAL_UNIT - (self.scale == "S-1")
        return lr * unit * (x / unit) ** self.alpha >= self.product * threshold


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    """A simulated run: rewards of its rollout batches and the batch at which it had left the region."""

    sync_interval: int
    lr: float
    seed: int
    reward: NDArray[np.float64]  # [batches]
    displacement: NDArray[np.float64]  # [batches], in units of the radius
    exit_index: int | None
    updates: int
    rollouts: int


def simulate_run(truth: Truth, sync_interval: int, lr: float, seed: int, rng: np.random.Generator) -> SimulatedRun:
    """One run at (S, eta); `seed` only labels it, all randomness comes from `rng`."""
    clock = truth.clock_updates(sync_interval, lr)
    longest = max(truth.c2 / lr, clock) * truth.horizon_clocks
    batches = int(np.ceil(longest / sync_interval)) + 1
    threshold, radius = np.exp(rng.normal(size=2) * (truth.threshold_spread, truth.radius_spread))
    drift = float(truth.persistent(sync_interval, lr, threshold)) / clock
    spread = truth.noise * (lr / LR_UNIT) * np.sqrt(sync_interval)
    steps = drift * sync_interval + spread * rng.normal(size=batches - 1)
    displacement = np.r_[0.0, np.cumsum(steps)] / radius
    outside = np.flatnonzero(np.abs(displacement) >= 1)
    exit_index = int(outside[0]) if outside.size else None
    if exit_index is not None:
        batches = min(batches, exit_index + AFTERMATH)
    budget = np.arange(batches) * sync_interval * lr / truth.c2
    mean = 0.3 + 0.35 * -np.expm1(-4 * budget)
    if exit_index is not None:
        mean[exit_index:] *= 0.05
    reward = rng.binomial(truth.rollouts, mean) / truth.rollouts
    return SimulatedRun(
        sync_interval,
        lr,
        seed,
        reward,
        displacement[:batches],
        exit_index,
        (batches - 1) * sync_interval,
        truth.rollouts,
    )


def write_record(run: SimulatedRun, truth: Truth, study: str, cell: str, directory: Path) -> None:
    """The run as a run record in `directory`, trainer "theory"; columns that the model has no value for are null."""
    work = directory.with_name(f".{directory.name}.work")
    writer = RunWriter(work)
    for index, (reward, moved) in enumerate(zip(run.reward, run.displacement, strict=True)):
        t = index * run.sync_interval
        writer.snapshots.append(
            {
                "M": index,
                "t": t,
                "reward_mean": reward,
                "n": run.rollouts,
                "displacement_rms": abs(moved),
            }
        )
        for lag in range(run.sync_interval if t < run.updates else 0):
            writer.steps.append({"t": t + lag, "snapshot": index, "lag": lag, "lr": run.lr, "reward_mean": reward})
    writer.close()
    settings = {name: getattr(truth, name) for name in Truth.__slots__}
    manifest = {
        "schema_version": SCHEMA_VERSION,
        "study": study,
        "cell": cell,
        "scale": "theory",
        "trainer": "theory",
        "arm": "theory",
        "model": "conditional-model",
        "sync_interval": run.sync_interval,
        "lr": run.lr,
        "seed": run.seed,
        "ratio": "behaviour",
        "settings": settings,
        "settings_digest": settings_digest(settings),
        "source_fingerprint": None,
        "horizon_updates": run.updates,
        "updates": run.updates,
        "stop_reason": "horizon" if run.exit_index is None else "collapse",
        "versions": {},
        "hardware": {},
        "timings": {},
    }
    finish(work, directory, manifest)
    shutil.rmtree(work)
