"""Loaded inside every process of verl through VERL_USE_EXTERNAL_MODULES: one JSON line for each
learner update, no fork.

verl's own log is averaged over a cycle, shifted by one update, and lacks the last. Here a line is
written right after the optimizer step, before weights are synchronised or a checkpoint is saved, so
that no saved state lacks its lines. The realised lag is read off the trajectories' own parameter
versions; a run whose lag is not t mod S (Section 2.2 [stated]) stops at that update.

Nothing happens unless COLLAPSE_LAWS_VERL_LOG names the file. `parse_*` need no verl.
"""

from __future__ import annotations

import json
import os
import time
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from collapse_laws.protocol import LagError, snapshot_index

LOG_VARIABLE = "COLLAPSE_LAWS_VERL_LOG"  # the file of lines; only the trainer's process writes it
CONSUMED_VARIABLE = "COLLAPSE_LAWS_VERL_CONSUMED"  # prompts that a resumed run has trained on already


def write_line(line: Mapping[str, Any]) -> None:
    """Append one line and flush it to the disk; a checkpoint that follows must not outlive it."""
    with open(os.environ[LOG_VARIABLE], "a", encoding="utf-8") as file:
        file.write(json.dumps(line, separators=(",", ":")) + "\n")
        file.flush()
        os.fsync(file.fileno())


def scalars(metrics: Mapping[str, Any]) -> dict[str, float]:
    """The numbers among verl's metrics; a non-finite one is left out, since JSON has none."""
    numbers = {}
    for key, value in metrics.items():
        if isinstance(value, (int, float, np.number)) and np.isfinite(value):
            numbers[key] = float(value)
    return numbers


def batch_summary(batch: Any, max_response_tokens: int) -> dict[str, Any]:
    """What a line says of the update's own trajectories, grouped by prompt.

    `batch` is verl's DataProto after the advantage: token_level_scores, response_mask and
    rollout_log_probs are of shape [prompts * group, tokens]. The entropy is the mean of -log p over
    sampled tokens, an unbiased estimate for the behaviour snapshot at temperature 1, nats a token.
    """
    tensors, names = batch.batch, batch.non_tensor_batch
    mask = tensors["response_mask"].float()
    scores = tensors["token_level_scores"].sum(-1).double().cpu().numpy()  # [prompts * group]
    lengths = mask.sum(-1).cpu().numpy()
    _, first, group = np.unique(np.asarray(names["uid"], dtype=str), return_index=True, return_inverse=True)
    counts = np.bincount(group)
    low, high = np.full(len(counts), np.inf), np.full(len(counts), -np.inf)
    np.minimum.at(low, group, scores)
    np.maximum.at(high, group, scores)
    entropy = None
    if "rollout_log_probs" in tensors.keys():
        entropy = float(-(tensors["rollout_log_probs"] * mask).sum() / mask.sum())
    return {
        "prompts": prompt_marks(tensors, first),
        "behaviour": [int(min(names["min_global_steps"])), int(max(names["max_global_steps"]))],
        "group_rewards": (np.bincount(group, scores) / counts).tolist(),
        "group_sizes": counts.tolist(),
        "degenerate_groups": int((low == high).sum()),
        "tokens": int(lengths.sum()),
        "truncated": int((lengths >= max_response_tokens).sum()),
        "entropy": entropy,
    }


def prompt_marks(tensors: Any, rows: np.ndarray) -> list[int]:
    """A CRC-32 of each named row's prompt tokens: verl's batch carries no index, and the data order
    must be auditable."""
    prompts = tensors["prompts"][rows].cpu()  # [rows, tokens], padded on the left
    present = tensors["attention_mask"][rows, : prompts.shape[1]].bool().cpu()
    return [mark(prompt[mask].tolist()) for prompt, mask in zip(prompts, present, strict=True)]


def mark(tokens: Sequence[int]) -> int:
    """CRC-32 of a prompt's tokens, written in decimal with commas."""
    return zlib.crc32(",".join(map(str, tokens)).encode())


