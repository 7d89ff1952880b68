"""The source fingerprint: what it covers and ignores, the same on every Python version."""

from __future__ import annotations

import ast
import hashlib
from pathlib import Path

import pytest

from collapse_laws.fingerprint import (
    code_text,
    is_current,
    training_fingerprint,
    training_sources,
)

SOURCE = '''"""Doc."""
from __future__ import annotations
def f(x: int = 1, *, y=None) -> str:
    "doc"
    return f"{x!r:>{y}}" + "a" "b"  # comment
class A(B, c=1):
    z = [i async for i in x if i] or ...
    def g(self): "only a docstring"
'''


def text(source: str) -> str:
    return code_text(ast.parse(source))


def test_comments_docstrings_and_layout_do_not_count():
    other = SOURCE.replace('"""Doc."""', "").replace("# comment", "").replace('"doc"', '"other"')
    assert text(other.replace(", *, y", ",  *,\n  y")) == text(SOURCE)


@pytest.mark.parametrize(("old", "new"), [("= 1", "= 2"), ('"a"', '"c"'), ("!r", "!s"), ("if i", "if x")])
def test_code_counts(old, new):
    assert text(SOURCE.replace(old, new, 1)) != text(SOURCE)


def test_digest_of_a_known_source_is_the_same_on_every_python():
    assert hashlib.sha256(text(SOURCE).encode()).hexdigest()[:16] == "6a912e84b63c3998"


def test_sources_follow_imports_and_leave_out_what_only_describes(tmp_path: Path):
    package = tmp_path / "collapse_laws"
    (package / "tasks").mkdir(parents=True)
    files = {
        "learner.py": "from collapse_laws import grpo\nfrom collapse_laws.tasks import make",
        "warmstart.py": "def f():\n    from .policy import x",
        "grpo.py": "import collapse_laws.study",
        "policy.py": "",
        "study.py": "import collapse_laws.figures",
        "figures.py": "",
        "tasks/__init__.py": "from collapse_laws.tasks.arithmetic import make",
        "tasks/arithmetic.py": "",
    }
    for name, body in files.items():
        (package / name).write_text(body)
    assert training_sources("local", package) == (
        "grpo.py",
        "learner.py",
        "policy.py",
        "tasks/__init__.py",
        "tasks/arithmetic.py",
        "warmstart.py",
    )


@pytest.mark.parametrize("trainer", ["local", "verl"])
def test_no_drawing_and_no_analysis_decides_training(trainer):
    sources = training_sources(trainer)
    assert not [name for name in sources if name.startswith(("figures", "laws", "report", "tables"))]
    assert len(training_fingerprint(trainer)) == 16


def test_verl_sources_are_what_decides_data_updates_and_the_end_of_a_run():
    assert training_sources("verl") == (
        "protocol.py",
        "stopping.py",
        "tasks/benchmark_registry.py",
        "tasks/benchmarks.py",
        "tasks/verl_checker.py",
        "verl/__init__.py",
        "verl/branch.py",
        "verl/data.py",
        "verl/ending.py",
        "verl/hooks.py",
        "verl/overrides.py",
        "verl/probe.py",
        "verl/reward.py",
    )


def test_record_is_current_only_with_both_names(tmp_path: Path):
    record = tmp_path / "run.json"
    assert not is_current(record, "a", "b")
    record.write_text('{"settings_digest": "a", "source_fingerprint": "b"}')
    assert is_current(record, "a", "b")
    assert not is_current(record, "x", "b")
    assert not is_current(record, "a", "x")
    record.write_text('{"settings_digest": "a", "sour')
    assert not is_current(record, "a", "b")
