"""A real TRL run through the callback. The environment of its own is COLLAPSE_LAWS_TRL_PYTHON, by default
.venv-trl/bin/python.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from collapse_laws.advise.diagnose import diagnose
from collapse_laws.logs import read_log

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.trl
@pytest.mark.slow
def test_real_grpo_run_stops_at_collapse_and_all_its_logs_agree(tmp_path: Path) -> None:
    python = Path(os.environ.get("COLLAPSE_LAWS_TRL_PYTHON", ROOT / ".venv-trl" / "bin" / "python"))
    if not python.exists():
        pytest.skip(f"needs a Python with trl: {python} is missing; `make env-trl` builds it")
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "src"),
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    printed = tmp_path / "stdout.log"  # dictionaries alone: the bars go to stderr
    with open(printed, "wb") as stdout:
        done = subprocess.run(
            [python, Path(__file__).with_name("trl_tiny_run.py"), tmp_path],
            env=environment,
            stdout=stdout,
            stderr=subprocess.PIPE,
            timeout=600,
            check=False,
        )
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    found = diagnose(read_log(tmp_path / "record")).to_json()
    assert found["label"] == "collapsed"
    assert found["sync_interval"] == 2
    state = read_log(tmp_path / "trainer_state.json", sync_interval=2)
    assert state.series.updates < 40  # the callback stopped it
    text = read_log(printed, sync_interval=2)
    assert any("inferred by counting" in note for note in text.notes)
    for log in (state, read_log(tmp_path / "out", sync_interval=2), text):
        again = diagnose(log).to_json()
        assert (again["collapse_index"], again["collapse_step"]) == (
            found["collapse_index"],
            found["collapse_step"],
        ), log.format
