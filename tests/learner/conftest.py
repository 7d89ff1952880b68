"""A tiny policy and short cells, so that the real learner runs in well under a second."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from collapse_laws.policy import save_policy, tiny_llama
from collapse_laws.study import Cell, load_study
from collapse_laws.tasks.arithmetic import character_tokenizer
from collapse_laws.warmstart import make_start

ROOT = Path(__file__).resolve().parents[2]
TINY = {"hidden_size": 16, "layers": 2, "heads": 2, "intermediate_size": 40, "rope_theta": 1000.0}


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def start(tmp_path_factory) -> Path:
    """The smoke study's starting checkpoint."""
    torch.set_num_threads(1)
    out = tmp_path_factory.mktemp("models") / "tiny"
    make_start(load_study(ROOT / "params.yaml", "smoke"), "tiny", out)
    return out


@pytest.fixture(scope="session")
def untrained(tmp_path_factory) -> Path:
    """A checkpoint with random weights."""
    out = tmp_path_factory.mktemp("models") / "untrained"
    tokenizer = character_tokenizer()
    save_policy(tiny_llama(TINY, tokenizer, 0), tokenizer, out)
    return out


@pytest.fixture
def make_cell() -> Callable[..., Cell]:
    """A smoke cell with some settings replaced."""

    def make(sync_interval: int = 4, lr: float = 1e-3, seed: int = 3, **settings) -> Cell:
        cell = load_study(ROOT / "params.yaml", "smoke").planned[0]
        changed = {
            **cell.settings,
            "horizon_updates": 16,
            "sync_interval": sync_interval,
            "lr": lr,
            "seed": seed,
            **settings,
        }
        return dataclasses.replace(cell, sync_interval=sync_interval, lr=lr, seed=seed, settings=changed)

    return make
