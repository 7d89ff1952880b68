"""watch: growth, partial lines, rotation, truncation, exit codes, memory; calibrate and the page through the command
line.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import log_variants as variants
import pytest

from collapse_laws.advise.calibration import load_calibration, published_brackets
from collapse_laws.advise.follow import follow
from collapse_laws.advise.watch import Watcher
from collapse_laws.cli import main
from collapse_laws.errors import UserError

QUIET = ["--poll", "0.02", "--until-idle", "0.2"]


def line(step: int, reward: float) -> str:
    return json.dumps({"step": step, "reward": reward, "lr": 1e-6}) + "\n"


@pytest.mark.parametrize(
    "name",
    [
        "console ray ip",
        "one metric a line",
        "jsonl reward",
        "printed redrawn 2",
        "resumed jsonl",
        "wandb csv",
    ],
)
def test_alarm_on_every_kind_of_lines(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = variants.write(name, tmp_path)
    mark = tmp_path / "mark"
    code = main(
        [
            "watch",
            str(path),
            "--sync-interval",
            "4",
            *QUIET,
            "--on-collapse",
            f"sh -c 'echo $COLLAPSE_INDEX $COLLAPSE_STEP > {mark}'",
        ]
    )
    assert code == 1
    assert mark.read_text() == "9 36\n"
    assert "COLLAPSE at rollout batch 9 (update 36)" in capsys.readouterr().out


def test_a_healthy_log_ends_with_zero(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "log"
    path.write_text("".join(line(s, 0.5) for s in range(1, 33)))
    assert main(["watch", str(path), "--sync-interval", "4", *QUIET]) == 0
    out = capsys.readouterr().out
    assert "updates left" in out
    assert "COLLAPSE" not in out


def test_growth_with_partial_lines_rotation_and_truncation(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(line(1, 0.5))

    def write() -> None:
        with open(path, "a") as file:
            file.write(line(2, 0.6)[:9])
            file.flush()
            time.sleep(0.1)
            file.write(line(2, 0.6)[9:])
        time.sleep(0.1)
        path.rename(tmp_path / "log.1")
        time.sleep(0.1)
        path.write_text(line(3, 0.7) + line(4, 0.7))
        time.sleep(0.1)
        path.write_text(line(5, 0.8))  # truncated in place

    writer = threading.Thread(target=write)
    writer.start()
    seen = list(follow(path, 0.01, 0.5))
    writer.join()
    assert [text and json.loads(text)["step"] for text in seen] == [1, 2, None, 3, 4, None, 5]


def test_a_drop_that_recovers_raises_no_alarm() -> None:
    watcher = Watcher(Path("x"), "jsonl", 2, None, published_brackets())
    said = []
    for step, reward in enumerate([0.6] * 8 + [0.1] * 2 + [0.6] * 8, 1):
        said += watcher.feed(line(step, reward))
    said += watcher.finish()
    assert not watcher.collapsed
    assert any("suspected" in sentence for sentence in said)
    assert any("did not last" in sentence for sentence in said)


def test_memory_is_constant() -> None:
    watcher = Watcher(Path("x"), "jsonl", 2, None, published_brackets())
    for step in range(1, 5001):
        watcher.feed(line(step, 0.5 + 0.01 * (step % 7)))
    assert len(watcher.batches.index) <= 131
    assert watcher.batches.index[0] == 0
    assert sum(watcher._table.count(key) for key in ("step", "reward", "lr")) == 0


def test_watch_refuses_what_it_cannot_follow(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("state", "gzip"):
        path = variants.write(name, tmp_path)
        assert main(["watch", str(path), "--sync-interval", "4"]) == 2
    assert main(["watch", str(tmp_path / "none"), "--sync-interval", "4"]) == 2
    assert main(["watch", str(variants.write("console", tmp_path))]) == 2
    assert capsys.readouterr().err.count("\n") == 4


def test_commands_run_without_a_framework(tmp_path: Path) -> None:
    path = variants.write("jsonl reward", tmp_path)
    code = "import sys; from collapse_laws.cli import main; main(sys.argv[1:]); assert 'torch' not in sys.modules"
    done = subprocess.run(
        [sys.executable, "-c", code, "diagnose", str(path), "--sync-interval", "4", "--json"],
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["collapse_index"] == 9


def test_page_escapes_the_log(tmp_path: Path) -> None:
    attack = "reward</title><script>alert(1)</script>"
    path = tmp_path / "<img src=x onerror=alert(2)>.log"
    path.write_text(
        "".join(json.dumps({"step": s, attack: r, "entropy": 0.1}) + "\n" for s, r in enumerate(variants.REWARDS, 1))
    )
    page = tmp_path / "page.html"
    assert (
        main(
            [
                "diagnose",
                str(path),
                "--sync-interval",
                "4",
                "--reward-key",
                attack,
                "--html",
                str(page),
            ]
        )
        == 0
    )
    text = page.read_text()
    assert "<script" not in text
    assert "<img" not in text
    assert "&lt;script&gt;" in text
    assert "http" not in text.replace("http-equiv", "")
    assert text.count("<svg") == 2


def test_calibrate_writes_what_diagnose_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = []
    for interval, lr, updates in ((8, 1e-6, 64), (16, 5e-7, 128), (32, 1e-7, 704)):
        path = tmp_path / f"{interval}.jsonl"
        crash = 3.1e-5 / lr if interval * lr > 3.5e-6 else updates
        crash -= crash % interval
        path.write_text(
            "".join(
                json.dumps({"step": t + 1, "reward": 0.6 + 0.01 * (t % 3) if t < crash else 0.02, "lr": lr}) + "\n"
                for t in range(updates)
            )
        )
        runs.append(f"{path}@{interval}")
    file = tmp_path / "calibration.json"
    assert (
        main(
            [
                "calibrate",
                *runs,
                "--want-sync-interval",
                "64",
                "--want-lr",
                "2e-7",
                "--want-horizon",
                "1000",
                "--output",
                str(file),
            ]
        )
        == 0
    )
    out = capsys.readouterr().out
    (brackets,) = load_calibration(file)
    assert (brackets.stable_max, brackets.collapsed_min) == pytest.approx((3.2e-6, 8e-6))
    assert brackets.c2_low < brackets.c2_high
    assert "expected to fail near update" in out
    assert "Next run: S=64" in out
    assert (
        main(
            [
                "diagnose",
                runs[0].rpartition("@")[0],
                "--sync-interval",
                "8",
                "--calibration",
                str(file),
                "--json",
            ]
        )
        == 0
    )
    found = json.loads(capsys.readouterr().out)
    assert "calibrated" in next(v["sentence"] for v in found["verdicts"] if v["name"] == "boundary")
    with pytest.raises(UserError, match="not a calibration file"):
        load_calibration(Path(runs[0].rpartition("@")[0]))
    assert main(["calibrate", str(tmp_path / "8.jsonl"), "--output", str(file)]) == 2


def test_without_s_the_diagnosis_says_what_it_can(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = variants.write("jsonl reward", tmp_path)
    assert main(["diagnose", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["label"], found["collapse_index"], found["collapse_step"]) == (
        "collapsed",
        None,
        36,
    )
    assert any("S is not known" in v["sentence"] for v in found["verdicts"])
    assert any(sentence.startswith("S:") for sentence in found["missing"])


def test_published_brackets_are_those_of_the_tables() -> None:
    found = {known.name: known for known in published_brackets()}
    llama, qwen = found["Llama-3.2-1B and 3B"], found["Qwen3-8B"]
    bounds = [(b.stable_max, b.collapsed_min, b.c2_low, b.c2_high, b.refuted) for b in (llama, qwen)]
    assert bounds[0] == pytest.approx((2.56e-6, 3.2e-6, 2.88e-5, 3.2e-5, False))
    assert bounds[1] == pytest.approx((1.6e-6, 3.2e-6, 6.08e-5, 6.4e-5, False))
