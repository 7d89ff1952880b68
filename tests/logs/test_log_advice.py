"""What watch, diagnose and calibrate say, and that every bad input is answered in one sentence."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

import log_variants as variants
import pytest

from collapse_laws.advise.calibrate import advice
from collapse_laws.advise.calibration import Brackets, published_brackets
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


def diagnosed(capsys: pytest.CaptureFixture[str], path: Path, *arguments: str) -> tuple[dict, str]:
    assert main(["diagnose", str(path), *arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert main(["diagnose", str(path), *arguments]) == 0
    return found, capsys.readouterr().out


def test_readings_are_those_of_the_collapse_at_the_first_record_beyond(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A partial drop long before says nothing of what happened at the collapse, and the cause comes before the peak."""
    path = tmp_path / "log"
    with open(path, "w") as file:
        for t in range(96):
            reward = 0.75 if t < 32 or 36 <= t < 72 else (0.55 if t < 36 else 0.02)
            norm = 2.0 + 0.01 * (t % 3) + (0 if t < 72 else t - 70)
            file.write(json.dumps({"step": t + 1, "reward": reward + 0.001 * (t % 3), "grad_norm": norm}) + "\n")
    found, text = diagnosed(capsys, path, "--sync-interval", "4")
    assert (found["collapse_step"], found["partial_drop_step"]) == (72, 32)
    (reading,) = found["readings"]
    assert (reading["when"], reading["step"], reading["log_step"]) == ("at", 72, 73)
    assert "at step 73: gradients grew" in text
    assert text.count("the first record made after it is the log's step N+1.") == 1


def test_a_log_that_counts_from_zero_is_cited_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = jsonl(tmp_path / "log", variants.REWARDS, first=0, grad_norm=2.0)
    found, text = diagnosed(capsys, path, "--sync-interval", "4")
    assert found["collapse_step"] == 36
    assert "the first record made after it is the log's step N." in text
    assert "at step 35" in text


