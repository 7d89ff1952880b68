"""Fingerprint of the source that decides what a training run computes.

Two runs with the same settings and the same fingerprint were made by the same program. The files
are found, not listed: the modules that a trainer's entry modules import, directly or through one
another, less those that only describe, check or write. What is hashed is the syntax tree without
docstrings, so a comment, a docstring or a reformatting retrains nothing, and any change of code
does. The digest does not depend on the Python version. [declared]
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent

# trainer -> modules from which everything it computes can be reached
ENTRY_MODULES = {
    "local": ("learner.py", "warmstart.py"),
    # what verl is told, what it reads and in which order, what is wrapped around its update, when it ends
    "verl": (
        "verl/overrides.py",
        "verl/reward.py",
        "verl/data.py",
        "verl/hooks.py",
        "verl/probe.py",
        "verl/ending.py",
    ),
}
# Imported by trainers, without a say in what they compute: settings enter through their digest,
# records by their schema.
_NOT_TRAINING = {
    "__init__.py",
    "errors.py",
    "fingerprint.py",
    "runrecord.py",
    "study.py",
}
# The local learner's tasks, met only because a module lies in their package, and a check of files.
_NOT_OF = {"local": frozenset(), "verl": frozenset({"tasks/__init__.py", "verl/prepared.py"})}


def training_sources(trainer: str = "local", package: Path = PACKAGE) -> tuple[str, ...]:
    """The files, relative to `package` and sorted, whose code decides what `trainer` ("local" or
    "verl") computes.
    """
    found: set[str] = set()
    waiting = list(ENTRY_MODULES[trainer])
    while waiting:
        name = waiting.pop()
        if name in found or name in _NOT_TRAINING or name in _NOT_OF[trainer]:
            continue
        found.add(name)
        waiting.extend(_imports(name, package))
    return tuple(sorted(found))


def _imports(name: str, package: Path) -> list[str]:
    """Files of the package that one of its files imports, anywhere in its body, and the packages they lie in."""
    modules = []
    for node in ast.walk(_parse(package / name)):
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = (package.name, *Path(name).parent.parts)
                base = ".".join((*parents[: len(parents) - node.level + 1], *filter(None, [base])))
            modules += [base, *(f"{base}.{alias.name}" for alias in node.names)]
    files = []
    for module in modules:
        top, *parts = module.split(".")
        if top != package.name:
            continue
        stem = Path(*parts)
        candidates = [stem.with_suffix(".py")] if parts else []
        candidates += [Path(*parts[:depth], "__init__.py") for depth in range(len(parts) + 1)]
        files += [path.as_posix() for path in candidates if (package / path).is_file()]
    return files


@cache
def training_fingerprint(trainer: str = "local", package: Path = PACKAGE) -> str:
    """16 hex digits of the SHA-256 of the code in `training_sources(trainer)`."""
    return code_digest(training_sources(trainer, package), package)


def code_digest(names: Iterable[str], package: Path = PACKAGE) -> str:
    """16 hex digits of the SHA-256 of the code in these files of the package."""
    digest = hashlib.sha256()
    for name in names:
        digest.update(f"{name}\0{code_text(_parse(package / name))}\0".encode())
    return digest.hexdigest()[:16]


def learner_fingerprint() -> str:
    """Fingerprint of the local learner, as its run.json records it in `source_fingerprint`."""
    return training_fingerprint("local")


def is_current(record: Path, settings_digest: str, source_fingerprint: str) -> bool:
    """Whether the JSON file `record` names these two; False where it is missing, damaged or names others."""
    try:
        manifest = json.loads(record.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False
    return isinstance(manifest, dict) and (
        manifest.get("settings_digest") == settings_digest and manifest.get("source_fingerprint") == source_fingerprint
    )


def _parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def code_text(node: ast.AST) -> str:
    """A syntax tree as text, without docstrings, positions and empty fields (which Python
    versions write differently).
    """
    if isinstance(node, ast.Constant):
        return f"{type(node.value).__name__}:{node.value!r}"
    fields = []
    for name, value in ast.iter_fields(node):
        if name == "body" and _has_docstring(node):
            value = value[1:]
        if isinstance(value, list):
            value = ",".join(code_text(item) if isinstance(item, ast.AST) else repr(item) for item in value)
        elif isinstance(value, ast.AST):
            value = code_text(value)
        elif value is not None:
            value = repr(value)
        if value:
            fields.append(f"{name}={value}")
    return f"{type(node).__name__}({';'.join(fields)})"


def _has_docstring(node: ast.AST) -> bool:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None
