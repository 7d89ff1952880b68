"""What Snakemake would train, evaluate and extract: dry runs on records as a clone has them."""

from __future__ import annotations

import os
import random
import re
import shutil
import sys
import time
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
SMOKE = ("--config", "study=smoke")
TABLE = "results/table1.csv"
CELL = "recomputed_tiny_S8_eta1e-3_seed11"


def test_pulled_records_train_nothing_whatever_the_times_say(recorded):
    rng = random.Random(1)
    for path in Path(recorded.root).rglob("*"):
        if path.is_file():
            when = rng.uniform(1.0e9, 4.0e9)
            os.utime(path, (when, when))
    plan = recorded.plan(TABLE, *SMOKE)
    assert plan["extract"] == 4
    assert not {"train", "evaluate", "warmstart"} & set(plan)


def test_missing_records_are_trained_and_the_model_made_once(project):
    plan = project.plan(TABLE, *SMOKE)
    assert (plan["train"], plan["warmstart"], plan["evaluate"]) == (4, 1, 4)


def test_other_sources_retrain_nothing_and_the_learners_code_everything(recorded):
    for path in (recorded.root / "src").rglob("*.py"):
        path.touch()
    recorded.edit("src/collapse_laws/cli.py", "from __future__", "import io  # noqa\nfrom __future__")
    recorded.edit("src/collapse_laws/grpo.py", '"""', '"""A docstring decides nothing. ')
    assert "train" not in recorded.plan(TABLE, *SMOKE)
    with open(recorded.root / "src/collapse_laws/grpo.py", "a", encoding="utf-8") as file:
        file.write("\nCHANGED = 1\n")
    plan = recorded.plan(TABLE, *SMOKE)
    assert (plan["warmstart"], plan["train"], plan["evaluate"]) == (1, 4, 4)


def test_a_starting_model_of_other_settings_is_made_again_where_a_run_needs_it(recorded):
    start = recorded.root / "models/smoke/tiny/warmstart.json"
    start.write_text(start.read_text(encoding="utf-8").replace('"settings_digest": "', '"settings_digest": "0'))
    assert "warmstart" not in recorded.plan(TABLE, *SMOKE)  # the records stand
    (recorded.root / f"runs/smoke/{CELL}/run.json").unlink()
    plan = recorded.plan(TABLE, *SMOKE)
    assert (plan["warmstart"], plan["train"]) == (1, 1)


@pytest.mark.parametrize("model_is_there", [True, False])
def test_changed_setting_trains_its_cell_alone(recorded, model_is_there):
    params = yaml.safe_load((recorded.root / "params.yaml").read_text(encoding="utf-8"))
    grid = params["studies"]["smoke"]["blocks"]["grid"]
    params["studies"]["smoke"]["blocks"] = {
        "first": {**grid, "sync_interval": 2},
        "second": {**grid, "sync_interval": 8, "lr": "2e-3"},
        "third": {**grid, "sync_interval": 8, "lr": "1e-3", "settings": {"grad_clip": 0.5}},
    }
    (recorded.root / "params.yaml").write_text(yaml.safe_dump(params, sort_keys=False))
    if not model_is_there:
        (recorded.root / "models/smoke/tiny/warmstart.json").unlink()
    plan = recorded.plan(TABLE, *SMOKE)
    assert (plan["train"], plan["evaluate"]) == (1, 1)
    assert plan.get("warmstart", 0) == (0 if model_is_there else 1)
    assert recorded.plan(f"runs/smoke/{CELL}/run.json")["train"] == 1
    refused = recorded.run(
        sys.executable,
        "-m",
        "collapse_laws",
        "extract",
        "--study",
        "smoke",
        "--cell",
        CELL,
        check=False,
    )
    assert refused.returncode == 2
    assert "Traceback" not in refused.stdout


def test_any_studys_cell_can_be_asked_for(project):
    assert project.plan(f"runs/smoke/{CELL}/run.json")["train"] == 1  # the active study is another


