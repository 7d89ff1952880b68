"""A copy of the project with finished, empty run records: what a clone has after `dvc pull`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from collapse_laws.evaluation_request import request_of, stored_fields
from collapse_laws.fingerprint import training_fingerprint
from collapse_laws.runrecord import MANIFEST_KEYS, SNAPSHOTS, STEPS, finish, write_json
from collapse_laws.study import load_study

ROOT = Path(__file__).resolve().parents[2]
PARTS = (
    "Snakefile",
    "pyproject.toml",
    "params.yaml",
    "dvc.yaml",
    ".dvcignore",
    ".gitignore",
    "workflow",
)
FOLDERS = ("profiles", "src", "reference")


class Project:
    """A project folder and the tools run in it, each with this interpreter."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def run(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command in the folder; its output is in `stdout`, errors included."""
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "PYTHONPATH": str(self.root / "src"), "PATH": path}
        done = subprocess.run(
            command,
            cwd=self.root,
            env=environment,
            check=False,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert not check or done.returncode == 0, done.stdout
        return done

    def plan(self, *arguments: str) -> dict[str, int]:
        """How many jobs of each rule a dry run would start."""
        lines = self.run(sys.executable, "-m", "snakemake", *arguments, "-n").stdout.splitlines()
        if "Job stats:" not in lines:
            return {}
        table = lines[lines.index("Job stats:") + 3 :]
        rows = [line.split() for line in table[: table.index("")]]
        return {name: int(count) for name, count in rows}

    def edit(self, name: str, old: str, new: str) -> None:
        text = (self.root / name).read_text(encoding="utf-8")
        assert old in text
        (self.root / name).write_text(text.replace(old, new, 1), encoding="utf-8")

    def add_records(self, study: str) -> None:
        """Finished records, checkpoints, scores and starting models of a study's core cells."""
        plan = load_study(self.root / "params.yaml", study, "core")
        for cell in plan.cells:
            start = {"settings_digest": cell.start_digest, "source_fingerprint": training_fingerprint("local")}
            write_json(self.root / f"models/{study}/{cell.model}/warmstart.json", start)
            work = self.root / "work" / study / cell.name
            work.mkdir(parents=True)
            for name in (STEPS, SNAPSHOTS):
                (work / name).touch()
            manifest = dict.fromkeys(MANIFEST_KEYS) | {
                "cell": cell.name,
                "settings_digest": cell.digest,
                "source_fingerprint": training_fingerprint(cell.trainer),
                "stop_reason": "horizon",
            }
            finish(work, self.root / "runs" / study / cell.name, manifest)
            final = self.root / "checkpoints" / study / cell.name / "final"
            write_json(final / "config.json", {"cell": cell.name})
            request = request_of(plan, "heldout", cell.settings)
            score = stored_fields(request) | {"settings_digest": cell.digest, "problems": request.problems}
            write_json(self.root / f"evals/{study}/{cell.name}/final/heldout.json", score)


def copy_project(target: Path) -> Project:
    for name in PARTS:
        source = ROOT / name
        copy: Callable[..., object] = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, target / name)
    for name in FOLDERS:
        shutil.copytree(ROOT / name, target / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    (target / "slurm").symlink_to("profiles/slurm")
    shutil.copytree(ROOT / ".dvc", target / ".dvc", ignore=shutil.ignore_patterns("tmp", "cache", "config.local"))
    return Project(target)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """The project without any record."""
    return copy_project(tmp_path)


@pytest.fixture
def recorded(project: Project) -> Project:
    """The project with current records of the smoke study."""
    project.add_records("smoke")
    return project
