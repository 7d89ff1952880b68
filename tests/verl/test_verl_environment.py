"""The GPU environment's pins against what the installed verl itself asks for."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

pytest.importorskip("verl", reason="needs the extra `verl`")

ROOT = Path(__file__).resolve().parents[2]


def pins() -> dict[str, Requirement]:
    environment = yaml.safe_load((ROOT / "workflow" / "envs" / "verl.yaml").read_text())
    listed = next(entry["pip"] for entry in environment["dependencies"] if isinstance(entry, dict))
    second_step = (ROOT / "workflow" / "envs" / "verl.post-deploy.sh").read_text()
    listed = [
        *listed,
        *re.findall(r"^pip install --no-build-isolation (\S+)$", second_step, re.MULTILINE),
    ]
    return {requirement.name: requirement for requirement in map(Requirement, listed)}


def version(requirement: Requirement) -> str:
    (specifier,) = requirement.specifier
    assert specifier.operator == "==", requirement
    return specifier.version


def test_every_line_is_one_exact_version() -> None:
    assert all(version(requirement) for requirement in pins().values())


def test_the_pins_are_those_of_verls_own_extras() -> None:
    chosen = pins()
    extras = {*chosen["verl"].extras, "flash-attn-cu130torch211"}
    known = set(metadata("verl").get_all("Provides-Extra"))
    assert extras <= known
    required: dict[str, str] = {}
    for text in metadata("verl").get_all("Requires-Dist"):
        requirement = Requirement(text)
        if requirement.marker is None:
            continue
        if any(requirement.marker.evaluate({"extra": extra}) for extra in extras):
            exact = [s.version for s in requirement.specifier if s.operator == "=="]
            if exact:
                required[requirement.name] = exact[0]
    assert required.keys() >= {"torch", "vllm", "transformers", "cupy-cuda13x", "flash-attn"}
    for name, exact in required.items():
        if name in chosen:
            assert version(chosen[name]) == exact, name
    for name in ("torch", "vllm", "transformers", "cupy-cuda13x", "flash-attn"):
        assert name in chosen


def test_what_both_environments_have_is_pinned_alike() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    driver = [
        *project["dependencies"],
        *(line for lines in project["optional-dependencies"].values() for line in lines),
    ]
    versions = {r.name: r for r in map(Requirement, driver) if r.specifier}
    # the GPU side follows verl's extra, the CPU side newer releases: torch and transformers differ
    # on purpose
    for name, requirement in pins().items():
        if name in versions and name not in ("torch", "transformers"):
            assert version(requirement) == version(versions[name]), name
