"""Studies, blocks and cells: the only reader of params.yaml.

A study is a trainer, its settings and blocks of a grid; a cell is one training run, a point (arm,
model, S, eta, seed). An arm names the surrogate. Snakemake and DVC use the one expansion made here.
A cell's `settings` are all that decides what its run computes; their digest stands in the run
record, and a record with another digest is refused.
"""

from __future__ import annotations

import copy
import itertools
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from collapse_laws.errors import UserError
from collapse_laws.runrecord import settings_digest

PARAMS = Path("params.yaml")
SCHEMA = Path("workflow/schemas/params.schema.yaml")
EXTENTS = ("core", "full")
AXES = ("arm", "model", "sync_interval", "lr", "seed")
CELL_PATTERN = r"[a-z0-9-]+_[a-z0-9-]+_S\d+_eta\d+e-\d+_seed\d+"
# settings that decide where or how a run is labelled, not what it computes
_LABELS = ("title", "reference_lr_budget")


@dataclass(frozen=True, slots=True)
class Cell:
    """One training run of a study."""

    study: str
    name: str  # <arm>_<model>_S<S>_eta<eta>_seed<seed>
    scale: str
    trainer: str  # local | verl
    device: str  # cpu | cuda
    arm: str
    model: str
    sync_interval: int  # S, learner updates
    lr: float  # eta
    seed: int
    blocks: tuple[str, ...]
    settings: dict[str, Any] = field(hash=False)  # resolved; decides what the run computes
    reference_lr_budget: float | None  # c2 that a survivor must outlive twice

    @property
    def digest(self) -> str:
        """Digest of the settings, 16 hex digits."""
        return settings_digest(self.settings)

    @property
    def start_digest(self) -> str:
        """Digest of the settings that decide the starting checkpoint of a local run, as its warmstart.json has it."""
        return settings_digest({key: self.settings[key] for key in ("task", "model")})

    def identity(self) -> dict[str, Any]:
        """What run.json says of the cell, whichever trainer ran it."""
        return {
            "study": self.study,
            "cell": self.name,
            "scale": self.scale,
            "trainer": self.trainer,
            "arm": self.arm,
            "model": self.model,
            "sync_interval": self.sync_interval,
            "lr": self.lr,
            "seed": self.seed,
            "ratio": self.settings["ratio"],
            "settings": self.settings,
            "settings_digest": self.digest,
        }

    @property
    def horizon_updates(self) -> int:
        """Learner updates after which the run ends, a whole number of cycles."""
        updates = self.settings.get("horizon_updates")
        if updates is None:
            updates = max(
                self.settings["min_horizon_updates"],
                round(self.settings["horizon_lr_budget"] / self.lr),
            )
        return math.ceil(updates / self.sync_interval) * self.sync_interval


@dataclass(frozen=True, slots=True)
class Study:
    """A study as params.yaml defines it, its cells expanded in the order of the file."""

    name: str
    title: str
    scale: str
    trainer: str
    device: str
    cells: tuple[Cell, ...]  # of the extent asked for
    planned: tuple[Cell, ...]  # of every block
    arms: dict[str, dict[str, Any]]
    models: dict[str, dict[str, Any]]
    settings: dict[str, Any]
    evaluation: dict[str, Any]

    def cell(self, name: str) -> Cell:
        """The cell of that name, of any extent; UserError with the nearest names where there is none."""
        for cell in self.planned:
            if cell.name == name:
                return cell
        raise UserError(
            f"params.yaml has no cell {name!r} in study {self.name!r}; `collapse-laws cells --study {self.name}` lists "
            f"its {len(self.planned)} cells."
        )


def lr_text(value: str | float) -> str:
    """A learning rate as a name without dots, mantissa without zeros: 1.5e-4 -> '15e-5'."""
    sign, digits, exponent = Decimal(str(value)).normalize().as_tuple()
    if exponent > 0:
        digits, exponent = digits + (0,) * exponent, 0
    return f"{''.join(map(str, digits))}e-{-exponent}"


def cell_name(arm: str, model: str, sync_interval: int, lr: str | float, seed: int) -> str:
    """The readable name of a cell, also its directory and its DVC key."""
    return f"{arm}_{model}_S{sync_interval}_eta{lr_text(lr)}_seed{seed}"


def load_params(path: Path | str = PARAMS) -> dict[str, Any]:
    """params.yaml, validated by the schema beside it; UserError names the key, the value and what is allowed."""
    path = Path(path)
    try:
        params = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path} is missing; run the command in the project's folder or give --params.") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}); allowed: a params.yaml.") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not YAML: {' '.join(str(error).split())}.") from None
    validate_params(params, path.parent / SCHEMA)
    return params


def validate_params(params: Any, schema_path: Path = SCHEMA) -> None:
    """Check params against the schema file; UserError for the first fault."""
    try:
        schema = yaml.safe_load(schema_path.read_text(encoding="utf-8"))
    except OSError:
        raise UserError(
            f"{schema_path} is missing; allowed: a params.yaml in a project's folder, with its schema in "
            f"{SCHEMA.parent}."
        ) from None
    errors = jsonschema.Draft202012Validator(schema).iter_errors(params)
    error = min(errors, key=lambda e: (-len(e.absolute_path), str(e.absolute_path)), default=None)
    if error is not None:
        raise UserError(_sentence(error))


