"""A cell of a verl study as overrides of verl 0.9.1's fully-async configuration (paper, Appendix B).

The asynchronous schedule k_t = t mod S is [stated]; `staleness_threshold=0` is what realises it
exactly: verl then submits S batches of prompts for each parameter version and consumes them all
before the next synchronisation [derived, checked at run time by `hooks`]. Every other value carries
its mark in `REASONS` below or is a setting of params.yaml. An override that equals the framework's
own default is not passed on (see `composition.minimal`), so that the † of Table 2 means what the
paper says: not overridden by the launch script.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from collapse_laws.errors import UserError
from collapse_laws.study import Cell

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
HOOKS_MODULE, PROBE_MODULE = "collapse_laws.verl.hooks", "collapse_laws.verl.probe"

# Where each setting of params.yaml goes in verl's configuration. None: verl has no key for it and
# computes with one fixed value.
SETTING_KEYS: dict[str, str | None] = {
    "prompts_per_step": f"{ACTOR}.ppo_mini_batch_size",
    "group_size": f"{ROLLOUT}.n",
    "temperature": f"{ROLLOUT}.temperature",
    "top_p": f"{ROLLOUT}.top_p",
    "top_k": f"{ROLLOUT}.top_k",
    "loss_aggregation": f"{ACTOR}.loss_agg_mode",
    "entropy_coef": f"{ACTOR}.entropy_coeff",
    "adam_beta1": f"{ACTOR}.optim.betas",
    "adam_beta2": f"{ACTOR}.optim.betas",
    "weight_decay": f"{ACTOR}.optim.weight_decay",
    "grad_clip": f"{ACTOR}.optim.clip_grad",
    "clip_low": f"{ACTOR}.clip_ratio_low",
    "clip_high": f"{ACTOR}.clip_ratio_high",
    "dual_clip": f"{ACTOR}.clip_ratio_c",
    "kl_coef": f"{ACTOR}.kl_loss_coef",
    "kl_estimator": f"{ACTOR}.kl_loss_type",
    "ratio": "algorithm.rollout_correction.bypass_mode",
    "sync_interval": "async_training.trigger_parameter_sync_step",
    "lr": f"{ACTOR}.optim.lr",
    "lr_schedule": f"{ACTOR}.optim.lr_scheduler_type",
    "model.max_prompt_tokens": "data.max_prompt_length",
    "model.max_response_tokens": "data.max_response_length",
    "model.chat_template.date_string": "data.apply_chat_template_kwargs.date_string",
    "system.training_gpus": "trainer.n_gpus_per_node",
    "system.rollout_gpus": "rollout.n_gpus_per_node",
    "system.weight_sync": f"{ROLLOUT}.checkpoint_engine.backend",
    "system.tensor_parallel": f"{ROLLOUT}.tensor_model_parallel_size",
    "system.gpu_memory_utilization": f"{ROLLOUT}.gpu_memory_utilization",
    "system.max_tokens_per_gpu": f"{ACTOR}.ppo_max_token_len_per_gpu",
    "dtype": None,
    "advantage_ddof": None,
    "advantage_eps": None,
    "adam_eps": None,
}
NO_DUAL_CLIP = 1e9  # verl has no switch: a bound that no ratio reaches (they are clamped to exp(20))


@dataclass(frozen=True, slots=True)
class Paths:
    """Where one attempt of a run reads and writes; absolute paths."""

    model: Path  # starting checkpoint, Hugging Face format
    train_files: tuple[Path, ...]  # parquet
    validation_files: tuple[Path, ...]
    reward: Path  # file with `compute_score`
    checkpoints: Path  # verl's own checkpoints, for resuming
    log: Path  # folder of Hydra's and verl's own log files


@dataclass(frozen=True, slots=True)
class Override:
    """One key of verl's configuration with the value that this project wants there."""

    key: str
    value: Any
    mark: str  # stated | derived | declared | setting | system
    why: str = ""
    added: bool = False  # the key is absent from verl's schema by design, so Hydra needs the `+`

    def argument(self) -> str:
        """`key=value` as Hydra's command line takes it."""
        return f"{'+' if self.added else ''}{self.key}={hydra_value(self.value)}"


