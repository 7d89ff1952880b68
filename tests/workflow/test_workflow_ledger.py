"""DVC's side: a clone pulls all from the repository itself; the ledger names what changed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
GIT = ("git", "-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main")


def test_cells_yaml_is_what_params_expand_to(project):
    project.run(sys.executable, "-m", "collapse_laws", "cells", "--check")


def test_every_recorded_study_has_its_stage():
    ledger = yaml.safe_load((ROOT / "workflow/cells.yaml").read_text(encoding="utf-8"))
    stages = yaml.safe_load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
    assert {study for study, cells in ledger["cells"].items() if cells} <= set(stages)


def test_clone_pulls_and_trains_nothing(recorded, tmp_path_factory):
    recorded.edit("params.yaml", "    recorded: full ", "    recorded: []  ")  # of the proxy
    recorded.edit("params.yaml", "  smoke:\n", "  smoke:\n    recorded: core\n")
    recorded.run(sys.executable, "-m", "collapse_laws", "cells", "--write")
    recorded.run(*GIT, "init", "-q")
    recorded.run(*GIT, "add", "-A")
    recorded.run("dvc", "commit", "-f", "-q", "start", "smoke")
    recorded.run("dvc", "push", "-q")
    recorded.run(*GIT, "add", "-A")
    recorded.run(*GIT, "commit", "-qm", "records")
    assert not recorded.run("git", "ls-files", "runs").stdout
    clone = type(recorded)(tmp_path_factory.mktemp("clone") / "project")
    recorded.run("git", "clone", "-q", ".", str(clone.root))
    clone.run("dvc", "pull", "-q")
    assert not {"train", "evaluate", "warmstart"} & set(clone.plan("results/table1.csv", "--config", "study=smoke"))
    clone.edit("workflow/cells.yaml", "      seed: 11", "      seed: 12")
    changed = clone.run("dvc", "status", "start", "smoke").stdout
    assert changed.count("smoke@") == 1


def test_plots_of_the_active_study_are_drawn_from_its_tables(project):
    header = "arm,model,sync_interval,lr,seed,label,quantity,t,value,lr_budget"
    figures = project.root / "results/proxy/figures"
    figures.mkdir(parents=True)
    (figures / "by_budget.csv").write_text(f"{header}\nvanilla,tiny,8,4e-3,11,collapsed,reward,0,0.5,0.032\n")
    (project.root / "results/table1.csv").write_text(
        "cell,arm,label,sync_interval,lr,collapse_step\nc,a,collapsed,8,1,16\n"
    )
    project.run(*GIT, "init", "-q")
    found = json.loads(project.run("dvc", "plots", "show", "--json").stdout)["data"]
    assert set(found) == {"reward against cumulative learning rate", "collapse clock"}
    for plot in found.values():
        (spec,) = plot
        assert "<DVC_METRIC" not in json.dumps(spec["content"])
