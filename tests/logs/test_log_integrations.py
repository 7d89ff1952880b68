"""The recorder and the verl hook, without the frameworks."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import log_variants as variants
import pytest

from collapse_laws.advise.diagnose import diagnose
from collapse_laws.collapse import classify_run
from collapse_laws.errors import UserError
from collapse_laws.integrations import verl as hook
from collapse_laws.integrations.recorder import Recorder
from collapse_laws.logs import read_log
from collapse_laws.runrecord import read_run


def test_recorder_writes_a_record_that_diagnose_reads(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "run", 4, 1e-6, "mine")
    stopped = None
    for t, reward in enumerate(variants.REWARDS):
        recorder.update(t, {"reward": reward, "entropy": 0.1, "learning_rate": 1e-6, "eval_reward": 0.9})
        if recorder.collapsed and stopped is None:
            stopped = t
    recorder.close()
    assert stopped == 44  # the batch after the collapsed one is complete
    found = diagnose(read_log(tmp_path / "run")).to_json()
    assert (
        found["format"],
        found["sync_interval"],
        found["collapse_index"],
        found["partial_drop_index"],
    ) == ("run_record", 4, 9, 8)
    assert read_log(tmp_path / "run").record.manifest["stop_reason"] == "collapse"
    for name in ("steps.jsonl", "snapshots.jsonl", "run.json"):
        assert diagnose(read_log(tmp_path / "run" / name)).to_json()["collapse_index"] == 9


def test_a_cell_of_a_study_is_judged_as_extract_judges_it(tmp_path: Path) -> None:
    """At S=2 one bad batch of many is a drop of that batch, and none of the four that the criterion averages."""
    recorder = Recorder(tmp_path, 2, 1e-6, "mine")
    for t in range(80):
        recorder.update(t, {"reward": 0.1 if t in (32, 33) else 0.8})
    recorder.close()
    assert diagnose(read_log(tmp_path)).outcome.first_drop_index == 16
    manifest = json.loads((tmp_path / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps(manifest | {"scale": "proxy"}))
    found = diagnose(read_log(tmp_path)).outcome
    assert found.first_drop_index is None
    assert found.label == classify_run(read_run(tmp_path)).label


def test_record_in_progress_is_read(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "run", 4, 1e-6, "mine")
    for t in range(20):
        recorder.update(t, {"reward": variants.REWARDS[t]})
    log = read_log(tmp_path / "run")
    assert log.sync_interval == 4
    assert diagnose(log).to_json()["label"] == "undecided"
    recorder.close()


def test_verl_hook_records_each_update_and_ends_the_job(tmp_path: Path) -> None:
    class Aggregator:
        def __init__(self) -> None:
            self.seen = 0

        def add_step_metrics(self, metrics: dict, sample_count: int, timestamp: float | None = None) -> None:
            self.seen += 1

    caught = []
    previous = signal.signal(signal.SIGTERM, lambda *_: caught.append(True))
    try:
        environment = {
            hook.DIRECTORY: str(tmp_path / "run"),
            hook.INTERVAL: "4",
            hook.RATE: "1e-6",
            hook.STOP_PID: str(os.getpid()),
        }
        hook.install(Aggregator, environment)
        hook.install(Aggregator, environment)  # twice is once
        aggregator = Aggregator()
        for t, reward in enumerate(variants.REWARDS[:45]):
            aggregator.add_step_metrics({"training/global_step": t + 1, "critic/score/mean": reward, "note": "x"}, 64)
    finally:
        signal.signal(signal.SIGTERM, previous)
    assert aggregator.seen == 45
    assert caught == [True]
    assert diagnose(read_log(tmp_path / "run")).to_json()["collapse_index"] == 9


def test_verl_hook_names_a_missing_variable() -> None:
    with pytest.raises(UserError, match="COLLAPSE_LAWS_RECORD"):
        hook.recorder_from({})
