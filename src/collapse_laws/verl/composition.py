"""verl's own configuration: composed with Hydra and built as its dataclasses, so that no key is ignored unseen.

Needs the package `verl`, but no GPU and no vLLM. A value is a framework default if verl's
fully-async configuration holds it already; the launcher does not pass it on.
"""

from __future__ import annotations

import importlib.util
import logging
import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from collapse_laws.errors import UserError
from collapse_laws.verl.overrides import ACTOR, ROLLOUT, Override

VERSION = "0.9.1"
CONFIG_NAME = "fully_async_ppo_trainer"
MAIN_MODULE = "verl.experimental.fully_async_policy.fully_async_main"

# Keys that compose without complaint and that this trainer never reads, or reads only beside
# another key.
IGNORED_KEYS = {
    f"{ACTOR}.grad_clip": f"the engine clips at {ACTOR}.optim.clip_grad",
    f"{ACTOR}.fsdp_config.dtype": "the engine computes in fsdp_config.mixed_precision.param_dtype",
    f"{ACTOR}.clip_ratio": f"{ACTOR}.clip_ratio_low and clip_ratio_high win over it",
    "trainer.total_training_steps": "the fully-async trainer reads rollout.total_rollout_steps",
    "trainer.use_v1": "fully_async_main is another trainer",
    "data.val_batch_size": "validation is sent whole",
    "custom_reward_function.path": "its place is reward.custom_reward_function.path",
}
# Sections that verl turns into dataclasses; a value that differs there from what was asked for was
# silently replaced.
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

    Raises UserError for an unknown key or a value that Hydra cannot read. 4 s at the first call,
    0.4 s after it.
    """
    with quiet():
        from hydra import compose as hydra_compose
        from hydra import initialize_config_dir
        from hydra.errors import HydraException
        from omegaconf.errors import OmegaConfBaseException

        folder = require_verl() / "experimental" / "fully_async_policy" / "config"
        try:
            with initialize_config_dir(config_dir=str(folder), version_base=None):
                return hydra_compose(CONFIG_NAME, overrides=[a for a in arguments if not a.startswith("hydra.")])
        except (HydraException, OmegaConfBaseException) as error:
            raise UserError(
                f"verl {VERSION} does not take this configuration: {' '.join(str(error).split())}"
            ) from None


class quiet(warnings.catch_warnings):
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
        for key in (
            "algorithm.rollout_correction.rollout_is",
            "algorithm.rollout_correction.rollout_rs",
        ):
            if values.get(key) is not None:
                raise UserError(f"verl {VERSION} ignores {key} while rollout_correction.bypass_mode is true.")
    strategy = values.get(f"{ACTOR}.fsdp_config.strategy")
    if strategy is not None and strategy != values.get(f"{ACTOR}.strategy", defaults()[f"{ACTOR}.strategy"]):
        raise UserError(
            f"verl {VERSION} ignores {ACTOR}.fsdp_config.strategy={strategy}: {ACTOR}.strategy overwrites it."
        )


def _check_dataclasses(config: Any, values: Mapping[str, Any]) -> None:
    """Build verl's dataclasses and compare every value asked for with the one that they hold."""
    with quiet():
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