def check_behaviour(t: int, behaviour: list[int], sync_interval: int) -> None:
    """Raise LagError unless every trajectory of update t (0-based) was sampled from snapshot floor(t/S) throughout."""
    expected = snapshot_index(t, sync_interval)
    if behaviour != [expected, expected]:
        raise LagError(
            f"update {t} learned from trajectories of the parameter versions {behaviour[0]} to {behaviour[1]}, but a "
            f"synchronisation interval of {sync_interval} means version {expected}; async_training.staleness_threshold "
            "must be 0."
        )


def _install_update_lines() -> None:
    """One line after each optimizer step, from the class that the trainer's own inherits `_fit_update_actor` from."""
    from verl.experimental.separation.ray_trainer import SeparateRayPPOTrainer

    original = SeparateRayPPOTrainer._fit_update_actor
    clock = {"last": time.monotonic()}

    def _fit_update_actor(self: Any, batch: Any) -> Any:
        batch = original(self, batch)
        config = self.config
        sync_interval = config.async_training.trigger_parameter_sync_step
        t = self.current_param_version * sync_interval + self.local_trigger_step - 1
        summary = batch_summary(batch, config.data.max_response_length)
        now = time.monotonic()
        line = {"kind": "update", "t": t, "version": self.current_param_version, **summary}
        write_line({**line, "seconds": now - clock["last"], "metrics": scalars(self.metrics)})
        clock["last"] = now
        try:
            check_behaviour(t, summary["behaviour"], sync_interval)
        except LagError as error:
            write_line({"kind": "fault", "t": t, "error": str(error)})
            raise
        return batch

    SeparateRayPPOTrainer._fit_update_actor = _fit_update_actor


def _install_validation_lines() -> None:
    """One line for each validation: verl logs it under the parameter version that was scored."""
    from verl.utils.tracking import Tracking

    original = Tracking.log

    def log(self: Any, data: Mapping[str, Any], step: int, backend: Any = None) -> None:
        original(self, data=data, step=step, backend=backend)
        scores = {key: value for key, value in scalars(data).items() if key.startswith("val-")}
        if scores:
            write_line({"kind": "validation", "version": int(step), "metrics": scores})

    Tracking.log = log


def _install_exact_data_order(consumed: int) -> None:
    """On resuming, replay the prompt order up to the checkpoint instead of loading verl's saved position.

    verl saves the loader's position while up to 128 prompts wait in queues and would skip those.
    With staleness threshold 0 exactly S batches of prompts belong to each version, so the number
    consumed is known; the same seed gives the same order.
    """
    from torchdata.stateful_dataloader import StatefulDataLoader

    iterate = StatefulDataLoader.__iter__

    def load_state_dict(self: Any, state_dict: Mapping[str, Any]) -> None:
        self._prompts_to_skip = consumed

    def __iter__(self: Any) -> Any:
        skip = getattr(self, "_prompts_to_skip", 0)
        if not skip:
            return iterate(self)
        self._prompts_to_skip = 0
        while skip >= len(self):  # whole epochs, each of which draws its own permutation
            skip -= sum(1 for _ in iterate(self))
        iterator = iterate(self)
        for _ in range(skip):
            next(iterator)
        return iterator

    StatefulDataLoader.load_state_dict = load_state_dict
    StatefulDataLoader.__iter__ = __iter__


def parse_lines(path: Path) -> list[dict[str, Any]]:
    """The complete lines of a log; a half-written last one is left out."""
    if not Path(path).exists():
        return []
    data = Path(path).read_bytes()
    return [json.loads(line) for line in data[: data.rfind(b"\n") + 1].splitlines() if line.strip()]


if os.environ.get(LOG_VARIABLE):
    _install_update_lines()
    _install_validation_lines()
    if int(os.environ.get(CONSUMED_VARIABLE, "0")):
        _install_exact_data_order(int(os.environ[CONSUMED_VARIABLE]))
