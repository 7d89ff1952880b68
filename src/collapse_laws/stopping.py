"""When a run may end before its horizon: its reward has collapsed and stayed down [stated: stop
once collapse is identified].

Rewards that fall often climb back, so a run ends early only when they have stayed down: over
several rollout batches and over a stretch of cumulative learning rate, both settings [declared].
This decides when to stop, never what a run is called.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

LOW = 0.5  # down: at most this part of the best rollout batch before
LEAST_DROP = 0.05  # and this much below it, in reward


def stays_down(
    rewards: Sequence[float],
    lr: float,
    sync_interval: int,
    patience_snapshots: int,
    patience_lr_budget: float,
) -> bool:
    """Whether the last rollout batches all lie far below the best one before them.

    rewards: the mean of each rollout batch so far. The stretch is the longer of
    `patience_snapshots` batches and `patience_lr_budget` of cumulative learning rate (S*eta a
    batch).
    """
    stretch = max(patience_snapshots, math.ceil(patience_lr_budget / (lr * sync_interval)))
    before, last = rewards[:-stretch], rewards[-stretch:]
    if not before:
        return False
    best = max(before)
    return max(last) <= min(LOW * best, best - LEAST_DROP)