def test_paper_study_plans_eight_gpus_a_run_and_its_data_once(project):
    plan = project.plan("results/table2.csv", "--config", "study=paper")
    assert plan["prepare"] == 1
    assert plan["fetch"] == 3
    assert plan["train"] >= 40
    text = project.run(sys.executable, "-m", "snakemake", "-n", "runs", "--config", "study=paper").stdout
    assert "gpu=8" in text


def test_paper_study_without_gpus_ends_in_a_sentence_before_anything_is_fetched(project, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    command = (sys.executable, "-m", "snakemake", "results/table1.csv", "--config", "study=paper")
    done = project.run(*command, check=False)
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1].startswith("study 'paper' needs 8 GPUs a run (4 training, 4 rollout), and")
    assert "Traceback" not in done.stdout
    assert not (project.root / "models").exists()
    command = (sys.executable, "-m", "snakemake", "checked_jobs", "--config", "study=paper", "-n")
    assert "check 48" in " ".join(project.run(*command).stdout.split())


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        (["study=nowhere"], "params.yaml has no study 'nowhere'; allowed:"),
        (["extent=huge"], "extent 'huge' is not allowed; allowed: core, full."),
        (["lr=3"], "--config lr=... is not allowed"),
    ],
)
def test_bad_config_is_one_sentence(project, config, sentence):
    done = project.run(sys.executable, "-m", "snakemake", "-n", "--config", *config, check=False)
    assert done.returncode != 0
    assert sentence in done.stdout
    assert "Traceback" not in done.stdout


def test_five_hundred_cells_are_planned_within_half_a_minute(project):
    params = yaml.safe_load((project.root / "params.yaml").read_text(encoding="utf-8"))
    grid = params["studies"]["smoke"]["blocks"]["grid"]
    params["studies"]["smoke"]["blocks"] = {"grid": {**grid, "seed": list(range(125))}}
    (project.root / "params.yaml").write_text(yaml.safe_dump(params, sort_keys=False))
    start = time.perf_counter()
    plan = project.plan(TABLE, *SMOKE)
    assert plan["train"] == 500
    assert time.perf_counter() - start < 30


def test_picture_in_the_readme_shows_the_rules_that_there_are(project):
    if not shutil.which("dot"):
        pytest.skip("needs Graphviz: `make env-picture`")
    project.run(sys.executable, "-m", "snakemake", "docs/workflow.svg")
    drawn, kept = ((root / "docs/workflow.svg").read_text(encoding="utf-8") for root in (project.root, ROOT))
    labels = re.findall(r">([^<>]+)</text>", drawn)
    assert {"warmstart", "train", "extract", "tables", "page"} <= set(labels)
    assert sorted(labels) == sorted(re.findall(r">([^<>]+)</text>", kept))


def test_another_path_to_the_interpreter_trains_nothing(recorded):
    """Snakemake keeps a rule's parameters: the interpreter must not be one of them."""
    recorded.run(sys.executable, "-m", "snakemake", "--cores", "1", "--touch", *SMOKE)
    (recorded.root / "elsewhere").symlink_to(sys.prefix)
    other = recorded.root / "elsewhere" / "bin" / Path(sys.executable).name
    done = recorded.run(str(other), "-m", "snakemake", TABLE, *SMOKE, "-n")
    assert "rule train" not in done.stdout
    assert "Params have changed" not in done.stdout


@pytest.mark.parametrize("change", ["seed: 0  ", "problems: 1000"])
def test_a_changed_evaluation_scores_again_and_trains_nothing(recorded, change):
    recorded.edit("params.yaml", change, change.replace("0", "7", 1))
    plan = recorded.plan(TABLE, *SMOKE)
    assert plan["evaluate"] == 4
    assert "train" not in plan


def test_a_score_of_a_run_of_other_settings_is_made_again(recorded):
    score = recorded.root / f"evals/smoke/{CELL}/final/heldout.json"
    score.write_text(score.read_text(encoding="utf-8").replace('"settings_digest": "', '"settings_digest": "0'))
    assert recorded.plan(TABLE, *SMOKE)["evaluate"] == 1
