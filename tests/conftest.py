"""Shared fixtures: where the real benchmark data and log samples lie."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real data; tests that need it skip where it is not there."""
    path = Path(os.environ.get("COLLAPSE_LAWS_SHARED", ROOT / ".." / "shared")).resolve()
    if not (path / "data").is_dir():
        message = "needs the shared benchmark data: set COLLAPSE_LAWS_SHARED to its folder"
        if os.environ.get("COLLAPSE_LAWS_NO_SKIP"):
            pytest.fail(message)
        pytest.skip(message)
    return path
