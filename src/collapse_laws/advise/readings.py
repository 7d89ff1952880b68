"""Other metrics around the drop: what moved before it, what moved with it, each with its value and update.

A reading compares the records just before the event (two cycles, at least three records) and those at it with all
earlier ones, by medians. A change counts when it exceeds three robust standard deviations of the earlier records and a
quarter of their median (0.05 for cosines) [declared]. What does not count is "not detected", which is not "healthy".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collapse_laws.logs import ReadLog

NAMES = {
    "grad_cos": "gradient cosine",
    "entropy": "entropy",
    "clip_fraction": "clip fraction",
    "kl_behaviour": "KL to the behaviour policy",
    "kl_ref": "KL to the reference",
    "response_length": "response length",
    "grad_norm": "gradient norm",
    "degenerate_group_fraction": "fraction of groups without a signal",
}
_MEANING = {
    (
        "grad_cos",
        1,
    ): "consecutive gradients began to point the same way; in the paper this is a late warning only",
    ("grad_cos", -1): "consecutive gradients lost their common direction",
    ("entropy", -1): "the policy narrowed",
    ("entropy", 1): "the policy became more random",
    (
        "clip_fraction",
        1,
    ): "more tokens reached the clip, so the learner had moved further from the policy that sampled",
    ("clip_fraction", -1): "fewer tokens reached the clip",
    ("kl_behaviour", 1): "the learner moved away from the policy that sampled",
    ("kl_behaviour", -1): "the learner stayed closer to the policy that sampled",
    ("kl_ref", 1): "the policy drifted from the reference",
    ("kl_ref", -1): "the policy came back towards the reference",
    ("response_length", 1): "responses grew longer",
    ("response_length", -1): "responses grew shorter",
    ("grad_norm", 1): "gradients grew",
    ("grad_norm", -1): "gradients shrank",
    ("degenerate_group_fraction", 1): "more groups had equal rewards and gave no gradient",
    ("degenerate_group_fraction", -1): "fewer groups had equal rewards",
}
_FACTOR, _SIGMAS, _COSINE_CHANGE = 0.25, 3.0, 0.05


@dataclass(frozen=True, slots=True)
class Reading:
    """One metric around the event. `value` at learner update `step` (from 0) is the one cited, the first beyond the
    threshold; `usual` is the median before; `log_step` is that record's step as the log itself counts, if it does.
    """

    metric: str
    key: str
    usual: float | None
    value: float | None
    step: int | None
    when: str | None  # before | at, None where nothing was detected
    sentence: str
    log_step: int | None = None


def own_step(log: ReadLog) -> int | None:
    """The log's step of the first learner update, 0 or 1; None where its records carry none that counts updates."""
    if log.fully_async and "learner_step" not in log.keys and log.sync_interval is not None:
        return None  # its step counts synchronisations, and was turned into updates
    return (0 if log.series.zero_based else 1) if {"step", "learner_step"} & log.keys.keys() else None


def step_word(log: ReadLog) -> str:
    """What the log calls the step that counts updates; a fully-async log's `step` counts synchronisations."""
    return log.keys["learner_step"] if log.fully_async and "learner_step" in log.keys else "step"


def step_note(log: ReadLog) -> str | None:
    """How the updates of a diagnosis relate to the steps of the log; None where the log has none."""
    first = own_step(log)
    if first is None or log.counts_synchronisations:
        return None
    what = "record" if log.series.stride == 1 else "update"
    then = f"{step_word(log)} {'N+1' if first else 'N'}"
    return f"Update N means after N updates; the first {what} made after it is the log's {then}."


def readings(log: ReadLog, event: int | None, cycle: int) -> list[Reading]:
    """Readings of every metric that the log has, around the update `event` (None: the end of the run)."""
    found = []
    for role, name in NAMES.items():
        values = log.series.metrics.get(role)
        if values is not None and np.isfinite(values).any():
            found.append(
                _reading(
                    name,
                    role,
                    log.keys.get(role, role),
                    log.series.last,
                    values,
                    event,
                    cycle,
                    own_step(log),
                    step_word(log),
                )
            )
    return found


def _reading(
    name: str,
    role: str,
    key: str,
    t: np.ndarray,
    values: np.ndarray,
    event: int | None,
    cycle: int,
    own: int | None,
    word: str,
) -> Reading:
    known = np.isfinite(values)
    t, values = t[known], values[known]

    def dated(at: int) -> str:
        return f"update {int(t[at]) + 1}" if own is None else f"{word} {int(t[at]) + own}"

    end = int(t[-1]) + 1 if event is None else event
    place = int(np.searchsorted(t, end))
    start = min(int(np.searchsorted(t, end - 2 * cycle)), place - 3)
    if start < 3:
        return Reading(
            name,
            key,
            None,
            None,
            None,
            None,
            f"{name}: too few records before the event to compare.",
        )
    earlier = values[:start]
    usual = float(np.median(earlier))
    spread = 1.4826 * float(np.median(np.abs(earlier - usual)))
    least = max(_SIGMAS * spread, _COSINE_CHANGE if role == "grad_cos" else _FACTOR * abs(usual), 1e-12)
    windows = [("before", slice(start, place))]
    if event is not None and place < t.size:
        windows.append(
            (
                "at",
                slice(
                    place,
                    min(t.size, place + max(3, int(np.searchsorted(t, end + 2 * cycle)) - place)),
                ),
            )
        )
    for when, window in windows:
        change = float(np.median(values[window])) - usual
        if abs(change) > least:
            direction = 1 if change > 0 else -1
            at = window.start + int(np.argmax(direction * (values[window] - usual) > least))
            value, step = float(values[at]), int(t[at])
            verb = "rose" if direction > 0 else "fell"
            time = ("before the end" if event is None else "before the drop") if when == "before" else "at the drop"
            sentence = (
                f"{name} {verb} {time}, from {usual:.3g} (median until {dated(start - 1)}) to {value:.3g} at "
                f"{dated(at)}: {_MEANING[role, direction]}."
            )
            return Reading(name, key, usual, value, step, when, sentence, None if own is None else step + own)
    last = values[place - 1]
    return Reading(
        name,
        key,
        usual,
        float(last),
        int(t[place - 1]),
        None,
        f"{name}: a change was not detected (median {usual:.3g}, {last:.3g} at {dated(place - 1)}).",
        None if own is None else int(t[place - 1]) + own,
    )
