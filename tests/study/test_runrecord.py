"""The run record: its schema, and what a writer that dies leaves behind."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from collapse_laws import runrecord
from collapse_laws.errors import UserError
from collapse_laws.runrecord import (
    MANIFEST_KEYS,
    SNAPSHOT_COLUMNS,
    STEP_COLUMNS,
    RunWriter,
    check_row,
    finish,
    read_rows,
    read_run,
    settings_digest,
)

STEP = {"t": 0, "snapshot": 0, "lag": 0, "lr": 1e-3, "reward_mean": 0.5}
MANIFEST = dict.fromkeys(MANIFEST_KEYS, None) | {
    "stop_reason": "horizon",
    "sync_interval": 2,
    "lr": 1e-3,
}


def write(folder, updates: int = 4):
    writer = RunWriter(folder / "work")
    for t in range(updates):
        if t % 2 == 0:
            writer.snapshots.append({"M": t // 2, "t": t, "reward_mean": 0.25})
        writer.steps.append(STEP | {"t": t, "snapshot": t // 2, "lag": t % 2})
    writer.close()


def test_round_trip(tmp_path):
    write(tmp_path)
    finish(tmp_path / "work", tmp_path / "run", MANIFEST)
    record = read_run(tmp_path / "run")
    assert list(record.steps.columns) == list(STEP_COLUMNS)
    assert list(record.snapshots.columns) == list(SNAPSHOT_COLUMNS)
    assert record.steps.t.tolist() == [0, 1, 2, 3]
    assert record.steps.grad_cos.isna().all()
    assert (record.sync_interval, record.lr) == (2, 1e-3)


def test_missing_is_null_never_zero_and_not_a_number_is_missing():
    row = check_row(STEP | {"grad_norm": float("nan"), "loss": float("inf")}, STEP_COLUMNS)
    assert row["grad_norm"] is None
    assert row["loss"] is None
    assert row["entropy"] is None
    assert list(row) == list(STEP_COLUMNS)


@pytest.mark.parametrize("row", [{**STEP, "reward": 1.0}, {"t": 0}, {**STEP, "t": "three"}])
def test_rows_off_the_schema(row):
    with pytest.raises(ValueError, match=r"column|invalid literal"):
        check_row(row, STEP_COLUMNS)


def test_half_a_line_is_cut_and_rows_are_not_doubled(tmp_path):
    write(tmp_path, 3)
    with open(tmp_path / "work" / "steps.jsonl", "a") as file:
        file.write('{"t":3,"snap')
    assert len(read_run(tmp_path / "work", in_progress=True).steps) == 3
    write(tmp_path, 4)
    assert read_run(tmp_path / "work", in_progress=True).steps.t.tolist() == [0, 1, 2, 3]
    assert len(read_run(tmp_path / "work", in_progress=True).snapshots) == 2


def test_a_record_without_manifest_is_no_record(tmp_path):
    write(tmp_path)
    with pytest.raises(UserError, match="has not finished"):
        read_run(tmp_path / "work")
    with pytest.raises(ValueError, match="lacks"):
        finish(tmp_path / "work", tmp_path / "run", {"stop_reason": "horizon"})
    with pytest.raises(ValueError, match="allowed"):
        finish(tmp_path / "work", tmp_path / "run", MANIFEST | {"stop_reason": "bored"})
    assert (tmp_path / "work" / "steps.jsonl").exists()


@pytest.mark.parametrize("damage", ["{", "[]", '{"study": 1}', "\xff"])
def test_damaged_manifest(tmp_path, damage):
    write(tmp_path)
    finish(tmp_path / "work", tmp_path / "run", MANIFEST)
    (tmp_path / "run" / "run.json").write_text(damage)
    with pytest.raises(UserError, match=r"run\.json"):
        read_run(tmp_path / "run")


def test_damaged_line_is_named(tmp_path):
    write(tmp_path)
    finish(tmp_path / "work", tmp_path / "run", MANIFEST)
    path = tmp_path / "run" / "steps.jsonl"
    lines = path.read_text().splitlines()
    lines[2] = "not json"
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(UserError, match=r"steps\.jsonl, line 3"):
        read_run(tmp_path / "run")


def test_digest_does_not_depend_on_order():
    assert settings_digest({"a": 1, "b": [2]}) == settings_digest({"b": [2], "a": 1})
    assert settings_digest({"a": 1}) != settings_digest({"a": 2})
    with pytest.raises(ValueError, match=r"JSON|float"):
        settings_digest(json.loads('{"a": NaN}'))


@pytest.mark.parametrize("tail", ["", '{"t": 7, "snap', '{"t": "3", "snapshot": 0.0, "lag": 3, "lr": 1e-3}\n'])
def test_rows_read_at_once_are_those_read_one_by_one(tmp_path, monkeypatch, tail):
    rng = np.random.default_rng(1)
    path = tmp_path / "steps.jsonl"
    with open(path, "w") as file:
        for t in range(40):
            row = {"t": t, "snapshot": t // 8, "lag": t % 8, "lr": 1e-3, "tokens": None if t % 5 else 2**40 + t}
            row |= {"loss": float(rng.normal() * 10.0 ** rng.integers(-300, 300)), "kl_ref": 0 if t % 3 else None}
            file.write(json.dumps(row) + "\n")
        file.write(tail)
    at_once = read_rows(path, STEP_COLUMNS)
    monkeypatch.setattr(runrecord, "_read_plain", lambda *given: None)
    pd.testing.assert_frame_equal(at_once, read_rows(path, STEP_COLUMNS), check_exact=True)