def test_intervals_that_only_touch_do_not_overlap(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found, _ = diagnosed(capsys, Path(variants.write("fully async", tmp_path)), "--sync-interval", "4")
    (said,) = [v["sentence"] for v in found["verdicts"] if v["name"] == "clock" and "Llama" in v["sentence"]]
    assert "in (3.2e-05, 3.6e-05], lies above c2 in (2.88e-05, 3.2e-05]" in said


def test_synchronisations_are_not_taken_for_updates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "log"
    with open(path, "w") as file:
        for v, reward in enumerate([0.5] * 6 + [0.02] * 6, 1):
            data = {"fully_async/count/current_param_version": v, "critic/score/mean": reward, "actor/lr": 1e-6}
            file.write(json.dumps({"step": v, "data": data}) + "\n")
    found, text = diagnosed(capsys, path)
    assert found["label"] == "collapsed"
    assert [found[key] for key in ("collapse_step", "lr_budget_spent", "lr_budget_at_collapse")] == [None] * 3
    assert not [v for v in found["verdicts"] if v["name"] == "clock"]
    assert "at the log's step 7 and stayed there" in text
    assert "counts synchronisations" in text
    assert "N+1" not in text
    assert "update(s)" not in text
    assert watch(path) == 1  # S is given: batch 6 of S=4 is that of synchronisation 7
    assert "COLLAPSE at rollout batch 6 (update 24)" in capsys.readouterr().out


def test_steps_below_zero_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "log"
    path.write_text("".join(json.dumps({"step": -s, "reward": 0.4}) + "\n" for s in range(1, 20)))
    assert main(["diagnose", str(path)]) == 2
    assert "every record with a reward has a step below 1" in capsys.readouterr().err


def calibrated(capsys: pytest.CaptureFixture[str], tmp_path: Path, *runs: str) -> str:
    assert main(["calibrate", *runs, "--output", str(tmp_path / "c.json")]) == 0
    return capsys.readouterr().out


def test_collapsed_runs_that_contradict_each_other_share_no_clock(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, crash in (("a", 16), ("b", 200)):
        jsonl(tmp_path / name, [0.6 if t < crash else 0.02 for t in range(2 * crash)])
    out = calibrated(capsys, tmp_path, f"{tmp_path / 'a'}@8", f"{tmp_path / 'b'}@8")
    assert "clock of t*eta: the collapsed runs share no clock" in out
    assert "The collapsed runs share no clock, so the clock is unknown" in out
    assert "No run" not in out
    assert "near update" not in out


def test_stable_runs_alone_ask_for_a_collapse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = calibrated(capsys, tmp_path, f"{jsonl(tmp_path / 'a', [0.6] * 64)}@4,1e-8")
    assert "run one until it collapses" in out
    assert "clock of t*eta: unknown, since no run of S >= 2 collapsed" in out


def test_a_stable_rate_is_an_expectation() -> None:
    known = Brackets("x", 2e-6, 4e-6, 2e-5, 3e-5, "calibrated")
    said = advice(known, 32, 1e-9, None)
    assert "eta up to 6.25e-08 is expected to be stable" in said[0]
    assert any(sentence.endswith("expected to be stable.") for sentence in said)


@pytest.mark.parametrize("point", ["", "4,", "4,abc", "4.5,1e-6", "-4,1e-6", "4,-1", "4,nan", "0", "1e99"])
def test_a_point_that_is_none_names_the_run_and_what_is_allowed(
    point: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = jsonl(tmp_path / "log", [0.5] * 20)
    assert main(["calibrate", f"{path}@{point}"]) == 2
    err = capsys.readouterr().err
    assert f"{path}@{point}" in err
    assert "learning rate" in err
    assert "does not exist" not in err


def test_a_wanted_rate_is_finite(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = jsonl(tmp_path / "log", [0.5] * 20)
    assert main(["calibrate", f"{path}@4", "--want-lr", "inf"]) == 2
    assert "--want-lr inf is not allowed" in capsys.readouterr().err


LONG = "a" * 300


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("diagnose LOG --html folder", "--html folder is a directory"),
        ("diagnose LOG --html ", "--html . is a directory"),
        ("diagnose LOG --html LOG/x.html", "a part of its folder's name is a file"),
        (f"diagnose LOG --html {LONG}", "File name too long"),
        (f"diagnose {LONG}", "File name too long"),
        (f"watch {LONG} --sync-interval 4", "File name too long"),
        ("calibrate LOG@4 --output folder", "--output folder is a directory"),
        ("published --reference LOG", "Not a directory (LOG/table1.csv)"),
        ("simulate --records LOG", "Not a directory"),
        ("simulate --seed -1", "--seed and --seeds must be at least 0"),
        ("simulate --records out --seeds -1", "--seed and --seeds must be at least 0"),
        ("diagnose LOG --sync-interval abc", "--sync-interval: 'abc' is not allowed; allowed: a whole number"),
        ("diagnose LOG --sync-interval 1e99", "--sync-interval: '1e99' is not allowed; allowed: a whole number"),
        ("diagnose LOG --lr abc", "--lr: 'abc' is not allowed; allowed: a number"),
        ("diagnose", "required: LOG; `collapse-laws diagnose --help` lists what is allowed"),
        ("nosuch", "invalid choice: 'nosuch'"),
        ("watch LOG --sync-interval 4 --until-idle -1", "--until-idle -1 is not allowed; allowed"),
        ("watch LOG --sync-interval 4 --until-idle nan", "--until-idle nan is not allowed; allowed"),
        ("watch LOG --sync-interval 4 --poll nan", "--poll nan is not allowed; allowed"),
        ("watch LOG --sync-interval 4 --poll inf", "--poll inf is not allowed; allowed"),
        ("watch LOG --sync-interval 4 --format json", "--format json does not grow by lines"),
    ],
)
def test_bad_input_is_answered_by_one_sentence(
    arguments: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    jsonl(tmp_path / "LOG", [0.5] * 20)
    (tmp_path / "folder").mkdir()
    assert main(arguments.split(" ")) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert err.count("\n") == 1
    assert not list((tmp_path / "folder").iterdir())


def test_the_folder_of_a_page_is_made(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "log", [0.5] * 20)
    assert main(["diagnose", str(path), "--html", str(tmp_path / "new" / "x.html")]) == 0
    assert (tmp_path / "new" / "x.html").exists()


def test_figures_are_named_and_nothing_in_them_collides(tmp_path: Path) -> None:
    """Records of 4 updates: the first stands at update 3, while batch 0 begins at update 0."""
    path = tmp_path / "log"
    rows = [{"step": s, "reward": r, "entropy": 0.1 + 0.01 * (s % 8)} for s, r in variants.averages(4)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    page = tmp_path / "x.html"
    assert main(["diagnose", str(path), "--sync-interval", "4", "--html", str(page)]) == 0
    text = page.read_text()
    assert re.findall(r"<figcaption><strong>([^<]*)</strong>", text) == ["reward (reward)", "entropy (entropy)"]
    assert "Line: the logged rewards. Dots: the mean of a rollout batch" in text
    assert min(float(x) for x in re.findall(r'cx="([-0-9.]+)"', text)) >= 60
    svg = text[text.index("<svg") : text.index("</svg>")]
    labels = re.findall(r'<text class="mark" x="[^"]*" y="(\d+)"[^>]*>([^<]*)<', svg)
    assert [label for _, label in labels] == ["partial drop, 32", "drop, 36"]
    assert labels[0][0] != labels[1][0]
    assert "overflow-wrap: anywhere" not in re.search(r"th, td \{[^}]*\}", text).group()  # type: ignore[union-attr]
