"""Every shape of one series reads as the same series; what is junk gives one sentence."""

from __future__ import annotations

import gzip
import io
import json
import math
import os
import sys
import threading
from pathlib import Path

import log_variants as variants
import numpy as np
import pandas as pd
import pytest

from collapse_laws.advise.diagnose import diagnose
from collapse_laws.errors import UserError
from collapse_laws.logs import read_log, templates


@pytest.mark.parametrize("name", variants.VARIANTS)
def test_variant_gives_the_same_collapse(name: str, tmp_path: Path) -> None:
    log = read_log(variants.write(name, tmp_path), sync_interval=variants.S)
    found = diagnose(log).to_json()
    assert (
        found["label"],
        found["collapse_index"],
        found["collapse_step"],
        found["partial_drop_index"],
    ) == (
        "collapsed",
        variants.M,
        variants.STEP,
        variants.PARTIAL,
    )


@pytest.mark.parametrize("name", variants.VARIANTS)
def test_known_layouts_read_as_the_whole_parser_does(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = variants.write(name, tmp_path)
    quick = read_log(path, sync_interval=4)
    monkeypatch.setattr(templates, "_REMEMBERED", 0)
    whole = read_log(path, sync_interval=4)
    assert (quick.rows, quick.keys, quick.notes) == (whole.rows, whole.keys, whole.notes)
    pd.testing.assert_frame_equal(quick.record.steps, whole.record.steps)


def test_layouts_do_not_mix_up_lines_that_look_alike(tmp_path: Path) -> None:
    """Lines that differ in characters of numbers alone, in a metric's name too, or hold no number where others do."""
    path = tmp_path / "log"
    odd = {
        7: "step:7 - actor/lr: - critic/score/mean:0.25",
        9: "step:9 - actor/lr:1e-6 - critic/score/mean:0.2.5",
        11: "step:11 - actor/lr:- - critic/score/mean:0.75",
    }
    lines = [odd.get(step, f"step:{step} - actor/lr:1e-6 - critic/score/mean:0.5") for step in range(1, 41)]
    path.write_text("\n".join(lines) + "\n")
    steps = read_log(path).record.steps.set_index("t")
    assert steps["reward_mean"].to_dict() == {t: {6: 0.25, 10: 0.75}.get(t, 0.5) for t in range(40) if t != 8}
    assert list(steps.index[steps["lr"].isna()]) == [6, 10]
    rows = [{"pass@1": 0.1, "pass@2": 0.5} if n % 2 else {"pass@2": 0.6, "pass@1": 0.2} for n in range(40)]
    path.write_text("\n".join(json.dumps({"step": n + 1, **row}) for n, row in enumerate(rows)) + "\n")
    read = read_log(path, reward_key="pass@1").record.steps["reward_mean"]
    assert list(read) == [row["pass@1"] for row in rows]


@pytest.mark.parametrize("name", ["trl_trainer_state.json", "verl_console_ray.log", "verl_fully_async.jsonl"])
def test_samples(name: str, shared: Path) -> None:
    folder = shared / "data" / "logs"
    expected = json.loads((folder / "expected.json").read_text())
    found = diagnose(read_log(folder / name, sync_interval=expected["S"])).to_json()
    assert {key: found[key] for key in ("collapse_index", "collapse_step", "partial_drop_index")} == {
        key: expected[key] for key in ("collapse_index", "collapse_step", "partial_drop_index")
    }


def test_full_series_is_read_exactly(tmp_path: Path) -> None:
    log = read_log(variants.write("console ray ip", tmp_path), sync_interval=4)
    assert np.allclose(log.record.steps["reward_mean"], variants.REWARDS)
    assert list(log.record.steps["t"]) == list(range(48))
    assert log.record.steps["lr"].eq(1e-6).all()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("verl file utf16", "verl_file"),
        ("state behind a long head", "trl_trainer_state"),
        ("jsonl of text", "verl_console"),
        ("jsonl old line ends", "jsonl"),
        ("json pandas", "json"),
    ],
)
def test_kind_is_named(name: str, kind: str, tmp_path: Path) -> None:
    assert read_log(variants.write(name, tmp_path)).format == kind


@pytest.mark.parametrize("pretty", [False, True])
def test_a_column_that_grows_like_a_step_is_named(pretty: bool, tmp_path: Path) -> None:
    path = tmp_path / "log"
    rows = [{"episode": s, "total_steps": 48, "seed": 3, "reward": r} for s, r in variants.averages(2)]
    path.write_text(json.dumps(rows, indent=1) if pretty else "\n".join(map(json.dumps, rows)))
    notes = read_log(path, sync_interval=4).notes
    assert any("no step is known by its name" in note for note in notes)
    assert any("'episode' grows as a step does" in note and "--step-key 'episode'" in note for note in notes)
    log = read_log(path, sync_interval=4, step_key="episode")
    assert (diagnose(log).to_json()["collapse_index"], log.notes) == (9, ())


