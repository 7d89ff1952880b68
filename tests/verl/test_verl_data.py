"""Prepared data: counts, contents, what is left out, and equality with what verl's own loader reads."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("verl", reason="needs the extra `verl`")

from collapse_laws.cli import main
from collapse_laws.errors import UserError
from collapse_laws.fingerprint import PACKAGE
from collapse_laws.study import load_params, load_study
from collapse_laws.tasks.benchmarks import Problem, load
from collapse_laws.verl import data
from collapse_laws.verl import prepared as prepared_module
from collapse_laws.verl.reward import compute_score

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def bench(shared: Path) -> Path:
    return shared / "data" / "bench"


@pytest.fixture(scope="module")
def prepared(bench: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("prepared") / "paper"
    study = load_study(load_params(ROOT / "params.yaml"), "paper")
    data.prepare(study, bench, out)
    return out


def report(prepared: Path) -> dict:
    return json.loads((prepared / data.REPORT).read_text())["files"]


def rows(prepared: Path, name: str) -> list[dict]:
    return pq.read_table(prepared / f"{name}.parquet").to_pylist()


def test_counts_and_what_was_left_out(prepared: Path) -> None:
    files = report(prepared)
    counts = {name: notes["rows"] for name, notes in files.items()}
    assert counts == {
        "math": 7497,
        "dapo": 17917,
        "math_test": 5000,
        "math500": 500,
        "minerva_math": 272,
    }
    assert {name: len(rows(prepared, name)) for name in files} == counts
    assert [(row["index"], row["gold"]) for row in files["math"]["dropped"]] == [
        (252, "{17}."),
        (5341, ""),
        (5343, ""),
    ]
    overlap = {name: len(found["in_training"]) for name, found in files["dapo"]["overlap"].items()}
    assert overlap == {"math_test": 976, "math500": 7, "minerva_math": 0, "amc23": 8, "amc24": 0}


def test_every_gold_is_reachable_by_an_answer_in_a_box(prepared: Path) -> None:
    for name in ("math", "math_test", "math500", "dapo"):
        for row in rows(prepared, name):
            gold = row["reward_model"]["ground_truth"]
            assert gold.strip(), (name, row["extra_info"])
            score = compute_score(
                row["data_source"],
                f"So the answer is $\\boxed{{{gold}}}$.",
                gold,
                row["extra_info"],
            )
            assert score == {"score": 1.0, "acc": 1.0}, (name, row["extra_info"])


def test_reward_equals_verls_own_verdict_on_math(prepared: Path, bench: Path) -> None:
    from verl.utils.reward_score import default_compute_score

    problems = load("math_test", bench)
    kept = rows(prepared, "math_test")
    answers = [p.golds[0] for p in problems]
    for shift in (0, 1, 7):  # right answers, and others' answers
        for i in range(0, len(kept), 5):
            text = f"Thinking. \\boxed{{0}} no, \\boxed{{{answers[(i + shift) % len(answers)]}}}"
            row = kept[i]
            ours = compute_score(row["data_source"], text, row["reward_model"]["ground_truth"], row["extra_info"])
            theirs = default_compute_score(row["data_source"], text, row["reward_model"]["ground_truth"])
            assert ours["score"] == theirs
            assert ours["score"] in (0.0, 1.0)


def test_rewards_are_zero_or_one_for_every_family() -> None:
    assert compute_score("BytedTsinghua-SIA/DAPO-Math-17k", "Answer: 34", "34")["score"] == 0.0
    assert compute_score("BytedTsinghua-SIA/DAPO-Math-17k", "\\boxed{34}", "34")["score"] == 1.0
    golds = {"golds": ["4.5e33", "4.5 \\times 10^{33}"]}
    assert compute_score("math-ai/minervamath", "\\boxed{4.5 \\times 10^{33}}", "4.5e33", golds)["score"] == 1.0
    assert compute_score("math-ai/minervamath", "\\boxed{4.5 \\times 10^{33}}", "4.5e33")["score"] == 0.0
    assert compute_score("chain-arithmetic", "3082#2", "3082#2")["score"] == 1.0
    assert compute_score("chain-arithmetic", "2", "3082#2")["score"] == 0.0


def test_verls_own_loader_reads_the_same_rows(prepared: Path, bench: Path, tmp_path: Path) -> None:
    from cpu_verl_study import CHAT_TEMPLATE
    from omegaconf import OmegaConf
    from verl.utils.dataset.rl_dataset import RLHFDataset

    from collapse_laws.tasks.arithmetic import character_tokenizer

    tokenizer = character_tokenizer()
    tokenizer.chat_template = CHAT_TEMPLATE
    settings = {
        "prompt_key": "prompt",
        "return_raw_chat": True,
        "filter_overlong_prompts": False,
        "cache_dir": str(tmp_path),
    }
    for name, source in (
        ("math", "math_train"),
        ("math_test", "math_test"),
        ("minerva_math", "minerva_math"),
    ):
        loaded = RLHFDataset([str(prepared / f"{name}.parquet")], tokenizer, OmegaConf.create(settings))
        problems = [p for p in load(source, bench) if not (name == "math" and p.flag)]
        assert len(loaded) == len(problems)
        for i in range(0, len(problems), 97):
            item = loaded[i]
            # verl's own preparation of MATH: the question, a space, the instruction
            instruction = "Let's think step by step and output the final answer within \\boxed{}."
            assert list(item["raw_prompt"]) == [{"role": "user", "content": problems[i].text + " " + instruction}]
            assert item["reward_model"] == {"style": "rule", "ground_truth": problems[i].golds[0]}
            assert item["extra_info"]["index"] == problems[i].index
            assert item["data_source"] == data.DATA_SOURCES[source]


def test_sets_of_one_run_can_be_joined_by_the_loader(prepared: Path) -> None:
    schemas = {pq.read_schema(prepared / f"{name}.parquet").remove_metadata() for name in ("math500", "minerva_math")}
    assert len(schemas) == 1


def test_files_are_the_same_bytes_when_made_again(prepared: Path, bench: Path, tmp_path: Path) -> None:
    entry = data.write_parquet(
        tmp_path / "x.parquet", [data._row(p) for p in load("math500", bench)], "math500", "test"
    )
    assert entry == report(prepared)["math500"]


def template(prompt: str) -> str:
    return data.DAPO_PREFIX + prompt + data.DAPO_SUFFIX


def test_dapos_hub_layout_is_deduplicated_to_the_same_rows(bench: Path, tmp_path: Path) -> None:
    plain, _ = data.deduplicated(data.dapo_rows(bench))
    nested = [
        {
            "data_source": "math_dapo",
            "prompt": [{"role": "user", "content": template(row.problem)}],
            "ability": "MATH",
            "reward_model": {"ground_truth": row.golds[0], "style": "rule-lighteval/MATH_v2"},
            "extra_info": {"index": f"uuid-{row.index}"},
        }
        for row in plain
    ]
    pq.write_table(pa.Table.from_pylist(nested * 3), tmp_path / "dapo-math-17k.parquet")
    rows, notes = data.deduplicated(data.dapo_rows(tmp_path))
    assert notes["source_rows"] == 3 * 17_917
    assert rows == plain


def flat(n: int) -> list[dict]:
    return [{"prompt": f"p{i}", "ground_truth": "1", "index": i} for i in range(n)]


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        (flat(5), "has 5 different indices in 5 rows; allowed: 17917"),
        (
            [*flat(5), {"prompt": "p1", "ground_truth": "2", "index": 1}],
            "row 5: index 1 comes back with another",
        ),
        (
            [{**row, "ground_truth": "1/2"} for row in flat(17_917)],
            "the answer '1/2' is no integer",
        ),
    ],
)
def test_other_contents_are_refused_in_a_sentence(rows: list[dict], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        data.deduplicated(rows)


def test_overlap_ignores_spaces_marks_and_case() -> None:
    rows = [data.Row(0, "Find $x^2$ , please.", ("4",))]
    sets = {"a": [Problem(3, "find x^{2} please", ("4",)), Problem(4, "find x^3 please", ("8",))]}
    assert data.overlap(rows, sets) == {"a": {"problems": 2, "in_training": [3]}}


def test_a_changed_row_is_refused(bench: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in bench.glob("*.jsonl"):
        text = path.read_text(encoding="utf-8")
        if path.name.startswith("math_train.part1"):
            text = text.replace("continuous", "differentiable", 1)
        (tmp_path / path.name).write_text(text, encoding="utf-8")
    argv = ["prepare", "--params", str(ROOT / "params.yaml"), "--study", "paper"]
    assert main([*argv, "--local", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    assert "differs from MATH train in 1 of 7500 rows" in capsys.readouterr().err


def test_prepare_is_refused_for_a_local_study(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prepare", "--params", str(ROOT / "params.yaml"), "--study", "smoke"]) == 2
    assert "needs no prepared data" in capsys.readouterr().err


def test_an_unknown_model_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["prepare", "--params", str(ROOT / "params.yaml"), "--study", "paper", "--model", "gpt"]
    assert main(argv) == 2
    assert "allowed: llama1b, llama3b, qwen8b" in capsys.readouterr().err


def test_a_runs_files_are_named_with_their_sizes(prepared: Path) -> None:
    study = load_study(load_params(ROOT / "params.yaml"), "paper")
    files = data.run_data(study.cell("vanilla_qwen8b_S16_eta1e-7_seed42"), prepared)
    assert [path.name for path in files.train] == ["dapo.parquet"]
    assert files.validation_sizes == {"HuggingFaceH4/MATH-500": 500, "math-ai/minervamath": 272}
    with pytest.raises(UserError, match=r"run `collapse-laws prepare"):
        data.run_data(study.cells[0], prepared / "nowhere")


# what is current


def test_prepared_files_are_current_until_something_that_decides_them_changes(prepared: Path, tmp_path: Path) -> None:
    params = load_params(ROOT / "params.yaml")
    study = load_study(params, "paper")
    folder = tmp_path / "paper"
    shutil.copytree(prepared, folder)
    path = folder / prepared_module.REPORT
    assert prepared_module.prepared_is_current(path, study)
    params["studies"]["paper"]["models"]["qwen8b"]["validation"] = ["math500", "minerva_math", "amc23"]
    assert not prepared_module.prepared_is_current(path, load_study(params, "paper"))
    report = json.loads(path.read_text())
    for damaged in (json.dumps({**report, "settings": "0" * 16}), "{", "[]", "{}"):
        path.write_text(damaged)
        assert not prepared_module.prepared_is_current(path, study)
    path.write_text(json.dumps(report))
    (folder / "dapo.parquet").unlink()
    assert not prepared_module.prepared_is_current(path, study)
    path.unlink()
    assert not prepared_module.prepared_is_current(path, study)


def test_a_run_refuses_files_that_were_prepared_in_another_way(prepared: Path, tmp_path: Path) -> None:
    cell = load_study(load_params(ROOT / "params.yaml"), "paper").cell("vanilla_qwen8b_S16_eta1e-7_seed42")
    folder = tmp_path / "paper"
    shutil.copytree(prepared, folder)
    path = folder / data.REPORT
    written = json.loads(path.read_text())
    for report in ({**written, "settings": "0" * 16}, {k: v for k, v in written.items() if k != "settings"}):
        path.write_text(json.dumps(report))
        with pytest.raises(UserError, match=r"was prepared with other prompts, .*; run `collapse-laws prepare"):
            data.run_data(cell, folder)
    for damaged in ("{", "[]", "{}"):
        path.write_text(damaged)
        with pytest.raises(UserError, match=r"is damaged; run `collapse-laws prepare"):
            data.run_data(cell, folder)


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("verl/data.py", "step by step and", "and"),  # the instruction
        ("verl/data.py", "if not p.flag", "if p"),  # the rows that are left out
        ("tasks/benchmark_registry.py", "5343:", "5344:"),
        ("tasks/benchmark_rows.json", "a", "b"),
    ],
)
def test_what_decides_the_prepared_files_is_in_their_digest(file: str, old: str, new: str, tmp_path: Path) -> None:
    for folder in ("tasks", "verl"):
        shutil.copytree(PACKAGE / folder, tmp_path / folder)
    assert prepared_module.data_settings(tmp_path) == prepared_module.data_settings()
    text = (tmp_path / file).read_text(encoding="utf-8")
    assert old in text
    (tmp_path / file).write_text(text.replace(old, new, 1), encoding="utf-8")
    assert prepared_module.data_settings(tmp_path) != prepared_module.data_settings()


def test_planning_imports_nothing_heavy() -> None:
    program = (
        "import sys; import collapse_laws.verl.prepared; "
        "print(*sorted({'torch', 'transformers', 'verl', 'datasets'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
