"""Table 2 from verl's composed configuration: values, verl's own defaults, and the † computed by comparing them.

The paper marks with † the framework defaults that its launch scripts do not override [stated]. Here
that is what it means: a value that verl's fully-async configuration holds already, so that the
launcher does not pass it on.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from collapse_laws.study import Cell
from collapse_laws.verl.composition import checked, defaults, flatten, minimal, quiet, require_verl
from collapse_laws.verl.overrides import ACTOR, ROLLOUT, SETTING_KEYS, Override


def framework_default(setting: str) -> Any:
    """What verl computes with where a setting of params.yaml is not passed on, in params.yaml's own units; None for a
    variable of a model's chat template, of which verl knows nothing.

    From the composed configuration; four settings have no key there and are read off the code that
    fixes them.
    """
    key = SETTING_KEYS[setting]
    if key is None:
        return _fixed_in_code(setting)
    if setting.startswith("model.chat_template."):
        return None
    value = defaults()[key]
    if setting in ("adam_beta1", "adam_beta2"):
        return value[int(setting[-1]) - 1]
    if setting == "ratio":
        return "behaviour" if value else "recomputed"
    if setting == "loss_aggregation":
        return value.replace("-", "_")
    return value


def _fixed_in_code(setting: str) -> Any:
    with quiet():
        import numpy as np
        import torch

        if setting == "dtype":
            # the branch that FSDPEngine takes without a mixed_precision setting; its module may
            # need a GPU's libraries to import
            text = (require_verl() / "workers" / "engine" / "fsdp" / "transformer_impl.py").read_text()
            return re.search(r"else:\s+param_dtype = torch\.(\w+)", text)[1]
        from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage as advantage

        if setting == "adam_eps":
            return inspect.signature(torch.optim.AdamW).parameters["eps"].default
        if setting == "advantage_eps":
            return inspect.signature(advantage).parameters["epsilon"].default
        if setting == "advantage_ddof":
            got, _ = advantage(torch.tensor([[0.0], [1.0]]), torch.ones(2, 1), np.array([0, 0]), epsilon=0.0)
            # rewards 0 and 1 around their mean 1/2: standard deviation 1/2 (ddof 0) or 1/sqrt(2)
            # (ddof 1)
            return 0 if abs(float(got[1]) - 1.0) < 1e-6 else 1
    raise KeyError(setting)


@dataclass(frozen=True, slots=True)
class ConfigRow:
    """One line of Table 2 for one model family."""

    group: str  # model | data | objective | optimisation | rollout | evaluation | system | schedule
    label: str
    key: str  # verl's key, or the name of a setting without one
    value: Any
    framework_default: Any
    dagger: bool  # a framework default that the launch does not override
    mark: str  # stated | derived | declared | default


_GROUPS: tuple[tuple[str, str, str], ...] = (
    ("schedule", "weight staleness threshold", "async_training.staleness_threshold"),
    ("schedule", "partial rollout", "async_training.partial_rollout"),
    ("schedule", "batches per learner step", "async_training.require_batches"),
    ("data", "prompts per learner step", f"{ACTOR}.ppo_mini_batch_size"),
    ("data", "prompt length (tokens)", "data.max_prompt_length"),
    ("data", "response length (tokens)", "data.max_response_length"),
    ("data", "shuffle", "data.shuffle"),
    ("objective", "advantage estimator", "algorithm.adv_estimator"),
    ("objective", "divide by the group's standard deviation", "algorithm.norm_adv_by_std_in_grpo"),
    ("objective", "clip, lower", f"{ACTOR}.clip_ratio_low"),
    ("objective", "clip, upper", f"{ACTOR}.clip_ratio_high"),
    ("objective", "dual clip", f"{ACTOR}.clip_ratio_c"),
    ("objective", "aggregation of the loss", f"{ACTOR}.loss_agg_mode"),
    ("objective", "KL penalty in the loss", f"{ACTOR}.use_kl_loss"),
    ("objective", "KL coefficient", f"{ACTOR}.kl_loss_coef"),
    ("objective", "KL estimator", f"{ACTOR}.kl_loss_type"),
    ("objective", "entropy coefficient", f"{ACTOR}.entropy_coeff"),
    (
        "objective",
        "old log-probabilities from the rollout",
        "algorithm.rollout_correction.bypass_mode",
    ),
    ("objective", "importance-sampling correction", "algorithm.rollout_correction.rollout_is"),
    ("optimisation", "optimiser", f"{ACTOR}.optim.optimizer"),
    ("optimisation", "betas", f"{ACTOR}.optim.betas"),
    ("optimisation", "weight decay", f"{ACTOR}.optim.weight_decay"),
    ("optimisation", "gradient norm clip", f"{ACTOR}.optim.clip_grad"),
    ("optimisation", "schedule", f"{ACTOR}.optim.lr_scheduler_type"),
    ("optimisation", "optimizer steps per batch", f"{ACTOR}.ppo_epochs"),
    ("optimisation", "sharding", f"{ACTOR}.strategy"),
    ("optimisation", "master weights", f"{ACTOR}.fsdp_config.model_dtype"),
    ("rollout", "engine", f"{ROLLOUT}.name"),
    ("rollout", "group size", f"{ROLLOUT}.n"),
    ("rollout", "temperature", f"{ROLLOUT}.temperature"),
    ("rollout", "top-p", f"{ROLLOUT}.top_p"),
    ("rollout", "top-k", f"{ROLLOUT}.top_k"),
    ("rollout", "tensor parallel size", f"{ROLLOUT}.tensor_model_parallel_size"),
    ("evaluation", "validation every (synchronisations)", "trainer.test_freq"),
    ("evaluation", "validation temperature", f"{ROLLOUT}.val_kwargs.temperature"),
    ("evaluation", "validation samples per problem", f"{ROLLOUT}.val_kwargs.n"),
    ("system", "training GPUs", "trainer.n_gpus_per_node"),
    ("system", "rollout GPUs", "rollout.n_gpus_per_node"),
)


def table2(cell: Cell, wanted: Sequence[Override]) -> list[ConfigRow]:
    """Table 2's rows for the cell's family, values and † from the composed configuration itself."""
    final, base = flatten(checked(wanted)), defaults()
    marks = {o.key: o.mark for o in wanted}
    passed = {o.key for o in minimal(wanted)}
    model = cell.settings["model"]
    rows = [
        ConfigRow(
            "model",
            "model",
            "model",
            f"{model['hub_id']}@{model['revision']}",
            None,
            False,
            "stated",
        ),
        ConfigRow("data", "training set", "dataset", model["dataset"], None, False, "stated"),
        ConfigRow(
            "evaluation",
            "validation sets",
            "validation",
            ", ".join(model["validation"]),
            None,
            False,
            "stated",
        ),
    ]
    for group, label, key in _GROUPS:
        dagger = key not in passed
        mark = marks.get(key, "default")
        mark = {"setting": "declared", "system": "declared"}.get(mark, mark)
        if dagger and mark == "declared":
            mark = "default"
        rows.append(ConfigRow(group, label, key, final[key], base[key], dagger, mark))
    for group, label, setting in (
        ("objective", "standard deviation, ddof", "advantage_ddof"),
        ("objective", "standard deviation, added epsilon", "advantage_eps"),
        ("optimisation", "Adam's epsilon", "adam_eps"),
        ("optimisation", "arithmetic", "dtype"),
    ):
        value, fixed = cell.settings[setting], framework_default(setting)
        dagger = value == fixed
        rows.append(ConfigRow(group, label, setting, value, fixed, dagger, "default" if dagger else "declared"))
    order = (
        "model",
        "data",
        "schedule",
        "objective",
        "optimisation",
        "rollout",
        "evaluation",
        "system",
    )
    return sorted(rows, key=lambda row: order.index(row.group))
