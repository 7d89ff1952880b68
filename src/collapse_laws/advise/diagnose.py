"""diagnose: what became of the run behind a log, what S*eta and the clock say of it, and what the log does not tell."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from collapse_laws.advise.calibration import Brackets, published_brackets, reference_budget
from collapse_laws.advise.judge import Rates, judge, rates
from collapse_laws.advise.readings import NAMES, Reading, readings
from collapse_laws.logs import ReadLog
from collapse_laws.outcome import Outcome
from collapse_laws.protocol import LagError, check_realised_lag

_ROUNDING = 1e-9  # sums of learning rates that agree to this are the same: (a, b] and (b, c] are disjoint
_IN_UPDATES = (  # of an outcome, what is unknown where the log counts synchronisations and S is not given
    "updates collapse_step onset_low onset_high partial_drop_step first_drop_step first_drop_low first_drop_high "
    "lr_budget_spent"
).split()


@dataclass(frozen=True, slots=True)
class Verdict:
    """One finding with the number it rests on."""

    name: str
    metric: str
    value: float | None
    step: int | None  # learner update, None where the finding has no date
    sentence: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Everything said of one log. Without S, the indices are None and steps are dated by records."""

    log: ReadLog
    outcome: Outcome
    rate: Rates
    verdicts: tuple[Verdict, ...]
    readings: tuple[Reading, ...]
    missing: tuple[str, ...]

    @property
    def product(self) -> float | None:
        """S*eta."""
        if self.log.sync_interval is None or self.rate.lr is None:
            return None
        return self.log.sync_interval * self.rate.lr

    def to_json(self) -> dict[str, Any]:
        """A dictionary of JSON values; numbers that are not known are null."""
        log, outcome = self.log, self.outcome
        known = log.sync_interval is not None
        return {
            "label": outcome.label,
            "collapse_index": outcome.collapse_index if known else None,
            "collapse_step": outcome.collapse_step,
            "onset_interval": [outcome.onset_low, outcome.onset_high] if known and outcome.onset_high else None,
            "partial_drop_index": outcome.partial_drop_index if known else None,
            "partial_drop_step": outcome.partial_drop_step,
            "first_drop_index": outcome.first_drop_index if known else None,
            "first_drop_step": outcome.first_drop_step,
            "format": log.format,
            "sync_interval": log.sync_interval,
            "sync_interval_source": log.sync_interval_source,
            "lr": self.rate.lr,
            "lr_source": self.rate.source,
            "product": self.product,
            "lr_budget_spent": outcome.lr_budget_spent,
            "lr_budget_at_collapse": _spent_at(self.rate, outcome),
            "reason": outcome.reason,
            "rewards": {
                "start": outcome.start_reward,
                "peak": outcome.peak_reward,
                "last": outcome.last_reward,
            },
            "verdicts": [asdict(verdict) for verdict in self.verdicts],
            "readings": [asdict(reading) for reading in self.readings],
            "missing": list(self.missing),
            "exactness": log.exactness,
            "read": {
                "path": str(log.path),
                "rows": log.rows,
                "steps": log.steps,
                "updates": None if log.counts_synchronisations else log.series.updates,
                "duplicates_dropped": log.series.duplicates,
                "keys": log.keys,
                "notes": list(log.notes),
            },
            "outcome": outcome.to_json() if known else None,
        }


def diagnose(log: ReadLog, lr: float | None = None, calibration: tuple[Brackets, ...] | None = None) -> Diagnosis:
    """Judge a log. `calibration` replaces the published brackets."""
    rate = rates(log, lr)
    brackets = calibration or published_brackets()
    unknown = log.counts_synchronisations
    outcome = judge(log, rate, None if unknown else reference_budget(brackets))
    cycle = log.sync_interval or log.series.stride
    event = next(
        (s for s in (outcome.collapse_step, outcome.first_drop_step, outcome.partial_drop_step) if s is not None),
        None,
    )
    if unknown:
        outcome = replace(outcome, **dict.fromkeys(_IN_UPDATES))
    verdicts = [_reward_verdict(log, outcome)]
    if outcome.partial_drop_index is not None and outcome.partial_drop_index != outcome.first_drop_index:
        verdicts.append(_partial_verdict(log, outcome))
    verdicts += _boundary_verdicts(log, rate, brackets)
    verdicts += _clock_verdicts(log, rate, outcome, brackets)
    verdicts += _lag_verdicts(log)
    return Diagnosis(
        log,
        outcome,
        rate,
        tuple(verdicts),
        tuple(readings(log, event, cycle)),
        tuple(_missing(log, rate)),
    )


def _spent_at(rate: Rates, outcome: Outcome) -> list[float] | None:
    """Cumulative learning rate over the ends of the onset's interval."""
    if outcome.onset_high is None or rate.lr is None:
        return None
    return [rate.spent(int(outcome.onset_low or 0)), rate.spent(int(outcome.onset_high))]  # type: ignore[list-item]


def _reward_verdict(log: ReadLog, outcome: Outcome) -> Verdict:
    key = log.keys.get("reward", "reward_mean")
    if outcome.label == "collapsed":
        onset = (
            f"the true onset lies after update {outcome.onset_low}, at the latest at {outcome.onset_high}"
            if log.sync_interval
            else (
                "the true onset lies up to one synchronisation earlier"
                if log.counts_synchronisations
                else "the true onset lies up to one S earlier"
            )
        )
        sentence = (
            f"Collapsed: the reward fell below {outcome.criterion['rho']:g} of its peak {outcome.peak_reward:.3g} "
            f"{_where(log, outcome.collapse_index, outcome.collapse_step)} and stayed there; {onset}."
        )
        return Verdict("collapse", key, outcome.drops[-1].reward, outcome.collapse_step, sentence)
    lead = {
        "oscillating": "Oscillating",
        "survived": "Collapse not detected",
        "undecided": "Collapse not detected",
        "no_signal": "No learning signal",
        "failed": "Failed",
    }[outcome.label]
    reason = outcome.reason
    if log.sync_interval is None:
        reason = reason.replace("rollout batch", "record").replace("batch", "record")
    return Verdict("collapse", key, outcome.last_reward, outcome.first_drop_step, f"{lead}: {reason}")


