"""What the collapse criterion is given and what it returns: thresholds [declared], drops of a run, its outcome."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from collapse_laws.errors import UserError

LABELS = ("collapsed", "oscillating", "survived", "undecided", "no_signal", "failed")


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
