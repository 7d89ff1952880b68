"""In CI a skip for want of something is a failure."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).resolve().parents[1] / "conftest.py"
TESTS = """
import pytest
@pytest.mark.skipif(True, reason="needs a browser")
def test_mark(): pass
def test_call(): pytest.skip("needs a program")
def test_fixture(shared): pass
@pytest.mark.skipif(True, reason="there is a GPU here")
def test_allowed(): pass
@pytest.mark.xfail
def test_known(): assert False
"""
MODULE = "import pytest\npytest.importorskip('no_such_package', reason='needs a package')\n"


@pytest.mark.parametrize(
    ("no_skip", "name", "counts"),
    [
        ("", "test_here.py", "4 skipped, 1 xfailed in"),
        ("1", "test_here.py", "1 failed, 1 skipped, 1 xfailed, 2 errors in"),  # at setup a failure is an error
        ("", "test_module.py", "1 skipped in"),
        ("1", "test_module.py", "1 error in"),
    ],
)
def test_a_skip_fails_where_none_is_allowed(tmp_path: Path, no_skip: str, name: str, counts: str):
    shutil.copy(CONFTEST, tmp_path)
    (tmp_path / "test_here.py").write_text(TESTS)
    (tmp_path / "test_module.py").write_text(MODULE)
    nowhere = str(tmp_path / "nowhere")
    environment = {**os.environ, "COLLAPSE_LAWS_NO_SKIP": no_skip, "COLLAPSE_LAWS_SHARED": nowhere}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), name]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert counts in done.stdout
    assert not no_skip or "this would have been skipped. Skipped: needs " in done.stdout
