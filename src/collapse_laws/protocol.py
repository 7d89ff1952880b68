"""Time in periodically synchronised training: lag, snapshot, collapse step, and what each framework calls S.

Section 2.2 of the paper [stated]: the behaviour snapshot at learner update t (0-based) is phi_t =
theta_{S*floor(t/S)}, the lag is t mod S, and a collapse first seen in the rollouts of snapshot M is
dated t_obs = S*M. Since those rollouts show the policy at a multiple of S only, the true onset lies
in (S*(M-1), S*M] [derived].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


class LagError(ValueError):
    """The realised lag of a run is not t mod S."""


def lag(t: int, sync_interval: int) -> int:
    """Updates between the behaviour snapshot and the learner at update t (0-based): k_t = t mod S."""
    return t % sync_interval


def snapshot_index(t: int, sync_interval: int) -> int:
    """Index M of the behaviour snapshot that update t (0-based) learns from: floor(t/S)."""
    return t // sync_interval


def mean_lag(sync_interval: int) -> float:
    """Mean lag over a cycle, kbar = (S-1)/2, in learner updates."""
    return (sync_interval - 1) / 2


def collapse_step(collapse_index: int, sync_interval: int) -> int:
    """t_obs = S*M, in learner updates."""
    return collapse_index * sync_interval


def onset_interval(collapse_index: int, sync_interval: int) -> tuple[int, int]:
    """The half-open interval (S*(M-1), S*M] that holds the true onset, in learner updates."""
    return sync_interval * (collapse_index - 1), sync_interval * collapse_index


def check_realised_lag(t: Sequence[int], snapshot: Sequence[int], sync_interval: int) -> None:
    """Raise LagError at the first update whose behaviour snapshot is not floor(t/S).

    `t` and `snapshot` are the record's columns of equal length: learner update and behaviour
    version used.
    """
    t, snapshot = np.asarray(t), np.asarray(snapshot)
    wrong = np.flatnonzero(snapshot != t // sync_interval)
    if wrong.size:
        first = wrong[0]
        raise LagError(
            f"update {t[first]} learned from snapshot {snapshot[first]}, but a synchronisation interval of "
            f"{sync_interval} means snapshot {t[first] // sync_interval} ({wrong.size} such updates)."
        )


@dataclass(frozen=True, slots=True)
class FrameworkKnob:
    """Where a framework keeps the synchronisation interval and its guard against staleness."""

    framework: str
    sync_interval: str
    guard: str
    exact: bool  # with the guard at the value given, the lag is exactly t mod S
    note: str


FRAMEWORK_KNOBS = (
    FrameworkKnob(
        "verl fully_async",
        "async_training.trigger_parameter_sync_step",
        "async_training.staleness_threshold=0",
        True,
        "the default threshold 0.1 lets rollouts run ahead: the lag reaches 2S-1",
    ),
    FrameworkKnob(
        "verl v1 separate_async",
        "trainer.v1.separate_async.parameter_sync_step",
        "trainer.v1.separate_async.num_warmup_batches=0",
        False,
        "the default of 1 adds a whole cycle to every lag",
    ),
    FrameworkKnob("TRL AsyncGRPO", "weight_sync_steps", "max_staleness", False, "in versions"),
    FrameworkKnob("PipelineRL", "weight_update_interval", "max_lag", False, "both in samples"),
    FrameworkKnob("prime-rl", "one sync a step", "max_off_policy_steps", False, "drops older"),
    FrameworkKnob("AReaL", "one version a step", "max_head_offpolicyness", False, ""),
    FrameworkKnob("SkyRL", "one sync a step", "fully_async.max_staleness_steps", False, ""),
    FrameworkKnob("NeMo-RL", "one sync a step", "max_trajectory_age_steps", False, ""),
    FrameworkKnob("slime", "--update-weights-interval", "--max-policy-version-lag", False, ""),
    FrameworkKnob("OpenRLHF", "the queue", "async_queue_size", False, ""),
)