def _where(log: ReadLog, index: int | None, step: int | None) -> str:
    if log.counts_synchronisations:
        return f"at the log's step {index * log.series.stride + 1}"  # type: ignore[operator]
    return f"in rollout batch {index} (update {step})" if log.sync_interval else f"at update {step}"


def _partial_verdict(log: ReadLog, outcome: Outcome) -> Verdict:
    place = int((log.snapshots.index >= outcome.partial_drop_index).argmax())
    value = float(log.snapshots.reward[place])
    where = _where(log, outcome.partial_drop_index, outcome.partial_drop_step)
    sentence = f"A partial drop came first, to {value:.3g} {where}."
    return Verdict(
        "partial drop",
        log.keys.get("reward", "reward_mean"),
        value,
        outcome.partial_drop_step,
        sentence,
    )


def _boundary_verdicts(log: ReadLog, rate: Rates, brackets: tuple[Brackets, ...]) -> list[Verdict]:
    if rate.lr is None:
        return []
    if log.sync_interval is None:
        return [_largest_interval(rate.lr, known) for known in brackets if known.stable_max and not known.refuted]
    product = log.sync_interval * rate.lr
    return [Verdict("boundary", "S*eta", product, None, known.place(log.sync_interval, rate.lr)) for known in brackets]


def _largest_interval(lr: float, known: Brackets) -> Verdict:
    most = int(known.stable_max * (1 + 1e-9) / lr)  # type: ignore[operator]
    allowed = f"S up to {most} would keep" if most >= 1 else "even S=1 would not keep"
    sentence = (
        f"S is not known; at eta = {lr:.3g}, {allowed} S*eta within what was stable for {known.name} ({known.source})."
    )
    return Verdict("boundary", "eta", lr, None, sentence)


def _clock_verdicts(log: ReadLog, rate: Rates, outcome: Outcome, brackets: tuple[Brackets, ...]) -> list[Verdict]:
    if rate.lr is None or outcome.updates is None:
        return []
    found = []
    at = _spent_at(rate, outcome)
    for known in brackets:
        clock = known.clock(rate.lr)
        if clock is None:
            continue
        if at is not None:
            relation = "overlaps"
            if at[1] <= known.c2_low * (1 + _ROUNDING):
                relation = "lies below"
            elif at[0] >= known.c2_high * (1 - _ROUNDING) and log.sync_interval:
                relation = "lies above"
            elif log.sync_interval is None:
                relation = "may lie in or below"
            span = f"in ({at[0]:.3g}, {at[1]:.3g}]," if log.sync_interval else f"at most {at[1]:.3g},"
            sentence = f"The cumulative learning rate at the onset, {span} {relation} {clock}"
            found.append(Verdict("clock", "sum of eta", at[1], outcome.onset_high, sentence))
            continue
        spent = rate.spent(outcome.updates) or 0.0
        share = spent / known.c2_high
        tail = (
            "twice that clock has passed"
            if share >= 2
            else "a survivor must outlive 2 c2, "
            f"{max(0, round(2 * known.c2_high / rate.lr) - outcome.updates)} updates more"
        )
        sentence = f"{outcome.updates} updates have spent {spent:.3g}, {share:.2g} of {known.c2_text}: {tail}."
        found.append(Verdict("clock", "sum of eta", spent, outcome.updates, sentence))
    return found


def _lag_verdicts(log: ReadLog) -> list[Verdict]:
    if log.stale:
        sentence = (
            f"{log.keys['stale']} reaches {log.stale:g}: some rollouts were older than the last synchronisation, so "
            "the lag was not t mod S and the laws' S understates the staleness."
        )
        return [Verdict("lag", log.keys["stale"], log.stale, None, sentence)]
    if log.format == "run_record" and log.sync_interval:
        steps = log.record.steps
        try:
            check_realised_lag(steps["t"].to_numpy(), steps["snapshot"].to_numpy(), log.sync_interval)
        except LagError as error:
            return [Verdict("lag", "lag", None, None, f"The realised lag is not t mod S: {error}")]
    return []


def _missing(log: ReadLog, rate: Rates) -> list[str]:
    lacking = []
    if log.counts_synchronisations:
        lacking.append(
            "S: the log's step counts synchronisations, and it has no training/global_step; without --sync-interval "
            "neither learner updates nor the clock can be told."
        )
    elif log.sync_interval is None:
        lacking.append(
            "S: give --sync-interval to date the collapse by rollout batch and to place S*eta; the clock needs eta "
            "only."
        )
    if rate.lr is None:
        lacking.append("eta: the log has no learning rate; give --lr to place S*eta and the clock.")
    if log.series.first.size and log.series.first[0] > 0 and log.format != "run_record":
        lacking.append(
            f"the first {int(log.series.first[0])} update(s): a peak before them is unseen, and their learning rate is "
            "taken as the first one logged."
        )
    absent = [name for role, name in NAMES.items() if role not in log.series.metrics]
    if absent:
        lacking.append(f"not in the log: {', '.join(absent)}.")
    if "degenerate_group_fraction" not in log.series.metrics and log.record.snapshots["n"].isna().all():
        lacking.append("the number of rollouts a batch: the noise of the rewards is judged by their scatter alone.")
    return lacking