def _sentence(error: jsonschema.ValidationError) -> str:
    where = ".".join(str(part) for part in error.absolute_path) or "the top level"
    rule = error.schema if isinstance(error.schema, Mapping) else {}
    if error.validator == "additionalProperties":
        allowed = sorted(rule.get("properties", {}))
        unknown = sorted(set(error.instance) - set(allowed))
        return f"params.yaml, {where}: unknown key {unknown[0]!r}; allowed: {', '.join(allowed)}."
    if error.validator == "required":
        missing = next(key for key in error.validator_value if key not in error.instance)
        return f"params.yaml, {where}: the key {missing!r} is missing."
    allowed = rule.get("description") or f"{error.validator} {error.validator_value}"
    return f"params.yaml, {where}: {error.instance!r} is not allowed; allowed: {allowed}."


def load_study(
    params: Mapping[str, Any] | Path | str = PARAMS,
    name: str | None = None,
    extent: str | None = None,
) -> Study:
    """The study `name` (default: the active one) with the cells of `extent` (default: params' own).

    `params` is a path or what `load_params` returned. Raises UserError for an unknown study or
    extent, an axis value that is not allowed, a block that names an unknown arm or model, or two
    blocks that give one cell different settings.
    """
    if not isinstance(params, Mapping):
        params = load_params(params)
    name = name or params["study"]
    extent = extent or params.get("extent", "core")
    if extent not in EXTENTS:
        raise UserError(f"extent {extent!r} is not allowed; allowed: {', '.join(EXTENTS)}.")
    body = resolved(params["studies"], name)
    planned: dict[str, Cell] = {}
    wanted: set[str] = set()
    for block_name, block in body["blocks"].items():
        for cell in _expand(name, body, block_name, block):
            known = planned.get(cell.name)
            if known is not None:
                if known.settings != cell.settings:
                    raise UserError(
                        f"params.yaml: blocks {known.blocks[0]!r} and {block_name!r} of study {name!r} give the cell "
                        f"{cell.name!r} different settings; a cell is one run, so use one block for it."
                    )
                cell = _with_blocks(known, (*known.blocks, block_name))
            planned[cell.name] = cell
            if block["extent"] == "core" or extent == "full":
                wanted.add(cell.name)
    return Study(
        name=name,
        title=body["title"],
        scale=body["scale"],
        trainer=body["trainer"],
        device=body["device"],
        cells=tuple(cell for cell in planned.values() if cell.name in wanted),
        planned=tuple(planned.values()),
        arms=body["arms"],
        models=body["models"],
        settings=body["settings"],
        evaluation=body.get("evaluation", {}),
    )


def study_names(params: Mapping[str, Any]) -> list[str]:
    """Names of all studies, in the order of the file."""
    return list(params["studies"])


def resolved(studies: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A study's body with its `base` underneath: settings merge key by key, everything else is replaced whole."""
    if name not in studies:
        raise UserError(f"params.yaml has no study {name!r}; allowed: {', '.join(studies)}.")
    body = copy.deepcopy(dict(studies[name]))
    base_name = body.pop("base", None)
    if base_name is None:
        return body
    if "base" in studies.get(base_name, {}):
        raise UserError(f"params.yaml, studies.{name}.base: {base_name!r} has a base itself; one level is allowed.")
    base = resolved(studies, base_name)
    return {**base, **body, "settings": {**base["settings"], **body.get("settings", {})}}


def _with_blocks(cell: Cell, blocks: tuple[str, ...]) -> Cell:
    values = {name: getattr(cell, name) for name in Cell.__slots__}
    return Cell(**{**values, "blocks": blocks})


def _axis(block: Mapping[str, Any], axis: str) -> list[Any]:
    values = block[axis]
    return values if isinstance(values, list) else [values]


def _rate(value: Any, where: str) -> str:
    try:
        rate = Decimal(str(value))
    except InvalidOperation:
        rate = Decimal(0)
    if not (rate.is_finite() and 0 < rate < 1):
        raise UserError(
            f"params.yaml, {where}: {value!r} is not a learning rate; "
            'allowed: a number between 0 and 1, such as "2e-7".'
        )
    return str(value)


def _expand(study: str, body: Mapping[str, Any], block_name: str, block: Mapping[str, Any]) -> list[Cell]:
    where = f"studies.{study}.blocks.{block_name}"
    for axis, known in (("arm", body["arms"]), ("model", body["models"])):
        for value in _axis(block, axis):
            if value not in known:
                raise UserError(f"params.yaml, {where}.{axis}: {value!r} is not defined; allowed: {', '.join(known)}.")
    cells = []
    for arm, model, sync_interval, lr, seed in itertools.product(*(_axis(block, axis) for axis in AXES)):
        lr = _rate(lr, f"{where}.lr")
        arm_settings = {k: v for k, v in body["arms"][arm].items() if k not in _LABELS}
        settings = {
            "trainer": body["trainer"],
            **body["settings"],
            **arm_settings,
            **block.get("settings", {}),
            "model": body["models"][model],
            "sync_interval": sync_interval,
            "lr": float(lr),
            "seed": seed,
        }
        name = cell_name(arm, model, sync_interval, lr, seed)
        if not re.fullmatch(CELL_PATTERN, name):
            raise UserError(
                f"params.yaml, {where}: {name!r} cannot name a cell; arms and models are of small letters, digits and "
                "'-'."
            )
        budget = body["models"][model].get("reference_lr_budget", body["arms"][arm].get("reference_lr_budget"))
        settings["model"] = {k: v for k, v in settings["model"].items() if k not in _LABELS}
        cells.append(
            Cell(
                study=study,
                name=name,
                scale=body["scale"],
                trainer=body["trainer"],
                device=body["device"],
                arm=arm,
                model=model,
                sync_interval=sync_interval,
                lr=float(lr),
                seed=seed,
                blocks=(block_name,),
                settings=settings,
                reference_lr_budget=budget,
            )
        )
    return cells
