"""What watch, diagnose and calibrate say, and that every bad input is answered in one sentence."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import log_variants as variants
import pytest

from collapse_laws.advise.calibration import published_brackets
from collapse_laws.advise.follow import follow
from collapse_laws.advise.watch import Watcher
from collapse_laws.cli import main
from collapse_laws.errors import UserError

QUIET = ["--poll", "0.02", "--until-idle", "0.1"]


def jsonl(path: Path, rewards: Iterable[float], first: int = 1, **more: float) -> Path:
    path.write_text(
        "".join(json.dumps({"step": s, "reward": r, "lr": 1e-6, **more}) + "\n" for s, r in enumerate(rewards, first))
    )
    return path


def watch(path: Path, *arguments: str) -> int:
    return main(["watch", str(path), "--sync-interval", "4", *QUIET, *arguments])


def test_a_score_in_a_sample_is_no_reward_once_the_reward_is_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prose = [f"(pid={i}) ## Step {i}: the value: 25\n" for i in range(1, 6)]
    healthy = [variants.verl_line(s) + "\n" for s in range(1, 33)]
    path = tmp_path / "log"
    path.write_text("".join(prose + healthy))
    assert watch(path) == 0
    out = capsys.readouterr().out
    assert "what was read under 'value' is left out" in out
    assert "suspected" not in out


@pytest.mark.parametrize(
    ("text", "arguments", "said"),
    [
        (None, ["--reward-key", "nope"], "no numbers under --reward-key 'nope'; it has: 'step', 'reward', 'lr'"),
        (None, ["--step-key", "nope"], "no numbers under --step-key 'nope'"),
        ('{"step": 1, "loss": 0.1}\n', [], "no reward that is known by name"),
        ('{"reward": 0.1, "lr": 1e-6}\n', [], "no step that is known by name"),
        ("hello world\n", [], "no reward that is known by name"),
        ('{"step": 1, "reward": NaN}\n', [], "no record with a step above 0 and a finite reward"),
    ],
)
def test_watch_says_that_it_understands_nothing(
    text: str | None, arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "log"
    if text is None:
        jsonl(path, [0.5] * 60)
    else:
        path.write_text(text * 60)
    assert watch(path, *arguments) == 2
    err = capsys.readouterr().err.splitlines()
    assert said in err[-1]
    assert len(err) <= 2
    if "hello" not in str(text) and "NaN" not in str(text):
        assert "warning: 50 rows were read and none can be used" in err[0]


@pytest.mark.parametrize("head", ["step,reward\n", "\ufeffstep,reward\n1,0.4\n2,0.4\n"])
def test_watch_reads_a_table_that_begins_with_its_header_alone(head: str, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(head)
    lines = follow(path, 0.01, 0.3)
    with open(path, "a") as file:
        file.writelines(f"{s},{r}\n" for s, r in enumerate(variants.REWARDS, 1))
    assert watch(path) == 1
    watcher = Watcher(path, "text", 4, None, published_brackets(), sure=False)
    for line in lines:
        watcher.feed(line or "")
    watcher.finish()
    assert watcher.outcome is not None
    assert watcher.outcome.collapse_index == 9


def test_watch_names_every_clock_and_counts_no_record_too_many(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert watch(jsonl(tmp_path / "log", [0.5] * 12)) == 0
    out = capsys.readouterr().out
    assert out.count("S*eta = 4 * 1e-06 = 4e-06 is at or above") == 2
    assert out.count("clock: c2 in") == 2
    assert "batch 0 update 4 reward 0.5 S*eta 4e-06 spent 4e-06, updates left to the clock: 28 (Llama" in out
    assert "60 (Qwen3-8B)" in out


def test_a_run_that_begins_anew_leaves_nothing_in_the_open_batch() -> None:
    watcher = Watcher(Path("x"), "jsonl", 4, None, published_brackets())
    for step, reward in [(1, 0.1), (2, 0.1), (3, 0.1), (1, 0.5), (2, 0.5), (3, 0.5), (4, 0.5), (5, 0.5)]:
        watcher.feed(json.dumps({"step": step, "reward": reward, "lr": 1e-6}))
    said = watcher.finish()
    assert said[0].startswith("batch 0 update 4 reward 0.5 ")
    assert "spent 4e-06" in said[0]


def test_the_alarm_is_given_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The confirming batch may be the last but one record: the batches behind it repeat no alarm."""
    rewards = [0.6] * 8 + [0.02] * 4 + [0.02] * 4 + [0.02]
    assert watch(jsonl(tmp_path / "log", rewards)) == 1
    assert capsys.readouterr().out.count("COLLAPSE") == 1


def test_watch_says_once_that_its_file_is_gone(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "log", [0.5] * 3)
    told: list[str] = []
    lines = follow(path, 0.01, 0.2, told.append)
    next(lines)
    path.unlink()
    assert len(list(lines)) == 2
    assert told == [f"{path} is gone; waiting for it to come back"]


def test_watch_refuses_a_file_that_became_a_directory(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "log", [0.5] * 3)
    lines = follow(path, 0.01, 0.2)
    next(lines)
    path.unlink()
    path.mkdir()
    with pytest.raises(UserError, match="has become a directory"):
        list(lines)
