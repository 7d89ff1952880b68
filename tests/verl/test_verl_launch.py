"""The supervisor with a stand-in for verl: what it stops, refuses, resumes and leaves behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl", reason="needs the extra `verl`")

from cpu_verl_study import cpu_cell, prepared_folder

from collapse_laws.cli import main
from collapse_laws.errors import UserError
from collapse_laws.runrecord import read_run
from collapse_laws.study import Cell
from collapse_laws.verl import gpus, launch

HERE, ROOT = Path(__file__).resolve().parent, Path(__file__).resolve().parents[2]
QUICK = launch.Limits(stall_seconds=60, grace_seconds=5, poll_seconds=0.05)


def lines_come(path: Path, count: int) -> bool:
    """Wait for so many lines, half a minute at most."""
    for _ in range(600):
        if path.exists() and len(path.read_text().splitlines()) >= count:
            return True
        time.sleep(0.05)
    return False


@pytest.fixture
def cell() -> Cell:
    return cpu_cell(horizon_updates=16)


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, Path]:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    prepared_folder(tmp_path / "data")
    names = {
        "model_dir": "model",
        "work": "work",
        "checkpoints": "checkpoints",
        "out": "out",
        "data": "data",
    }
    return {key: tmp_path / name for key, name in names.items()}


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(launch, "MAIN_MODULE", "fake_trainer")
    monkeypatch.setenv("PYTHONPATH", str(HERE))

    def set_plan(**values: Any) -> None:
        monkeypatch.setenv("FAKE_PLAN", json.dumps({"rewards": [0.5], **values}))

    set_plan()
    return set_plan


def test_a_run_to_its_horizon_leaves_record_policy_and_lines(cell: Cell, folders: dict[str, Path], plan: Any) -> None:
    assert launch.train(cell, **folders, limits=QUICK) == "horizon"
    record = read_run(folders["out"])
    assert record.steps["t"].tolist() == list(range(16))
    assert record.steps["lag"].tolist() == [t % 4 for t in range(16)]
    assert record.snapshots["reward_mean"].tolist() == [0.5] * 4
    assert record.manifest["settings_digest"] == cell.digest
    assert record.manifest["updates"] == 16
    assert record.manifest["timings"]["attempts_from_update"] == [0]
    assert (folders["checkpoints"] / "final" / "weights").read_text() == "4"
    assert (folders["out"] / "attempts" / "000.jsonl").exists()
    assert not folders["work"].exists()


def test_it_stops_when_the_reward_stays_down(folders: dict[str, Path], plan: Any) -> None:
    cell = cpu_cell(horizon_updates=400, stop_patience_snapshots=2, stop_patience_lr_budget=0.0)
    plan(rewards=[0.6, 0.6, 0.1, 0.1, 0.1], pace=0.02, detached=True)
    assert launch.train(cell, **folders, limits=QUICK) == "collapse"
    record = read_run(folders["out"])
    assert record.manifest["stop_reason"] == "collapse"
    assert len(record.steps) < 400
    assert len(record.snapshots) >= 4
    assert gpus.marked_processes(launch.RUN_VARIABLE, str(folders["work"])) == []


def test_a_learner_without_a_finite_gradient_has_failed(folders: dict[str, Path], plan: Any) -> None:
    plan(no_gradient=True, pace=0.05)
    assert launch.train(cpu_cell(horizon_updates=400), **folders, limits=QUICK) == "failed"


def test_a_crash_is_told_and_the_next_start_goes_on_from_the_checkpoint(
    cell: Cell, folders: dict[str, Path], plan: Any
) -> None:
    plan(crash_after=10)  # the checkpoint after update 7 is the last
    with pytest.raises(UserError, match=r"exit code 7 after 11 of 16 updates; its log is .*console.log"):
        launch.train(cell, **folders, limits=QUICK)
    assert not folders["out"].exists()
    assert launch.train(cell, **folders, limits=QUICK) == "horizon"
    record = read_run(folders["out"])
    assert record.steps["t"].tolist() == list(range(16))
    assert record.manifest["timings"]["attempts_from_update"] == [0, 8]
    lines = [json.loads(line) for line in (folders["out"] / "attempts" / "000.jsonl").read_text().splitlines()]
    assert lines[-1]["t"] == 10, "the branch that was given up stays on file"


def test_a_stalled_engine_is_noticed(cell: Cell, folders: dict[str, Path], plan: Any) -> None:
    plan(hang_after=5)
    limits = launch.Limits(stall_seconds=3, grace_seconds=2, poll_seconds=0.05)
    with pytest.raises(UserError, match=r"no update for 3 seconds after 6 updates, so it was ended"):
        launch.train(cell, **folders, limits=limits)
    assert gpus.marked_processes(launch.RUN_VARIABLE, str(folders["work"])) == []


def test_a_wrong_lag_ends_the_run_loudly(cell: Cell, folders: dict[str, Path], plan: Any) -> None:
    plan(stale_at=9)
    with pytest.raises(UserError, match="was stopped: update 9 learned from the wrong version"):
        launch.train(cell, **folders, limits=QUICK)
    assert not folders["out"].exists()


def test_sigterm_ends_the_trainer_and_a_later_start_goes_on(cell: Cell, folders: dict[str, Path], plan: Any) -> None:
    plan(hang_after=9)
    lines = folders["work"] / "attempts" / "000" / "updates.jsonl"

    def terminate() -> None:
        if lines_come(lines, 10):
            os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=terminate, daemon=True)
    thread.start()
    with pytest.raises(launch.Preempted):
        launch.train(cell, **folders, limits=QUICK)
    thread.join()
    assert signal.getsignal(signal.SIGTERM) == before
    assert gpus.marked_processes(launch.RUN_VARIABLE, str(folders["work"])) == []
    assert launch.train(cell, **folders, limits=QUICK) == "horizon"
    assert read_run(folders["out"]).manifest["timings"]["attempts_from_update"] == [0, 8]


def test_a_second_start_is_refused_and_a_killed_supervisor_leaves_no_orphan(
    cell: Cell, folders: dict[str, Path], plan: Any
) -> None:
    plan(hang_after=9, detached=True)
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); from pathlib import Path; from cpu_verl_study import cpu_cell; "
        "from collapse_laws.verl import launch; launch.MAIN_MODULE = 'fake_trainer'; b = Path(sys.argv[2]); "
        "launch.train(cpu_cell(horizon_updates=16), model_dir=b/'model', work=b/'work', checkpoints=b/'checkpoints', "
        "out=b/'out', data=b/'data')"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), str(ROOT / "src")])}
    supervisor = subprocess.Popen(
        [sys.executable, "-c", program, str(HERE), str(folders["work"].parent)], env=environment
    )
    lines = folders["work"] / "attempts" / "000" / "updates.jsonl"
    assert lines_come(lines, 10)
    with pytest.raises(UserError, match="is being trained already"):
        launch.train(cell, **folders, limits=QUICK)
    supervisor.kill()
    supervisor.wait()
    orphans = gpus.marked_processes(launch.RUN_VARIABLE, str(folders["work"]))
    assert len(orphans) == 2
    assert launch.train(cell, **folders, limits=QUICK) == "horizon"
    assert not any(
        Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_bytes() for pid in orphans
    )
    assert read_run(folders["out"]).steps["t"].tolist() == list(range(16))


def test_killed_between_last_update_and_last_checkpoint_makes_those_updates_again(
    cell: Cell, folders: dict[str, Path], plan: Any
) -> None:
    plan(crash_after=15)
    with pytest.raises(UserError, match="exit code 7 after 16 of 16 updates"):
        launch.train(cell, **folders, limits=QUICK)
    (folders["work"] / "states" / launch.TRACKER).write_text("3")  # so global_step_4 is half-written
    assert launch.train(cell, **folders, limits=QUICK) == "horizon"
    assert read_run(folders["out"]).manifest["timings"]["attempts_from_update"] == [0, 12]


def test_a_start_that_was_cut_short_before_it_began_is_no_obstacle(
    cell: Cell, folders: dict[str, Path], plan: Any
) -> None:
    (folders["work"] / "attempts" / "000").mkdir(parents=True)
    assert launch.train(cell, **folders, limits=QUICK) == "horizon"


def test_a_run_in_progress_goes_on_only_under_what_it_started_with(
    cell: Cell, folders: dict[str, Path], plan: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan(crash_after=10)
    with pytest.raises(UserError, match="exit code 7"):
        launch.train(cell, **folders, limits=QUICK)
    other = cpu_cell(horizon_updates=16, grad_clip=0.5)
    told = rf"settings_digest was {cell.digest} and is {other.digest} now; restore .*, or remove the folder"
    with pytest.raises(UserError, match=told):
        launch.train(other, **folders, limits=QUICK)
    with monkeypatch.context() as patch:
        patch.setattr(launch, "training_fingerprint", lambda _: "0" * 16)
        with pytest.raises(UserError, match=r"source_fingerprint was \w{16} and is 0{16} now"):
            launch.train(cell, **folders, limits=QUICK)
    assert not folders["out"].exists()
    assert launch.train(cell, **folders, limits=QUICK) == "horizon"


def test_a_run_in_progress_that_does_not_say_what_it_started_with_is_refused(
    cell: Cell, folders: dict[str, Path], plan: Any
) -> None:
    plan(crash_after=10)
    with pytest.raises(UserError, match="exit code 7"):
        launch.train(cell, **folders, limits=QUICK)
    (folders["work"] / launch.IDENTITY).unlink()
    with pytest.raises(UserError, match="settings_digest was not written down"):
        launch.train(cell, **folders, limits=QUICK)


def test_training_again_replaces_the_final_policy(cell: Cell, folders: dict[str, Path], plan: Any) -> None:
    for name in ("final", ".final"):  # of the run before, and of an end that was killed while it copied
        (folders["checkpoints"] / name).mkdir(parents=True)
        (folders["checkpoints"] / name / "old").touch()
    assert launch.train(cell, **folders, limits=QUICK) == "horizon"
    assert [path.name for path in folders["checkpoints"].iterdir()] == ["final"]
    assert [path.name for path in (folders["checkpoints"] / "final").iterdir()] == ["weights"]
    assert read_run(folders["out"]).manifest["final_checkpoint_updates"] == 16


def test_a_run_that_saved_nothing_leaves_no_policy(folders: dict[str, Path], plan: Any) -> None:
    (folders["checkpoints"] / "final").mkdir(parents=True)
    plan(no_gradient=True, pace=0.05)
    assert launch.train(cpu_cell(horizon_updates=400, checkpoint_every_updates=400), **folders, limits=QUICK)
    assert not (folders["checkpoints"] / "final").exists()
    assert read_run(folders["out"]).manifest["final_checkpoint_updates"] is None


def test_the_final_policy_is_of_the_last_complete_checkpoint(tmp_path: Path) -> None:
    states, checkpoints = tmp_path / "states", tmp_path / "checkpoints"
    for version in (3, 4):
        weights = states / f"global_step_{version}" / "actor" / "huggingface"
        weights.mkdir(parents=True)
        (weights / "weights").write_text(str(version))
    (states / launch.TRACKER).write_text("3")  # ended while it saved the next one
    assert launch.export_final(states, checkpoints, launch.checkpointed_version(states)) == 3
    assert (checkpoints / "final" / "weights").read_text() == "3"


def test_a_tracker_that_was_cut_short_means_the_newest_checkpoint(tmp_path: Path) -> None:
    for version in (9, 10):
        (tmp_path / f"global_step_{version}").mkdir()
    (tmp_path / launch.TRACKER).touch()
    assert launch.checkpointed_version(tmp_path) == 10


def test_a_lost_checkpoint_is_told(tmp_path: Path) -> None:
    (tmp_path / launch.TRACKER).write_text("3")
    with pytest.raises(UserError, match="lacks its checkpoint global_step_3"):
        launch.checkpointed_version(tmp_path)


# GPUs


@pytest.fixture
def no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    for name in ("SLURM_JOB_ID", "SLURM_GPUS_ON_NODE", "SLURM_STEP_GPUS", "SLURM_JOB_GPUS"):
        monkeypatch.delenv(name, raising=False)


PAPER = [
    "train",
    "--params",
    str(ROOT / "params.yaml"),
    "--study",
    "paper",
    "--cell",
    "vanilla_qwen8b_S16_eta1e-7_seed42",
]


def test_without_gpus_one_sentence_and_nothing_is_written(
    no_gpus: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(PAPER) == 2
    error = capsys.readouterr().err
    assert "needs 8 GPUs a run (4 training, 4 rollout), and there are none here" in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_missing_model_and_data_are_told_with_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3,4,5,6,7")
    assert main(PAPER) == 2
    assert "holds no model; `collapse-laws prepare --study paper --model qwen8b`" in capsys.readouterr().err
    model = tmp_path / "models" / "paper" / "qwen8b"
    model.mkdir(parents=True)
    (model / "config.json").write_text("{}")
    assert main(PAPER) == 2
    assert "run `collapse-laws prepare --study paper` first" in capsys.readouterr().err


def test_a_run_from_another_model_than_its_settings_name_is_refused(
    cell: Cell, folders: dict[str, Path], plan: Any
) -> None:
    source = {"hub_id": "Qwen/Qwen3-8B", "revision": "main", "commit": "c"}
    (folders["model_dir"] / "source.json").write_text(json.dumps(source))
    with pytest.raises(UserError, match="holds Qwen/Qwen3-8B at main, but"):
        launch.train(cell, **folders, limits=QUICK)
    assert not folders["work"].exists()


def test_check_only_composes_and_counts_the_slurm_jobs_gpus(
    no_gpus: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*PAPER, "--check-only"]) == 0
    assert "no Slurm job here" in capsys.readouterr().out
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_GPUS_ON_NODE", "8")
    assert main([*PAPER, "--check-only"]) == 0
    assert "8 GPUs granted by Slurm" in capsys.readouterr().out
    monkeypatch.setenv("SLURM_GPUS_ON_NODE", "4")
    assert main([*PAPER, "--check-only"]) == 2
    assert "needs 8 GPUs, and this Slurm job was granted 4" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_check_only_is_refused_for_the_local_learner(capsys: pytest.CaptureFixture[str]) -> None:
    argv = [
        "train",
        "--params",
        str(ROOT / "params.yaml"),
        "--study",
        "smoke",
        "--check-only",
        "--cell",
    ]
    assert main([*argv, "recomputed_tiny_S2_eta1e-3_seed11"]) == 2
    assert "trainer: verl" in capsys.readouterr().err
