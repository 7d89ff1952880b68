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
rollouts; the outcome says so.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from collapse_laws.errors import UserError
from collapse_laws.rewards import RewardSeries
from collapse_laws.runrecord import RunRecord

LABELS = ("collapsed", "oscillating", "survived", "undecided", "no_signal", "failed")
SENSITIVITY_RHOS = (0.35, 0.5, 0.65, 0.8)


@dataclass(frozen=True, slots=True)
class Criterion:
    """Thresholds of the rule [declared]; rewards are on the scale 0 to 1."""

    rho: float = 0.5  # a drop leaves at most this fraction of the running maximum
    min_drop: float = 0.05  # smallest absolute drop
    z: float = 4.0  # smallest drop in standard errors of the snapshot mean
    confirm: float = 0.75  # the next batch stays below this fraction of the running maximum
    recovery: float = 0.75  # a later batch above this fraction of the earlier maximum ends the drop
    partial_rho: float = 0.8  # a partial drop leaves at most this fraction
    window_updates: int = 8  # batches are averaged until they span this many learner updates
    survival_factor: float = 2.0  # a survivor outlives this many reference clocks
    degenerate_above: float = 0.95  # median fraction of degenerate groups from which there is no signal
    reward_range: tuple[float, float] | None = None  # of the scorer; None: [0, 1], or [-1, 1] where a mean is negative

    def __post_init__(self) -> None:
        for name in ("rho", "confirm", "recovery", "partial_rho"):
            if not 0 < getattr(self, name) <= 1:
                raise UserError(f"criterion: {name} is {getattr(self, name)!r}; allowed: a number above 0, at most 1.")
        if self.min_drop < 0 or self.z < 0 or self.window_updates < 1:
            raise UserError("criterion: min_drop and z must be at least 0, and window_updates at least 1.")


@dataclass(frozen=True, slots=True)
class Drop:
    """A fall below rho times the running maximum, and the batch at which the reward had climbed back, if it did."""

    index: int
    reward: float
    recovered_index: int | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a run. Indices are rollout batches M, steps learner updates, rewards on the scale 0 to 1."""

    label: str
    reason: str
    sync_interval: int
    updates: int | None
    collapse_index: int | None = None
    collapse_step: int | None = None  # t_obs = S*M
    onset_low: int | None = None  # the true onset lies in (onset_low, onset_high], learner updates
    onset_high: int | None = None
    partial_drop_index: int | None = None  # first partial drop, which may be the collapse itself
    partial_drop_step: int | None = None
    first_drop_index: int | None = None  # first drop below rho, lasting or not
    first_drop_step: int | None = None
    first_drop_low: int | None = None  # interval of its onset, as for the collapse
    first_drop_high: int | None = None
    recovered: bool = False  # at least one drop climbed back
    drops: tuple[Drop, ...] = ()
    start_reward: float | None = None
    peak_reward: float | None = None
    last_reward: float | None = None
    lr_budget_spent: float | None = None  # sum of the learning rates of all updates
    reference_lr_budget: float | None = None  # c2
    window_snapshots: int = 1  # batches averaged into one point
    criterion: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """A dictionary of JSON values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Outcome:
        """The outcome `to_json` wrote; UserError for an unknown label or a missing key."""
        if value.get("label") not in LABELS:
            raise UserError(f"outcome: label {value.get('label')!r} is not allowed; allowed: {', '.join(LABELS)}.")
        known = {f.name for f in dataclasses.fields(cls)}
        body = {key: item for key, item in value.items() if key in known}
        body["drops"] = tuple(Drop(**drop) for drop in body.get("drops", ()))
        try:
            return cls(**body)
        except TypeError as error:
            raise UserError(f"outcome: {error}.") from None


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

    Args: reward: mean reward of each rollout batch, in order; None or NaN where it was not finite. sync_interval: S,
    learner updates between snapshots. snapshot: index M of each batch, strictly increasing (default 0, 1, ...); a gap
    widens the onset's interval. se, n: standard error of each mean and its number of rollouts, NaN where unknown. The
    larger of `se` and the binomial standard error counts. updates: learner updates made (default S times the last M).
    lr: constant learning rate; with `updates` it gives the cumulative learning rate unless `lr_budget_spent` does.
    reference_lr_budget: c2, which a survivor must outlive `survival_factor` times. degenerate_fraction: fraction of
    groups with equal rewards, per batch. failed: the run crashed. criterion: thresholds (default: the declared ones).

    Raises: UserError: an empty series of a run that did not fail, rewards outside [0, 1] and [-1, 1], indices that
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
    ceiling = _running_maximum(series.reward)
    found = _find_drops(series, ceiling, rule, crashed)
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


