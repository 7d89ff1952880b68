"""A hook for verl's fully-async trainer: writes our run record a learner update, and ends the job at a collapse.

export VERL_USE_EXTERNAL_MODULES=collapse_laws.integrations.verl export COLLAPSE_LAWS_RECORD=runs/mine/first
COLLAPSE_LAWS_SYNC_INTERVAL=16 COLLAPSE_LAWS_LR=1e-7 export COLLAPSE_LAWS_STOP_PID=$$; exec python -m
verl.experimental.fully_async_policy.fully_async_main ...

verl's own log averages over a synchronisation and never logs the last update; this hook sees every update before it is
averaged. Raising inside the trainer would leave the rollouter waiting for ever, so at a collapse the process
COLLAPSE_LAWS_STOP_PID (on this machine) gets SIGTERM; without that variable the record alone is written, for
`collapse-laws watch` to act upon.
"""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Mapping
from typing import Any

from collapse_laws.errors import UserError
from collapse_laws.integrations.recorder import Recorder

DIRECTORY, INTERVAL, RATE, STOP_PID = (
    f"COLLAPSE_LAWS_{name}" for name in ("RECORD", "SYNC_INTERVAL", "LR", "STOP_PID")
)


def recorder_from(environment: Mapping[str, str]) -> Recorder:
    """The recorder that the environment describes; UserError names a variable that is missing or no number."""
    try:
        return Recorder(environment[DIRECTORY], int(environment[INTERVAL]), float(environment[RATE]), "verl")
    except KeyError as error:
        raise UserError(
            f"the variable {error.args[0]} is missing; {DIRECTORY}, {INTERVAL} and {RATE} are needed."
        ) from None
    except ValueError:
        raise UserError(f"{INTERVAL} must be a whole number and {RATE} a number.") from None


def install(aggregator: type, environment: Mapping[str, str]) -> None:
    """Wrap `aggregator.add_step_metrics`, which the trainer calls with the metrics of each update; once only."""
    original = aggregator.add_step_metrics  # type: ignore[attr-defined]
    if hasattr(original, "__wrapped__"):
        return
    recorder: Recorder | None = None
    stopped = False

    @functools.wraps(original)
    def add_step_metrics(self: Any, metrics: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        nonlocal recorder, stopped
        if recorder is None:
            recorder = recorder_from(environment)
        numbers = {key: float(value) for key, value in metrics.items() if _is_number(value)}
        collapsed = recorder.update(int(metrics["training/global_step"]) - 1, numbers)
        if collapsed and not stopped:
            stopped = True
            recorder.close()
            print(f"collapse-laws: {recorder.outcome.reason}", flush=True)  # type: ignore[union-attr]
            if STOP_PID in environment:
                os.kill(int(environment[STOP_PID]), signal.SIGTERM)
        return original(self, metrics, *args, **kwargs)

    aggregator.add_step_metrics = add_step_metrics  # type: ignore[attr-defined]


def _is_number(value: Any) -> bool:
    return hasattr(value, "__float__") and not isinstance(value, str) and getattr(value, "ndim", 0) == 0


if os.environ.get(DIRECTORY):  # imported by verl in each of its processes; only the trainer's calls the aggregator
    from verl.experimental.fully_async_policy.detach_utils import MetricsAggregator

    install(MetricsAggregator, os.environ)
