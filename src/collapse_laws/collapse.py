"""The collapse criterion: one label and one dated onset for a run, from its mean reward per rollout batch.

The paper dates a collapse by an "abrupt reward drop" of the per-batch mean training reward (Section 2.2) [stated]; the
thresholds are not in its text, so the rule below is [declared]. With snapshot means r_M, the running maximum R_M =
max_{j<M} r_j and the standard error se_M of r_M:

* drop: r_M <= rho R_M and r_M <= R_M - max(min_drop, z se_M), confirmed by r_{M+1} <= confirm R_M or by the run's end;
* recovered: some later r_j >= recovery R_M; further drops are looked for after j. A drop that climbs back at the very
  next batch is on the list too, as recovered;
* lasting: never recovered, and standing for more batches than any drop that this run did recover from;
* collapsed: the last drop is lasting. oscillating: at least two drops, of which one or more recovered, and none is
  lasting. survived: neither, and the cumulative learning rate reaches `survival_factor` times the reference budget c2.
  undecided: neither, and it does not (or no reference is known). no_signal: neither, and the reward never moved or all
  groups were degenerate. failed: NaN reward or a crash before any confirmed collapse.

The true onset lies in (t of the batch before, t of the collapsed batch] [derived]. With S < `window_updates`
consecutive batches are averaged until they span that many learner updates, so that all S are judged on as many
rollouts; the outcome says so. The windows then decide whether there is a drop, and the batches in them when.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from collapse_laws.drops import Found, below, find_drops, lasting, running_maximum
from collapse_laws.errors import UserError
from collapse_laws.outcome import Criterion, Outcome
from collapse_laws.rewards import RewardSeries
from collapse_laws.runrecord import RunRecord

SENSITIVITY_RHOS = (0.35, 0.5, 0.65, 0.8)


def classify(
    reward: ArrayLike,
    *,
    sync_interval: int,
    snapshot: ArrayLike | None = None,
    se: ArrayLike | None = None,
    n: ArrayLike | None = None,
    updates: int | None = None,
    lr: float | None = None,
    lr_budget_spent: float | None = None,
    reference_lr_budget: float | None = None,
    degenerate_fraction: ArrayLike | None = None,
    failed: bool = False,
    criterion: Criterion | None = None,
) -> Outcome:
    """The outcome of one run by the declared rule.

    Args:
        reward: mean reward of each rollout batch, in order; None or NaN where it was not finite.
        sync_interval: S, learner updates between snapshots.
        snapshot: index M of each batch, strictly increasing (default 0, 1, ...); a gap widens the onset's interval.
        se, n: standard error of each mean and its number of rollouts, NaN where unknown. The larger of `se` and the
            binomial standard error counts.
        updates: learner updates made (default S times the last M).
        lr: constant learning rate; with `updates` it gives the cumulative learning rate unless `lr_budget_spent` does.
        reference_lr_budget: c2, which a survivor must outlive `survival_factor` times.
        degenerate_fraction: fraction of groups with equal rewards, per batch.
        failed: the run crashed.
        criterion: thresholds (default: the declared ones).

    Raises:
        UserError: an empty series of a run that did not fail, rewards outside [0, 1] and [-1, 1], indices that
            repeat or go back, columns of different lengths, S below 1.
    """
    rule = criterion or Criterion()
    series = RewardSeries.build(
        reward,
        sync_interval,
        snapshot=snapshot,
        se=se,
        n=n,
        degenerate_fraction=degenerate_fraction,
        window_updates=rule.window_updates,
        reward_range=rule.reward_range,
    )
    if updates is None:
        updates = int(series.last[-1]) * sync_interval if series.last.size else 0
    if lr_budget_spent is None and lr is not None:
        lr_budget_spent = lr * updates
    if not (series.reward.size or failed or series.nan_index is not None):
        raise UserError("the reward series is empty: a run needs at least one rollout batch.")
    crashed = failed or series.nan_index is not None
    ceiling = running_maximum(series.reward)
    found = find_drops(series, ceiling, rule, crashed)
    label, reason = _label(series, found, rule, crashed, lr_budget_spent, reference_lr_budget)
    values = _describe(series, ceiling, found, rule, label == "collapsed")
    if series.window > 1:
        reason += f" Rewards are averages over {series.window} batches, since S is below {rule.window_updates}."
    return Outcome(
        label=label,
        reason=reason,
        sync_interval=sync_interval,
        updates=updates,
        recovered=any(drop.end is not None for drop in found),
        drops=tuple(drop.public(series) for drop in found),
        lr_budget_spent=lr_budget_spent,
        reference_lr_budget=reference_lr_budget,
        window_snapshots=series.window,
        criterion=dataclasses.asdict(rule),
        **values,
    )


def sensitivity(
    reward: ArrayLike,
    *,
    rhos: Sequence[float] = SENSITIVITY_RHOS,
    criterion: Criterion | None = None,
    **given: Any,
) -> list[Outcome]:
    """The outcomes with rho replaced by each of `rhos`; the other arguments are those of `classify`."""
    rule = criterion or Criterion()
    return [classify(reward, criterion=dataclasses.replace(rule, rho=rho), **given) for rho in rhos]


def run_arguments(record: RunRecord, reference_lr_budget: float | None) -> dict[str, Any]:
    """The arguments of `classify` that a run record gives; S of a run in progress is read off its snapshots."""
    frame, manifest = record.snapshots, record.manifest
    interval = manifest.get("sync_interval")
    if interval is None:
        later = frame[frame["M"] > 0]
        if later.empty:
            raise UserError("the record holds neither run.json nor a second snapshot, so S is unknown.")
        interval = int(later["t"].iloc[0] // later["M"].iloc[0])
    updates = manifest.get("updates", len(record.steps) or None)
    spent = float(record.steps["lr"].sum()) if len(record.steps) else None
    return {
        "reward": frame["reward_mean"].to_numpy(),
        "sync_interval": int(interval),
        "snapshot": frame["M"].to_numpy(),
        "se": frame["reward_se"].to_numpy(),
        "n": frame["n"].to_numpy(dtype="float64", na_value=np.nan),
        "degenerate_fraction": frame["degenerate_group_fraction"].to_numpy(),
        "updates": updates,
        "lr": manifest.get("lr"),
        "lr_budget_spent": spent,
        "reference_lr_budget": reference_lr_budget,
        "failed": manifest.get("stop_reason") == "failed",
    }


def classify_run(
    record: RunRecord, reference_lr_budget: float | None = None, criterion: Criterion | None = None
) -> Outcome:
    """The outcome of a run record."""
    return classify(criterion=criterion, **run_arguments(record, reference_lr_budget))


def _label(
    series: RewardSeries,
    found: list[Found],
    rule: Criterion,
    crashed: bool,
    spent: float | None,
    reference: float | None,
) -> tuple[str, str]:
    """The label and the sentence that gives its ground."""
    if lasting(found, series.reward.size):
        drop = found[-1].public(series)
        before = f" after {len(found) - 1} drop(s) that climbed back" if len(found) > 1 else ""
        return "collapsed", (
            f"The reward fell to {drop.reward:.3g} at rollout batch {drop.index}{before} and did not climb back."
        )
    if crashed:
        where = (
            "The run crashed" if series.nan_index is None else f"The reward of batch {series.nan_index} is not finite"
        )
        return "failed", f"{where}, with no confirmed collapse before."
    recovered = sum(drop.end is not None for drop in found)
    if len(found) > 1:
        return (
            "oscillating",
            f"The reward dropped {len(found)} times and climbed back {recovered} times.",
        )
    once = f" One drop, at batch {found[0].index}, climbed back." if found else ""
    if series.degenerate is not None and series.degenerate > rule.degenerate_above:
        return (
            "no_signal",
            f"In the median batch {series.degenerate:.0%} of the groups had equal rewards.",
        )
    if series.reward.size > 1 and np.ptp(series.reward) == 0:
        return "no_signal", f"The reward was {series.reward[0]:.3g} in every rollout batch."
    if series.reward.max() < rule.min_drop:
        return (
            "no_signal",
            f"The reward never reached {rule.min_drop:g}, so that no drop could show.",
        )
    if series.reward.size < 2:
        return "undecided", "There is one rollout batch only, so no drop could show."
    if reference is None or spent is None:
        return (
            "undecided",
            f"No lasting drop, but without a reference budget survival cannot be judged.{once}",
        )
    if spent >= rule.survival_factor * reference * (1 - 1e-9):
        return "survived", (
            f"No lasting drop over a cumulative learning rate of {spent:.4g}, at least {rule.survival_factor:g} times "
            f"the reference {reference:.4g}.{once}"
        )
    return "undecided", (
        f"No lasting drop, but the cumulative learning rate {spent:.4g} is below {rule.survival_factor:g} times the "
        f"reference {reference:.4g}.{once}"
    )


def _describe(
    series: RewardSeries, ceiling: np.ndarray, found: list[Found], rule: Criterion, collapsed: bool
) -> dict[str, Any]:
    """The dated events and the rewards of an outcome."""
    values: dict[str, Any] = {}
    partial = np.flatnonzero(below(series, ceiling, rule.partial_rho, rule))
    if partial.size:
        at = int(partial[0])
        values |= {
            "partial_drop_index": int(series.first[at]),
            "partial_drop_step": series.step(at),
        }
    for prefix, drop in (("first_drop", found[:1]), ("collapse", found[-1:] if collapsed else [])):
        if drop:
            index, name = drop[0].index, "onset" if prefix == "collapse" else prefix
            values |= {f"{prefix}_index": index, f"{prefix}_step": series.sync_interval * index}
            values[f"{name}_low"], values[f"{name}_high"] = drop[0].onset
    if series.reward.size:
        values |= {
            "start_reward": float(series.reward[0]),
            "peak_reward": float(series.reward.max()),
            "last_reward": float(series.reward[-1]),
        }
    return values