def test_samples_that_speak_of_steps_and_rewards_do_not_hide_the_dictionaries(tmp_path: Path) -> None:
    path = tmp_path / "log"
    dictionaries = variants.printed(1, "before").decode().splitlines()
    dictionaries.insert(9, "Step 3: so the reward: 5")
    path.write_text("\n".join(dictionaries))
    assert diagnose(read_log(path, sync_interval=4)).to_json()["collapse_index"] == 9


@pytest.mark.parametrize("name", ["gzip", "jsonl reward", "console utf16", "state"])
def test_pipes_and_the_standard_input(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe can be read once, and gives a part at a time."""
    data = variants.VARIANTS[name]() if name != "jsonl reward" else variants.VARIANTS[name]() + b" " * 200_000
    end, start = os.pipe()

    def write() -> None:
        with open(start, "wb") as pipe:
            pipe.write(data)

    threading.Thread(target=write, daemon=True).start()
    path = Path(f"/dev/fd/{end}")
    log = read_log(path, sync_interval=4)
    os.close(end)
    assert (log.path, log.record.manifest["source"]) == (path, str(path))
    assert diagnose(log).to_json()["collapse_index"] == 9
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert diagnose(read_log("-", sync_interval=4)).to_json()["collapse_index"] == 9
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    with pytest.raises(UserError, match="^- is empty"):
        read_log("-")


def test_a_directory_with_one_log(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "run.jsonl").write_bytes(variants.VARIANTS["verl file"]())
    (tmp_path / "notes.txt").write_text("bought milk")
    (tmp_path / "config.json").write_text('{"lr": 1e-6}')
    log = read_log(tmp_path, sync_interval=4)
    assert (log.format, diagnose(log).to_json()["collapse_index"]) == ("verl_file", 9)
    (tmp_path / "other.jsonl").write_bytes(variants.VARIANTS["jsonl reward"]())
    with pytest.raises(UserError, match=r"holds 2 logs \(other.jsonl, project/run.jsonl\)"):
        read_log(tmp_path)


def test_a_step_below_its_metrics_is_said_and_needs_its_signs(tmp_path: Path) -> None:
    log = read_log(variants.write("step below its metrics", tmp_path), sync_interval=4)
    assert log.notes == ("each step stands below its metrics in this log",)
    assert np.allclose(log.series.reward, variants.REWARDS)
    path = tmp_path / "log"
    path.write_text("".join(f"step: {s}\nreward: {r}\n" for s, r in enumerate(variants.REWARDS, 1)))
    assert np.allclose(read_log(path).series.reward, variants.REWARDS)
    path.write_text("reward: 9.0\n" + path.read_text())  # of a configuration
    assert np.allclose(read_log(path).series.reward, variants.REWARDS)


def test_a_dictionary_cut_by_the_end_of_the_log_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "log"
    whole = variants.printed_over_lines(1)
    path.write_bytes(whole[: whole.rindex(b"'step'")])
    assert np.allclose(read_log(path).series.reward, variants.REWARDS[:-1])


def test_inferred_steps_are_said(tmp_path: Path) -> None:
    for name, says in (
        ("printed plain", "wrong unless logging_steps is 1"),
        ("printed plain, logging every 4", "one every 4 update(s), since the closing summary"),
    ):
        log = read_log(variants.write(name, tmp_path), sync_interval=4)
        assert any(says in note for note in log.notes)
    assert log.series.updates == 48


def test_resume_keeps_the_later_rows(tmp_path: Path) -> None:
    path = tmp_path / "log"
    first = [{"step": s, "reward": 0.1} for s in range(1, 31)]
    second = [{"step": s, "reward": 0.9} for s in range(21, 26)]  # stopped before the first job's end
    path.write_text("\n".join(map(json.dumps, first + second)))
    log = read_log(path, sync_interval=5)
    assert log.series.updates == 25
    assert log.series.duplicates == 10
    assert np.allclose(log.series.reward, [0.1] * 20 + [0.9] * 5)


def test_fully_async_mixture_is_solved(tmp_path: Path) -> None:
    """With rewards constant within cycles the snapshots come back exactly, although records straddle two of them."""
    levels = [0.3, 0.5, 0.6, 0.7, 0.2, 0.2]
    reward = [levels[t // 4] for t in range(24)]
    rows = []
    for v in range(1, 7):
        covered = reward[max(0, (v - 1) * 4 - 1) : v * 4 - 1]
        rows.append(
            {
                "step": v,
                "data": {
                    "fully_async/count/current_param_version": v - 1,
                    "training/global_step": 4 * v - 1,
                    "critic/score/mean": sum(covered) / len(covered),
                },
            }
        )
    path = tmp_path / "log"
    path.write_text("\n".join(map(json.dumps, rows)))
    log = read_log(path)
    assert log.sync_interval == 4
    assert log.sync_interval_source == "log"
    assert np.allclose(log.snapshots.reward, levels)
    assert list(log.series.first[:2]) == [0, 3]
    assert "shifted by one" in log.exactness


def test_fully_async_without_updates_or_s_claims_no_updates(tmp_path: Path) -> None:
    log = read_log(variants.write("fully async no global step", tmp_path))
    assert "by synchronisations, not by learner updates" in log.exactness


def test_fully_async_with_two_updates_a_cycle_says_that_it_is_blurred(tmp_path: Path) -> None:
    rows = [
        {"step": v, "training/global_step": 2 * v - 1, "fully_async/x": 1, "critic/score/mean": 0.5}
        for v in range(1, 9)
    ]
    path = tmp_path / "log"
    path.write_text("\n".join(map(json.dumps, rows)))
    log = read_log(path, sync_interval=2)
    assert log.snapshots.how == "blurred"
    assert "off by" in log.exactness


def test_tensorboard(tmp_path: Path) -> None:
    writer_module = pytest.importorskip("tensorboard.summary.writer.event_file_writer")
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary

    for part, steps in (("a", range(1, 31)), ("b", range(21, 49))):  # the second file is a resume
        writer = writer_module.EventFileWriter(str(tmp_path), filename_suffix=part)
        for step in steps:
            for tag, value in (
                ("train/reward", variants.REWARDS[step - 1]),
                ("train/learning_rate", 1e-6),
                ("eval/reward", 0.9),
            ):
                summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
                writer.add_event(Event(wall_time=1e9 + step, step=step, summary=summary))
        writer.close()
    found = diagnose(read_log(tmp_path, sync_interval=4)).to_json()
    assert (found["format"], found["collapse_index"], found["partial_drop_index"]) == (
        "tensorboard",
        9,
        8,
    )
    assert found["lr"] == pytest.approx(1e-6)


JUNK = {
    "empty": b"",
    "blank": b"\n \n",
    "binary": bytes(range(256)) * 40,
    "png": b"\x89PNG\r\n\x1a\n" + b"\x01" * 100,
    "no reward": b'{"step": 1, "loss": 0.2}\n{"step": 2, "loss": 0.1}\n',
    "prose": b"Lorem ipsum dolor sit amet\nconsectetur adipiscing elit\n",
    "damaged gzip": gzip.compress(b"step:1 - reward:0.5\n" * 100)[:12],
    "wandb": b":W&B\xe1\xbe\x00" + b"\x00" * 100,
    "half a document": b'{"log_history": [{"step": 1, "reward": 0.5},',
    "all NaN": b'{"step": 1, "reward": NaN}\n{"step": 2, "reward": NaN}\n{"step": 5, "reward": NaN}\n',
    "two runs": b"".join(b'{"step": %d, "reward": 0.%d}\n' % (s, r) for r in (5, 6) for s in range(1, 31)),
    "one run twice": variants.VARIANTS["jsonl reward"]() * 2,
    "scalar json": b"[1, 2, 3]",
    "two wandb runs": b'"Step","a - reward","b - reward"\n1,0.5,0.6\n2,0.5,0.6\n',
}


@pytest.mark.parametrize("name", JUNK)
def test_junk_is_one_sentence(name: str, tmp_path: Path) -> None:
    path = tmp_path / "junk"
    path.write_bytes(JUNK[name])
    with pytest.raises(UserError) as caught:
        diagnose(read_log(path, sync_interval=4))
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".")


def test_other_junk(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(UserError, match="is a directory without"):
        read_log(tmp_path)
    with pytest.raises(UserError, match="does not exist"):
        read_log(tmp_path / "none")
    path = variants.write("console", tmp_path)
    with pytest.raises(UserError, match="one rollout batch"):
        diagnose(read_log(path, sync_interval=100))
    with pytest.raises(UserError, match="sync-interval"):
        read_log(path, sync_interval=0)
    with pytest.raises(UserError, match="--reward-key"):
        read_log(path, reward_key="nothing")


def test_overrides(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(
        "\n".join(json.dumps({"n": s, "quality": r, "reward": 0.5}) for s, r in enumerate(variants.REWARDS, 1))
    )
    log = read_log(path, sync_interval=4, reward_key="quality", step_key="n", format="jsonl")
    assert diagnose(log).to_json()["collapse_index"] == 9


def test_rewards_outside_the_unit_range_are_scaled(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("\n".join(json.dumps({"step": s, "reward": 3 * r}) for s, r in enumerate(variants.REWARDS, 1)))
    assert diagnose(read_log(path, sync_interval=4)).to_json()["collapse_index"] == 9


def test_nan_at_the_end_is_a_failed_run(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(
        "\n".join(json.dumps({"step": s, "reward": math.nan if s > 12 else 0.5 + s / 100}) for s in range(1, 25))
    )
    assert diagnose(read_log(path, sync_interval=4)).to_json()["label"] == "failed"
