"""verl's own configuration: composed with Hydra, built as its dataclasses, and compared with its defaults for Table 2.

Needs the package `verl` (no GPU, no vLLM). The † of Table 2 is computed here: a value is a framework default if verl's
fully-async configuration already holds it, so that the launcher does not pass it on.
"""

from __future__ import annotations

import importlib.util
import inspect
import logging
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from collapse_laws.errors import UserError
from collapse_laws.study import Cell
from collapse_laws.verl.overrides import ACTOR, ROLLOUT, SETTING_KEYS, Override

VERSION = "0.9.1"
CONFIG_NAME = "fully_async_ppo_trainer"
MAIN_MODULE = "verl.experimental.fully_async_policy.fully_async_main"

# Keys that compose without complaint and that this trainer never reads, or reads only beside another key.
IGNORED_KEYS = {
    f"{ACTOR}.grad_clip": f"the engine clips at {ACTOR}.optim.clip_grad",
    f"{ACTOR}.fsdp_config.dtype": "the engine computes in fsdp_config.mixed_precision.param_dtype",
    f"{ACTOR}.clip_ratio": f"{ACTOR}.clip_ratio_low and clip_ratio_high win over it",
    "trainer.total_training_steps": "the fully-async trainer reads rollout.total_rollout_steps",
    "trainer.use_v1": "fully_async_main is another trainer",
    "data.val_batch_size": "validation is sent whole",
    "custom_reward_function.path": "its place is reward.custom_reward_function.path",
}
# Sections that verl turns into dataclasses; a value that differs there from what was asked for was silently replaced.
_SECTIONS = (ACTOR, ROLLOUT, "algorithm")
_RENAMED = {"fsdp_config": "engine"}  # the actor's dataclass reads its engine settings under this name


def require_verl() -> Path:
    """The folder of the installed package; UserError where it is missing."""
    spec = importlib.util.find_spec("verl")
    if spec is None or not spec.submodule_search_locations:
        raise UserError(
            f"the package verl is not installed here; `pip install verl=={VERSION}` in the environment that trains "
            "(workflow/envs/verl.yaml)."
        )
    return Path(next(iter(spec.submodule_search_locations)))


def compose(arguments: Sequence[str] = ()) -> Any:
    """verl's fully-async configuration with Hydra override arguments, as an OmegaConf container.

    Raises UserError for an unknown key or a value that Hydra cannot read. 4 s at the first call, 0.4 s after it.
    """
    with _quiet():
        from hydra import compose as hydra_compose
        from hydra import initialize_config_dir
        from hydra.errors import HydraException
        from omegaconf.errors import OmegaConfBaseException

        folder = require_verl() / "experimental" / "fully_async_policy" / "config"
        try:
            with initialize_config_dir(config_dir=str(folder), version_base=None):
                return hydra_compose(CONFIG_NAME, overrides=[a for a in arguments if not a.startswith("hydra.")])
        except (HydraException, OmegaConfBaseException) as error:
            raise UserError(f"verl {VERSION} does not take this configuration: {' '.join(str(error).split())}") from None


class _quiet(warnings.catch_warnings):
    """Third-party import warnings are none of the user's business; ours are raised outside."""

    def __init__(self) -> None:
        super().__init__(action="ignore")

    def __enter__(self) -> None:
        logging.getLogger("verl").setLevel(logging.ERROR)
        super().__enter__()


def flatten(config: Any) -> dict[str, Any]:
    """Every leaf of a configuration under its dotted key, interpolations unresolved; an empty mapping is a leaf."""
    from omegaconf import OmegaConf

    leaves: dict[str, Any] = {}

    def walk(node: Any, prefix: str) -> None:
        if isinstance(node, Mapping) and node:
            for key, value in node.items():
                walk(value, f"{prefix}.{key}" if prefix else str(key))
        else:
            leaves[prefix] = node

    walk(OmegaConf.to_container(config, resolve=False), "")
    return leaves


@lru_cache(maxsize=1)
def defaults() -> dict[str, Any]:
    """The framework's own values, every key of its fully-async configuration."""
    return flatten(compose())


def is_default(override: Override) -> bool:
    """Whether verl holds this value already."""
    known = defaults()
    return override.key in known and _same(known[override.key], override.value)


def minimal(wanted: Iterable[Override]) -> list[Override]:
    """Only the overrides that change something: what the launcher passes on."""
    return [o for o in wanted if not is_default(o)]


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, bool) is not isinstance(b, bool):
        return False
    return a == b


