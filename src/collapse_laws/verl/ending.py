"""When a verl run may end: at its horizon, when its reward stays down, or when it learns nothing any more."""

from __future__ import annotations

from collapse_laws.stopping import stays_down
from collapse_laws.study import Cell
from collapse_laws.verl.branch import Branch


def ending(cell: Cell, branch: Branch) -> str | None:
    """Why the run may end now: horizon, collapse or failed; None while it goes on."""
    settings = cell.settings
    rewards = branch.snapshot_rewards(cell.sync_interval)
    patience = settings["stop_patience_snapshots"], settings["stop_patience_lr_budget"]
    if len(branch.updates) >= cell.horizon_updates:
        return "horizon"
    if stays_down(rewards, cell.lr, cell.sync_interval, *patience):
        return "collapse"
    cycle = branch.updates[-cell.sync_interval :]
    if len(cycle) == cell.sync_interval and not any("actor/grad_norm" in line["metrics"] for line in cycle):
        return "failed"  # verl skips an update whose gradient is not finite
    return None
