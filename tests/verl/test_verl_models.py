"""Starting models: what a fetch leaves in a folder that was in use, and which model a run accepts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest

from collapse_laws.errors import UserError
from collapse_laws.runrecord import write_json
from collapse_laws.study import Cell, Study, load_params, load_study
from collapse_laws.verl import models

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def study() -> Study:
    return load_study(load_params(ROOT / "params.yaml"), "paper")


@pytest.fixture
def cell(study: Study) -> Cell:
    return study.cell("vanilla_qwen8b_S16_eta1e-7_seed42")


def source(cell: Cell, **other: str) -> dict[str, str]:
    model = cell.settings["model"]
    return {"hub_id": model["hub_id"], "revision": model["revision"], "commit": "c", **other}


def hub(monkeypatch: pytest.MonkeyPatch, names: list[str]) -> None:
    """A Hub whose every model has these files."""

    class Api:
        def model_info(self, hub_id: str, revision: str) -> Any:
            return SimpleNamespace(sha="abc", siblings=[SimpleNamespace(rfilename=name) for name in names])

    def download(hub_id: str, revision: str, local_dir: Path, allow_patterns: list[str]) -> None:
        assert not (local_dir / models.SOURCE).exists(), "half a model must not be called one"
        for name in names:
            (local_dir / name).write_text("new")

    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)


def test_a_fetch_leaves_nothing_of_the_model_before(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("config.json", "model.safetensors", "added_tokens.json", models.SOURCE, "notes.txt"):
        (tmp_path / name).write_text("old")
    names = ["config.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "LICENSE"]
    hub(monkeypatch, names)
    assert models.fetch(study, "llama3b", tmp_path)["commit"] == "abc"
    assert {path.name for path in tmp_path.iterdir()} == {*names, models.SOURCE, "notes.txt"}
    assert models.starting_model(tmp_path)["hub_id"] == "meta-llama/Llama-3.2-3B-Instruct"


@pytest.mark.parametrize("other", [{"hub_id": "Qwen/Qwen3-0.6B"}, {"revision": "main"}])
def test_another_model_or_revision_is_not_current_and_refused(
    cell: Cell, tmp_path: Path, other: dict[str, str]
) -> None:
    path = tmp_path / models.SOURCE
    assert not models.source_is_current(path, cell)
    models.require_source(tmp_path, cell)  # a checkpoint of the user's own
    write_json(path, source(cell))
    assert models.source_is_current(path, cell)
    models.require_source(tmp_path, cell)
    write_json(path, source(cell, **other))
    assert not models.source_is_current(path, cell)
    with pytest.raises(UserError, match=r"holds Qwen/Qwen3-\S+ at \w+, but .* starts from Qwen/Qwen3-8B at b96"):
        models.require_source(tmp_path, cell)


@pytest.mark.parametrize("text", ['{"hub_id"', "{}", "[]"])
def test_a_damaged_source_is_not_current(cell: Cell, tmp_path: Path, text: str) -> None:
    (tmp_path / models.SOURCE).write_text(text)
    assert not models.source_is_current(tmp_path / models.SOURCE, cell)
    with pytest.raises(UserError, match="is damaged; fetch the model again"):
        models.require_source(tmp_path, cell)


def test_planning_imports_nothing_heavy() -> None:
    program = (
        "import sys; import collapse_laws.verl.models; "
        "print(*sorted({'torch', 'transformers', 'verl', 'huggingface_hub'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