def checked(wanted: Sequence[Override]) -> Any:
    """The composed configuration after every check; UserError for an unknown, ignored or replaced key."""
    for override in wanted:
        if override.key in IGNORED_KEYS:
            raise UserError(f"verl {VERSION} ignores {override.key}: {IGNORED_KEYS[override.key]}.")
    config = compose([o.argument() for o in minimal(wanted)])
    values = {o.key: o.value for o in wanted}
    _check_combinations(values)
    _check_dataclasses(config, values)
    return config


def _check_combinations(values: Mapping[str, Any]) -> None:
    if values.get("algorithm.rollout_correction.bypass_mode", True):
        for key in ("algorithm.rollout_correction.rollout_is", "algorithm.rollout_correction.rollout_rs"):
            if values.get(key) is not None:
                raise UserError(f"verl {VERSION} ignores {key} while rollout_correction.bypass_mode is true.")
    strategy = values.get(f"{ACTOR}.fsdp_config.strategy")
    if strategy is not None and strategy != values.get(f"{ACTOR}.strategy", defaults()[f"{ACTOR}.strategy"]):
        raise UserError(
            f"verl {VERSION} ignores {ACTOR}.fsdp_config.strategy={strategy}: {ACTOR}.strategy overwrites it."
        )


def _check_dataclasses(config: Any, values: Mapping[str, Any]) -> None:
    """Build verl's dataclasses and compare every value asked for with the one that they hold."""
    with _quiet():
        from omegaconf import OmegaConf
        from verl.utils.config import omega_conf_to_dataclass

        for section in _SECTIONS:
            built = omega_conf_to_dataclass(OmegaConf.select(config, section))
            for key, value in values.items():
                if not key.startswith(section + "."):
                    continue
                held = _attribute(built, key[len(section) + 1 :].split("."))
                if isinstance(held, _Absent):
                    raise UserError(f"verl {VERSION} ignores {key}: its {type(built).__name__} has no such field.")
                if not _same(_plain(held), value):
                    raise UserError(f"verl {VERSION} replaces {key}={value!r} by {_plain(held)!r}.")


class _Absent:
    pass


def _attribute(node: Any, path: Sequence[str]) -> Any:
    for name in path:
        if isinstance(node, Mapping):
            node = node.get(name, _Absent())
        else:
            node = getattr(node, _RENAMED.get(name, name), _Absent())
    return node


def _plain(value: Any) -> Any:
    from omegaconf import OmegaConf

    if OmegaConf.is_config(value):
        value = OmegaConf.to_container(value, resolve=True)
    return list(value) if isinstance(value, tuple) else value


def framework_default(setting: str) -> Any:
    """What verl computes with where a setting of params.yaml is not passed on, in params.yaml's own units.

    From the composed configuration; four settings have no key there and are read off the code that fixes them.
    """
    key = SETTING_KEYS[setting]
    if key is None:
        return _fixed_in_code(setting)
    value = defaults()[key]
    if setting in ("adam_beta1", "adam_beta2"):
        return value[int(setting[-1]) - 1]
    if setting == "ratio":
        return "behaviour" if value else "recomputed"
    if setting == "loss_aggregation":
        return value.replace("-", "_")
    return value


def _fixed_in_code(setting: str) -> Any:
    with _quiet():
        import numpy as np
        import torch

        if setting == "dtype":
            # the branch that FSDPEngine takes without a mixed_precision setting; its module may need a GPU's libraries to import
            text = (require_verl() / "workers" / "engine" / "fsdp" / "transformer_impl.py").read_text()
            return re.search(r"else:\s+param_dtype = torch\.(\w+)", text)[1]
        from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage as advantage

        if setting == "adam_eps":
            return inspect.signature(torch.optim.AdamW).parameters["eps"].default
        if setting == "advantage_eps":
            return inspect.signature(advantage).parameters["epsilon"].default
        if setting == "advantage_ddof":
            got, _ = advantage(torch.tensor([[0.0], [1.0]]), torch.ones(2, 1), np.array([0, 0]), epsilon=0.0)
            # rewards 0 and 1 around their mean 1/2: standard deviation 1/2 (ddof 0) or 1/sqrt(2) (ddof 1)
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
    ("objective", "old log-probabilities from the rollout", "algorithm.rollout_correction.bypass_mode"),
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
        ConfigRow("model", "model", "model", f"{model['hub_id']}@{model['revision']}", None, False, "stated"),
        ConfigRow("data", "training set", "dataset", model["dataset"], None, False, "stated"),
        ConfigRow("evaluation", "validation sets", "validation", ", ".join(model["validation"]), None, False, "stated"),
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
    order = ("model", "data", "schedule", "objective", "optimisation", "rollout", "evaluation", "system")
    return sorted(rows, key=lambda row: order.index(row.group))