@dataclass(frozen=True, slots=True)
class _Found:
    """A drop by its positions in the series."""

    start: int
    end: int | None  # position at which it had climbed back

    def public(self, series: RewardSeries) -> Drop:
        back = None if self.end is None else int(series.first[self.end])
        return Drop(int(series.first[self.start]), float(series.reward[self.start]), back)


def _running_maximum(reward: np.ndarray) -> np.ndarray:
    """R_M, the largest reward before each point; NaN at the first."""
    ceiling = np.full(reward.shape, np.nan)
    ceiling[1:] = np.maximum.accumulate(reward[:-1])
    return ceiling


def _below(series: RewardSeries, ceiling: np.ndarray, fraction: float, rule: Criterion) -> np.ndarray:
    """Where a point is at most `fraction` of the running maximum and the drop is larger than noise."""
    pooled = (series.reward + ceiling) / 2
    binomial = np.sqrt(pooled * (1 - pooled) / series.n)
    se = np.fmax(np.fmax(series.se, binomial), 0.0)  # an unknown standard error counts as 0
    noise = np.maximum(rule.min_drop, rule.z * np.where(np.isnan(se), 0.0, se))
    return (series.reward <= fraction * ceiling) & (series.reward <= ceiling - noise)


def _find_drops(series: RewardSeries, ceiling: np.ndarray, rule: Criterion, crashed: bool) -> list[_Found]:
    """All drops in order. A drop at the very last point counts unless the run crashed there."""
    reward, found, position = series.reward, [], 0
    candidates = np.flatnonzero(_below(series, ceiling, rule.rho, rule))
    for start in candidates.tolist():
        if start < position:
            continue
        at_end = start + 1 == reward.size
        confirmed = not crashed if at_end else reward[start + 1] <= rule.confirm * ceiling[start]
        recovery = rule.recovery * ceiling[start]
        if not confirmed and (at_end or reward[start + 1] < recovery):
            continue
        end = _first_from(reward, start + 1, recovery)
        found.append(_Found(start, end))
        if end is None:
            break
        position = end
    return found


def _first_from(reward: np.ndarray, begin: int, level: float) -> int | None:
    """The first position from `begin` on with a reward of at least `level`; the stretches looked at double."""
    width = 16
    while begin < reward.size:
        reached = np.flatnonzero(reward[begin : begin + width] >= level)
        if reached.size:
            return begin + int(reached[0])
        begin, width = begin + width, 2 * width
    return None


def _lasting(found: list[_Found], points: int) -> bool:
    """Whether the last drop never climbed back and stands longer than any that did."""
    if not found or found[-1].end is not None:
        return False
    recovered = max((drop.end - drop.start for drop in found if drop.end is not None), default=0)
    return points - found[-1].start > recovered


def _label(
    series: RewardSeries,
    found: list[_Found],
    rule: Criterion,
    crashed: bool,
    spent: float | None,
    reference: float | None,
) -> tuple[str, str]:
    """The label and the sentence that gives its ground."""
    if _lasting(found, series.reward.size):
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
    once = f" One drop, at batch {found[0].public(series).index}, climbed back." if found else ""
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
        f"No lasting drop, but the cumulative learning rate {spent:.4g} is below {rule.survival_factor:g} times "
        f"the reference {reference:.4g}.{once}"
    )


def _describe(
    series: RewardSeries, ceiling: np.ndarray, found: list[_Found], rule: Criterion, collapsed: bool
) -> dict[str, Any]:
    """The dated events and the rewards of an outcome."""
    values: dict[str, Any] = {}
    partial = np.flatnonzero(_below(series, ceiling, rule.partial_rho, rule))
    if partial.size:
        at = int(partial[0])
        values |= {
            "partial_drop_index": int(series.first[at]),
            "partial_drop_step": series.step(at),
        }
    for prefix, drop in (("first_drop", found[:1]), ("collapse", found[-1:] if collapsed else [])):
        if drop:
            at = drop[0].start
            values |= {f"{prefix}_index": int(series.first[at]), f"{prefix}_step": series.step(at)}
            name = "onset" if prefix == "collapse" else prefix
            values[f"{name}_low"], values[f"{name}_high"] = series.onset(at)
    if series.reward.size:
        values |= {
            "start_reward": float(series.reward[0]),
            "peak_reward": float(series.reward.max()),
            "last_reward": float(series.reward[-1]),
        }
    return values
