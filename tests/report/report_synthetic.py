"""Synthetic studies with a known boundary and clock: params.yaml, run records and outcomes, without any training."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import yaml

from collapse_laws.cli import main
from collapse_laws.laws.results import cell_path, cell_result, laws_path, laws_result
from collapse_laws.runrecord import RunWriter, finish, read_run, write_json
from collapse_laws.study import Cell, load_study

ROOT = Path(__file__).resolve().parents[2]
BUDGET = 0.032  # onset x lr of every collapsing run
BOUNDARY = 1.0e-2  # S x lr from which a run collapses

AXES = "study scale trainer arm model sync_interval lr seed".split()

Onset = Callable[[Cell], int | None]


def onset_by_the_laws(cell: Cell) -> int | None:
    """The update of the drop under both laws; None for a survivor."""
    if cell.sync_interval * cell.lr < BOUNDARY or cell.sync_interval == 1:
        return None
    return round(BUDGET / cell.lr)


def never(cell: Cell) -> int | None:
    return None


def write_params(
    root: Path,
    *,
    arms: Sequence[str] = ("recomputed",),
    models: Sequence[str] = ("tiny",),
    sync_intervals: Sequence[int] = (8, 16),
    rates: Sequence[str] = ("2e-3", "1e-3", "4e-4"),
    seeds: Sequence[int] = (11,),
    title: str = "A synthetic study",
    name: str = "proxy",
) -> Path:
    """A params.yaml with one study of one block under `root`, and the schema beside it."""
    params = yaml.safe_load((ROOT / "params.yaml").read_text())
    study = params["studies"]["proxy"]
    study["title"] = title
    first = next(iter(study["models"].values()))
    study["models"] = {model: first for model in models}
    template = study["arms"]["recomputed"]
    study["arms"] = {arm: study["arms"].get(arm, {**template, "title": arm}) for arm in arms}
    study["blocks"] = {
        "grid": {
            "extent": "core",
            "arm": list(arms),
            "model": list(models),
            "sync_interval": list(sync_intervals),
            "lr": list(rates),
            "seed": list(seeds),
        }
    }
    params["studies"] = {name: study}
    params["study"] = name
    schema = root / "workflow" / "schemas"
    schema.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / "workflow/schemas/params.schema.yaml", schema)
    shutil.copytree(ROOT / "reference", root / "reference", dirs_exist_ok=True)
    path = root / "params.yaml"
    path.write_text(yaml.safe_dump(params, sort_keys=False))
    return path


def write_record(root: Path, cell: Cell, onset: int | None, stride: int = 1) -> None:
    """A run record whose reward climbs with the cumulative learning rate and drops at `onset`."""
    work, directory = root / "work" / cell.name, root / "runs" / cell.study / cell.name
    rng = np.random.default_rng(abs(hash((cell.sync_interval, cell.seed))) % 2**32)
    S = cell.sync_interval
    last = cell.horizon_updates if onset is None else min(cell.horizon_updates, onset + 6 * S)
    writer = RunWriter(work)
    for t in range(0, last, stride):
        reward = _reward(t, cell.lr, onset, rng)
        if t % S == 0:
            writer.snapshots.append(
                {
                    "M": t // S,
                    "t": t,
                    "reward_mean": reward,
                    "reward_se": 0.02,
                    "n": 256 * S,
                    "degenerate_group_fraction": 0.3,
                    "validation_reward": reward + 0.02 if t % (2 * S) == 0 else None,
                    "validation_n": 512 if t % (2 * S) == 0 else None,
                }
            )
        lag = t % S
        writer.steps.append(
            {
                "t": t,
                "snapshot": t // S,
                "lag": lag,
                "lr": cell.lr,
                "loss": 0.0,
                "reward_mean": reward + 0.02 * rng.standard_normal(),
                "grad_norm": 1.0,
                "grad_cos": None if t == 0 else _cosine(t, rng),
                "clip_fraction": 0.01 * lag,
                "kl_behaviour": 1e-3 * lag,
                "kl_ref": 1e-4 * t,
                "entropy": 0.5,
                "displacement_rms": cell.lr * (t + 1) ** 0.8,
                "update_rms": 0.8 + 0.1 * rng.random(),
                "tokens": 2500,
                "seconds": 0.1,
            }
        )  # fmt: skip
    writer.close()
    finish(work, directory, manifest(cell, last, "horizon" if onset is None else "collapse"))


def _cosine(t: int, rng: np.random.Generator) -> float:
    return 0.4 * math.exp(-t / 20) + 0.05 * rng.standard_normal()


def _reward(t: int, lr: float, onset: int | None, rng: np.random.Generator) -> float:
    level = 0.4 + 0.5 * (1 - math.exp(-t * lr / 0.02))
    if onset is not None and t >= onset:
        level = 0.03
    return float(np.clip(level + 0.01 * rng.standard_normal(), 0, 1))


def manifest(cell: Cell, updates: int, stop_reason: str) -> dict:
    return {
        "schema_version": 1,
        "cell": cell.name,
        **{k: getattr(cell, k) for k in AXES},
        "ratio": cell.settings["ratio"],
        "settings": cell.settings,
        "settings_digest": cell.digest,
        "source_fingerprint": None,
        "horizon_updates": cell.horizon_updates,
        "updates": updates,
        "stop_reason": stop_reason,
        "versions": {"python": "3.11.7", "torch": "2.13.0+cpu"},
        "hardware": {"machine": "x86_64", "cores": 2},
        "timings": {"wall_seconds": 12.5},
    }  # fmt: skip


def write_outcome(root: Path, cell: Cell) -> None:
    """results/<study>/cells/<cell>.json, classified from the record by the declared criterion."""
    record = read_run(root / "runs" / cell.study / cell.name)
    write_json(root / cell_path(cell.study, cell.name), cell_result(cell, record))


def make_study(
    root: Path,
    onset: Onset = onset_by_the_laws,
    without: Callable[[Cell], bool] = lambda cell: False,
    records: bool = True,
    stride: int = 1,
    **axes,
) -> Path:
    """A whole synthetic study under `root`; returns its params.yaml. Cells for which `without` is true are not run."""
    params = write_params(root, **axes)
    study = load_study(params)
    for cell in study.planned:
        if without(cell):
            continue
        write_record(root, cell, onset(cell), stride)
        write_outcome(root, cell)
        if not records:
            shutil.rmtree(root / "runs" / cell.study / cell.name)
    write_laws(root, params)
    return params


def write_laws(root: Path, params: Path) -> None:
    """results/<study>/laws.json from the outcomes that are there."""
    study = load_study(params)
    found = {
        cell.name: json.loads(path.read_text())
        for cell in study.planned
        if (path := root / cell_path(study.name, cell.name)).exists()
    }
    planned = [(cell.arm, cell.model, cell.name) for cell in study.planned]
    write_json(root / laws_path(study.name), laws_result(study.name, study.scale, planned, found))


def write_everything(params: Path, study: str = "proxy") -> Path:
    """Tables, figures and the page of a study; returns the page."""
    for command in ("tables", "figures", "report"):
        assert main([command, "--params", str(params), "--study", study]) == 0
    return params.parent / "reports" / study / "index.html"
