"""A callback for TRL's GRPO trainers: writes our run record and stops the training at a collapse.

from collapse_laws.integrations.trl import CollapseCallback trainer = GRPOTrainer(...,
callbacks=[CollapseCallback("runs/mine/first")])

Use `logging_steps=1` for exact dates; with more, each record is the mean over the updates it closes. S is read from the
trainer's arguments: `weight_sync_steps` of AsyncGRPO, otherwise the updates that share one generation. `collapse-laws
diagnose runs/mine/first` reads the record.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from collapse_laws.integrations.recorder import Recorder


class CollapseCallback(TrainerCallback):
    """Records every log of the trainer.

    Args:
        directory: where the record goes; must be new, or that of the run that is resumed.
        sync_interval: S; default: from the trainer's arguments.
        stop: end the training once a collapse is confirmed.
    """

    def __init__(self, directory: Path | str, sync_interval: int | None = None, stop: bool = True) -> None:
        self.directory, self.sync_interval, self.stop = Path(directory), sync_interval, stop
        self.recorder: Recorder | None = None

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        interval = self.sync_interval or sync_interval_of(args)
        directory = self.directory if state.is_world_process_zero else None
        self.recorder = Recorder(directory, interval, args.learning_rate, "trl")

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **_: Any,
    ) -> None:
        if self.recorder is None or not logs or state.global_step < 1:
            return
        if self.recorder.update(state.global_step - 1, logs) and self.stop:
            control.should_training_stop = True

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if self.recorder is not None:
            self.recorder.close()


def sync_interval_of(args: TrainingArguments) -> int:
    """Optimizer updates made on rollouts of one policy version, from a TRL configuration."""
    asynchronous = getattr(args, "weight_sync_steps", None)
    if asynchronous:
        return int(asynchronous)
    batches = (getattr(args, "steps_per_generation", None) or 1) * (getattr(args, "num_iterations", None) or 1)
    return max(1, batches // max(1, args.gradient_accumulation_steps))