def hydra_value(value: Any) -> str:
    """A Python value in the grammar of Hydra's overrides."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{k}:{hydra_value(v)}" for k, v in value.items()) + "}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ",".join(hydra_value(v) for v in value) + "]"
    return json.dumps(str(value), ensure_ascii=False)


def check_settings(cell: Cell) -> None:
    """UserError for a setting that verl cannot express, naming the key, the value and what verl computes."""
    fixed = {
        "ratio": ("behaviour", "the ratio to the behaviour snapshot"),
        "advantage_ddof": (1, "the sample standard deviation"),
        "advantage_eps": (1e-6, "a fixed epsilon"),
        "adam_eps": (1e-8, "the default of torch.optim.AdamW"),
        "loss_aggregation": ("token_mean", "one mean over all response tokens"),
        "temperature": (1.0, "ratios of untempered probabilities"),
        "top_p": (1.0, "untruncated sampling"),
        "top_k": (-1, "untruncated sampling"),
        "lr_schedule": ("constant", "lr 0 with any other schedule in the fully-async trainer"),
    }
    for key, (allowed, meaning) in fixed.items():
        if cell.settings.get(key) != allowed:
            raise UserError(
                f"cell {cell.name}: {key}: {cell.settings.get(key)!r} is not allowed with verl, which computes with "
                f"{meaning}; allowed: {allowed!r}."
            )
    if cell.settings.get("grad_clip") is None:
        raise UserError(f"cell {cell.name}: grad_clip: null is not allowed with verl; allowed: a number above 0.")


def syncs(updates: int, sync_interval: int) -> int:
    """Learner updates as a whole number of synchronisations, rounded up: verl counts checkpoints
    and validations in those."""
    return max(1, math.ceil(updates / sync_interval))


def overrides(cell: Cell, paths: Paths, resume_from: Path | None = None, version: int = 0) -> list[Override]:
    """The complete list for one attempt at a cell's run, including values that equal verl's defaults.

    `resume_from` is a `global_step_<version>` folder of verl's, `version` the parameter version it
    holds (0: from the start). Raises UserError for a setting that verl cannot express.
    """
    check_settings(cell)
    s = cell.settings
    model, system = s["model"], s["system"]
    remaining = cell.horizon_updates - version * cell.sync_interval
    table: list[tuple[str, Any, str, str]] = [
        # the asynchronous schedule
        ("async_training.trigger_parameter_sync_step", cell.sync_interval, "stated", "S, in learner updates"),
        (
            "async_training.staleness_threshold",
            0,
            "derived",
            "any other value lets rollouts run ahead: lags up to 2S-1",
        ),
        ("async_training.partial_rollout", False, "derived", "each sample comes from one snapshot"),
        ("async_training.require_batches", 1, "stated", "one optimizer step per incoming batch"),
        ("async_training.use_trainer_do_validate", False, "declared", "validation on the rollout workers"),
        ("async_training.use_dynamic_resource_scheduling", False, "stated", "four rollout and four training GPUs"),
        ("actor_rollout_ref.hybrid_engine", False, "stated", "disaggregated rollout and training"),
        ("data.train_batch_size", 0, "derived", "verl refuses anything else in this recipe"),
        ("data.gen_batch_size", 1, "derived", "prompts are streamed one by one"),
        (
            "rollout.total_rollout_steps",
            # counted from the start of the run, in prompts, on resuming too
            cell.horizon_updates * s["prompts_per_step"],
            "declared",
            "the horizon, counted in prompts",
        ),
        ("trainer.total_epochs", 100_000, "derived", "the horizon alone ends a run"),
        # objective
        ("algorithm.adv_estimator", "grpo", "stated", "the default, gae, would build a critic"),
        ("algorithm.norm_adv_by_std_in_grpo", True, "stated", "group-normalised advantage"),
        ("algorithm.use_kl_in_reward", False, "declared", "the penalty is in the loss"),
        (f"{ACTOR}.use_kl_loss", s["kl_coef"] > 0, "stated", "a KL penalty"),
        (f"{ACTOR}.kl_loss_coef", float(s["kl_coef"]), "setting", ""),
        (f"{ACTOR}.kl_loss_type", s["kl_estimator"], "setting", ""),
        (f"{ACTOR}.clip_ratio_low", s["clip_low"], "setting", ""),
        (f"{ACTOR}.clip_ratio_high", s["clip_high"], "setting", ""),
        (f"{ACTOR}.clip_ratio_c", NO_DUAL_CLIP if s["dual_clip"] is None else s["dual_clip"], "setting", ""),
        (f"{ACTOR}.policy_loss.loss_mode", "vanilla", "stated", "the clipped surrogate"),
        (f"{ACTOR}.loss_agg_mode", s["loss_aggregation"].replace("_", "-"), "setting", ""),
        (f"{ACTOR}.entropy_coeff", s["entropy_coef"], "setting", ""),
        (f"{ACTOR}.use_rollout_log_probs", True, "stated", "the ratio is to the behaviour snapshot"),
        ("algorithm.rollout_correction.bypass_mode", True, "stated", "old log-probabilities are the rollout's"),
        ("algorithm.rollout_correction.rollout_is", None, "stated", "no off-policy correction"),
        ("algorithm.rollout_correction.rollout_rs", None, "stated", "no off-policy correction"),
        # optimiser
        (f"{ACTOR}.optim.lr", cell.lr, "stated", "eta"),
        (f"{ACTOR}.optim.lr_scheduler_type", s["lr_schedule"], "stated", "constant eta"),
        (f"{ACTOR}.optim.lr_warmup_steps", 0, "stated", "constant eta"),
        (f"{ACTOR}.optim.lr_warmup_steps_ratio", 0.0, "stated", "constant eta"),
        (f"{ACTOR}.optim.betas", [s["adam_beta1"], s["adam_beta2"]], "setting", ""),
        (f"{ACTOR}.optim.weight_decay", s["weight_decay"], "setting", ""),
        (f"{ACTOR}.optim.clip_grad", s["grad_clip"], "setting", "actor.grad_clip is not read"),
        (f"{ACTOR}.ppo_mini_batch_size", s["prompts_per_step"], "setting", "in prompts"),
        (f"{ACTOR}.ppo_epochs", 1, "stated", "one optimizer step a batch"),
        (f"{ACTOR}.shuffle", False, "declared", "no second source of data order"),
        # rollout
        (f"{ROLLOUT}.name", system["rollout_engine"], "stated", "vLLM"),
        (f"{ROLLOUT}.mode", "async", "stated", ""),
        (f"{ROLLOUT}.n", s["group_size"], "setting", ""),
        ("rollout.n", s["group_size"], "derived", "verl keeps it twice"),
        (f"{ROLLOUT}.temperature", s["temperature"], "setting", ""),
        (f"{ROLLOUT}.top_p", s["top_p"], "setting", ""),
        (f"{ROLLOUT}.top_k", s["top_k"], "setting", ""),
        (f"{ROLLOUT}.calculate_log_probs", True, "derived", "the ratio needs them"),
        (
            f"{ROLLOUT}.full_determinism",
            False,
            "derived",
            "on, it gives a group's samples one seed: equal samples, no advantage",
        ),
        (f"{ROLLOUT}.val_kwargs.do_sample", False, "declared", "greedy validation"),
        (f"{ROLLOUT}.val_kwargs.temperature", 0, "declared", "greedy validation"),
        (f"{ROLLOUT}.val_kwargs.n", 1, "declared", "avg@1"),
        # data and seeds: nothing below depends on S or eta
        ("data.train_files", [str(p) for p in paths.train_files], "stated", ""),
        ("data.val_files", [str(p) for p in paths.validation_files], "stated", ""),
        ("data.prompt_key", "prompt", "declared", ""),
        ("data.max_prompt_length", model["max_prompt_tokens"], "setting", ""),
        ("data.max_response_length", model["max_response_tokens"], "setting", ""),
        ("data.filter_overlong_prompts", True, "declared", ""),
        ("data.truncation", "error", "declared", ""),
        ("data.shuffle", True, "declared", "the seed decides the order"),
        ("data.seed", cell.seed, "stated", "unset, all seeds would share one order"),
        (f"{ROLLOUT}.seed", cell.seed, "stated", "the seed changes the rollout samples"),
        (f"{ACTOR}.data_loader_seed", cell.seed, "declared", ""),
        (f"{ACTOR}.fsdp_config.seed", cell.seed, "declared", ""),
        ("reward.custom_reward_function.path", str(paths.reward), "declared", "one 0/1 reward for all families"),
        ("reward.custom_reward_function.name", "compute_score", "declared", ""),
        # system
        ("actor_rollout_ref.model.path", str(paths.model), "stated", ""),
        ("actor_rollout_ref.model.external_lib", PROBE_MODULE, "declared", "the gradient cosine"),
        (f"{ACTOR}.strategy", "fsdp2", "stated", "fsdp_config.strategy alone is overwritten by it"),
        (f"{ACTOR}.fsdp_config.strategy", "fsdp2", "derived", "as actor.strategy"),
        (f"{ACTOR}.use_dynamic_bsz", True, "system", "micro-batches by tokens; the update is the same"),
        (f"{ACTOR}.ppo_max_token_len_per_gpu", system["max_tokens_per_gpu"], "system", ""),
        (f"{ROLLOUT}.tensor_model_parallel_size", system["tensor_parallel"], "system", ""),
        (f"{ROLLOUT}.gpu_memory_utilization", system["gpu_memory_utilization"], "system", ""),
        (f"{ROLLOUT}.checkpoint_engine.backend", system["weight_sync"], "system", ""),
        ("trainer.nnodes", 1, "stated", "one node"),
        ("trainer.n_gpus_per_node", system["training_gpus"], "stated", "four training GPUs"),
        ("rollout.nnodes", 1, "stated", "one node"),
        ("rollout.n_gpus_per_node", system["rollout_gpus"], "stated", "four rollout GPUs"),
        ("trainer.device", cell.device, "system", ""),
        (
            "ray_kwargs.ray_init.num_cpus",
            64,
            "system",
            "logical ones: fewer than verl's actors reserve, and it waits for ever",
        ),
        # logs, validation, checkpoints; verl counts the last two in synchronisations
        ("trainer.logger", ["console", "file"], "declared", ""),
        ("trainer.project_name", cell.study, "declared", ""),
        ("trainer.experiment_name", cell.name, "declared", ""),
        ("trainer.val_before_train", True, "declared", "validation of the start"),
        ("trainer.test_freq", syncs(s["validation_every_updates"], cell.sync_interval), "declared", ""),
        ("trainer.save_freq", syncs(s["checkpoint_every_updates"], cell.sync_interval), "declared", ""),
        ("trainer.max_actor_ckpt_to_keep", 2, "declared", "one complete state while the next is written"),
        (
            f"{ACTOR}.checkpoint.save_contents",
            ["model", "optimizer", "extra", "hf_model"],
            "declared",
            "the evaluation's format",
        ),
        (f"{ACTOR}.checkpoint.load_contents", ["model", "optimizer", "extra"], "declared", ""),
        ("trainer.default_local_dir", str(paths.checkpoints), "declared", ""),
        ("trainer.resume_mode", "resume_path" if resume_from else "disable", "declared", "never a silent resume"),
        ("trainer.resume_from_path", str(resume_from) if resume_from else None, "declared", ""),
        ("hydra.run.dir", str(paths.log / "hydra"), "declared", ""),
    ]
    if remaining <= 0:
        raise ValueError(f"version {version} lies at or beyond the horizon of {cell.horizon_updates} updates")
    result = {key: Override(key, value, mark, why) for key, value, mark, why in table}
    if len(result) != len(table):
        raise ValueError("the table of overrides names a key twice")
    for variable, value in model.get("chat_template", {}).items():
        key = f"data.apply_chat_template_kwargs.{variable}"
        result[key] = Override(key, value, "setting", "left alone, Llama's template writes the day's date", added=True)
    if s["dtype"] != "bfloat16":  # what the engine computes in without being told; fsdp_config.dtype is not read
        for role in (ACTOR, "actor_rollout_ref.ref"):
            key = f"{role}.fsdp_config.mixed_precision"
            dtypes = dict.fromkeys(("param_dtype", "reduce_dtype", "buffer_dtype"), s["dtype"])
            result[key] = Override(key, dtypes, "setting", added=True)
    dashboard = "ray_kwargs.ray_init.include_dashboard"
    result[dashboard] = Override(dashboard, False, "system", "one open port less", added=True)
    result |= {override.key: override for override in map(extra, system.get("framework_overrides", []))}
    return list(result.values())


def extra(text: str) -> Override:
    """An override of the study's own, `key=value` or `+key=value`, for a site or a test machine; it
    replaces one of ours.

    UserError where the text is neither.
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip("+"):
        raise UserError(f"framework_overrides: {text!r} is not allowed; allowed: key=value, with `+` before a new key.")
    return Override(key.lstrip("+"), yaml.safe_load(value), "system", "of the study", added=key.startswith("+"))
