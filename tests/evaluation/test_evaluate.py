"""An evaluation end to end on a tiny model: files, resuming, the table over snapshots, and messages."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pandas as pd
import pytest
import torch
from transformers import AutoModelForCausalLM

from collapse_laws import evaluate as evaluation
from collapse_laws import evaluation_request as requests
from collapse_laws import generation
from collapse_laws.cli import main
from collapse_laws.errors import UserError
from collapse_laws.evaluation_table import COLUMNS, collect, over_snapshots
from collapse_laws.policy import save_policy, tiny_llama
from collapse_laws.study import load_study
from collapse_laws.tasks.arithmetic import character_tokenizer
from collapse_laws.tasks.benchmarks import Problem
from collapse_laws.wide_heads import write_with_wide_heads

TASK = {"name": "chain_arithmetic", "min_terms": 2, "max_terms": 3, "operators": "+", "modulus": 3}
MODEL = {"hidden_size": 32, "layers": 2, "heads": 2, "intermediate_size": 48, "rope_theta": 1000.0}
CELL = "recomputed_tiny_S2_eta2e-3_seed11"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "tiny"
    tokenizer = character_tokenizer()
    save_policy(tiny_llama(MODEL, tokenizer, seed=3), tokenizer, path)
    return path


def _request(**decoding: float) -> requests.Request:
    values = {"samples": 4, "temperature": 1.0, "top_p": 1.0, "max_new_tokens": 6, **decoding}
    return requests.Request(
        benchmark="heldout",
        backend="local",
        seed=5,
        problems=30,
        decoding=generation.Decoding(**values),
        prompt={},
        engine={},
        verify=False,
        verify_cpu_seconds=1.0,
        task=TASK,
    )


def _evaluate(checkpoint: Path, folder: Path, request: requests.Request, size: int = 40) -> dict:
    return evaluation.evaluate(
        requests.Subject(checkpoint, "8", {"cell": "c"}),
        request,
        data=folder,
        out=folder / "out.json",
        work=folder / "work",
        requests_per_part=size,
    )


def test_files_and_scores(checkpoint: Path, tmp_path: Path) -> None:
    result = _evaluate(checkpoint, tmp_path, _request())
    assert json.loads((tmp_path / "out.json").read_text()) == result
    table = pd.read_parquet(tmp_path / "out.parquet")
    assert len(table) == 120
    assert result["metric"] == "avg@4"
    assert result["scores"]["exact"]["mean"] == pytest.approx(table["exact"].mean())
    assert result["truncated_fraction"] == pytest.approx(1 - table["finished"].mean())
    assert set(result["by_level"]) == {"2 terms", "3 terms"}
    right = table[table["exact"] == 1]
    assert (right["text"] == right["gold"]).all()
    assert not (tmp_path / "work").exists()


def test_a_sample_depends_neither_on_parts_nor_on_the_number_of_problems(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    _evaluate(checkpoint, tmp_path / "a", _request(), size=40)
    fewer = dataclasses.replace(_request(), problems=30)
    _evaluate(checkpoint, tmp_path / "b", fewer, size=12)
    a, b = (pd.read_parquet(tmp_path / x / "out.parquet") for x in "ab")
    pd.testing.assert_frame_equal(a, b)


def test_resuming_generates_only_what_is_missing(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "whole").mkdir()
    (tmp_path / "cut").mkdir()
    whole = _evaluate(checkpoint, tmp_path / "whole", _request())
    filled = []
    fill = generation._LocalSampler.fill

    def killed_at_the_third(self: object, part: generation.Part) -> None:
        if len(filled) == 2:
            raise KeyboardInterrupt
        filled.append(part.path.name)
        fill(self, part)

    monkeypatch.setattr(generation._LocalSampler, "fill", killed_at_the_third)
    with pytest.raises(KeyboardInterrupt):
        _evaluate(checkpoint, tmp_path / "cut", _request())
    assert not (tmp_path / "cut" / "out.json").exists()
    again = []
    monkeypatch.setattr(
        generation._LocalSampler,
        "fill",
        lambda self, part: (again.append(part.path.name), fill(self, part))[1],
    )
    resumed = _evaluate(checkpoint, tmp_path / "cut", _request())
    assert filled == ["part-00000.jsonl", "part-00001.jsonl"]
    assert again == ["part-00002.jsonl"]
    assert {**resumed, "timings": None} == {**whole, "timings": None}
    assert _evaluate(checkpoint, tmp_path / "cut", _request()) == resumed  # nothing is done twice
    assert again == ["part-00002.jsonl"]
    _evaluate(checkpoint, tmp_path / "cut", _request(max_new_tokens=5))
    assert len(again) == 4  # another request: all three parts anew


def test_greedy_and_wide_heads_agree(checkpoint: Path, tmp_path: Path) -> None:
    write_with_wide_heads(checkpoint, tmp_path / "wide")
    models = [AutoModelForCausalLM.from_pretrained(p) for p in (checkpoint, tmp_path / "wide")]
    assert [m.config.head_dim for m in models] == [16, 32]
    tokens = torch.randint(0, 17, (8, 20), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        narrow, wide = (m(tokens).logits for m in models)
    torch.testing.assert_close(wide, narrow, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("decoding", "message"),
    [
        ({"temperature": 0.0}, "temperature 0 gives 4 equal samples"),
        ({"top_p": 0.7}, "the local sampler has no top_p"),
    ],
)
def test_decoding_that_cannot_be(checkpoint: Path, tmp_path: Path, decoding: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        _evaluate(checkpoint, tmp_path, _request(**decoding))


def test_without_vllm_one_sentence(checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(generation.VLLM_PYTHON, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(generation.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="vLLM is not installed; run `make env-vllm`"):
        generation.vllm_python()


def test_command_scores_a_cell_and_collects(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    root = Path(__file__).resolve().parents[2]
    monkeypatch.chdir(tmp_path)
    for name in ("8", "final"):
        target = tmp_path / "checkpoints" / "smoke" / CELL / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(checkpoint)
    common = ["evaluate", "--params", str(root / "params.yaml"), "--study", "smoke"]
    assert main([*common, "--cell", CELL]) == 0
    assert main([*common, "--cell", CELL, "--snapshot", "12"]) == 2
    assert "has: 8, final." in capsys.readouterr().err
    assert main([*common, "--collect"]) == 0
    table = pd.read_csv("results/smoke/evaluation.csv")
    assert list(table.columns) == COLUMNS
    assert list(table["snapshot"].astype(str)) == ["8", "final"]
    assert table["primary"].all()
    wide = over_snapshots(collect(Path("evals/smoke"), Path("runs/smoke")))
    assert list(wide.columns)[-2:] == ["final", "8"]


def test_evaluation_section_is_checked() -> None:
    root = Path(__file__).resolve().parents[2]
    study = load_study(root / "params.yaml", "smoke")
    assert requests.benchmarks_of(study, "tiny") == ["heldout"]
    with pytest.raises(UserError, match="no benchmark 'aime'; it has: heldout"):
        requests.request_of(study, "aime", {})


def test_the_models_variables_reach_its_chat_template() -> None:
    """Left alone, Llama's template writes the day of the run into every prompt."""
    study = load_study(Path(__file__).resolve().parents[2] / "params.yaml", "paper")
    cell = study.cell("vanilla_llama3b_S32_eta1e-7_seed42")
    asked = requests.request_of(study, "math_test", cell.settings)

    class Tokenizer:
        chat_template = "a template"

        def apply_chat_template(self, messages: list[dict], date_string: str, **_: object) -> str:
            return f"{date_string}: {messages[0]['content']}"

        def __call__(self, text: str, **_: object) -> dict:
            return {"input_ids": [ord(letter) for letter in text]}

    problem = Problem(index=0, text="1+1?", golds=("2",))
    text = "".join(map(chr, requests.prompt_tokens(problem, Tokenizer(), asked.prompt)))
    assert text.startswith("26 Jul 2024: 1+1? Let's think")
    other = requests.request_of(study, "math500", study.cell("vanilla_qwen8b_S16_eta1e-7_seed42").settings)
    assert other.prompt["chat_template"] == {}


@pytest.mark.vllm
@pytest.mark.slow
def test_vllm_agrees_with_the_local_sampler(
    checkpoint: Path, tmp_path: Path, vllm_python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(generation.VLLM_PYTHON, vllm_python)
    greedy = dataclasses.replace(_request(samples=1, temperature=0.0), problems=200)
    engine = {"dtype": "float32", "max_model_len": 64, "enforce_eager": True}
    through = dataclasses.replace(greedy, backend="vllm", engine=engine)
    for name, request in (("local", greedy), ("vllm", through)):
        (tmp_path / name).mkdir()
        _evaluate(checkpoint, tmp_path / name, request, size=100)
    local, vllm = (pd.read_parquet(tmp_path / n / "out.parquet") for n in ("local", "vllm"))
    assert len(vllm) == 200
    assert (local["text"] == vllm["text"]).mean() >= 0.99
