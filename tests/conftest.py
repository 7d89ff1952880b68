"""Shared fixtures, and the rule for CI that no test may pass unseen by skipping.

Tests skip where a program, a package or a folder is missing. With COLLAPSE_LAWS_NO_SKIP set, as .ci/run sets it, such a
skip is a failure, wherever it comes from: a mark, a call, a fixture or a module that cannot be imported.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
NO_SKIP = bool(os.environ.get("COLLAPSE_LAWS_NO_SKIP"))
# Parts of the reasons that hold on a machine where nothing is missing.
ALLOWED_SKIPS = ("there is a GPU here", "--benchmark-skip active")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real data; tests that need it skip where it is not there."""
    path = Path(os.environ.get("COLLAPSE_LAWS_SHARED", ROOT / ".." / "shared")).resolve()
    if not (path / "data").is_dir():
        pytest.skip("needs the shared benchmark data: set COLLAPSE_LAWS_SHARED to its folder")
    return path


@pytest.fixture(scope="session")
def vllm_python() -> str:
    """The interpreter of the environment that has vLLM; tests that need it skip where it is not there."""
    python = os.environ.get("COLLAPSE_LAWS_VLLM_PYTHON", str(ROOT / ".venv-vllm" / "bin" / "python"))
    if not os.access(python, os.X_OK):
        pytest.skip("needs the environment that `make env-vllm` builds")
    return python


def refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Turn a skip into a failure that gives its reason; an expected failure is no skip."""
    if not NO_SKIP or not report.skipped or hasattr(report, "wasxfail"):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    if not any(allowed in reason for allowed in ALLOWED_SKIPS):
        report.outcome = "failed"
        report.longrepr = f"COLLAPSE_LAWS_NO_SKIP is set, and this would have been skipped. {reason}"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    refuse_skip(report)
    return report
