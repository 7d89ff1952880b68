"""From lines to a record: attempts joined, the lag checked, plain logs read with what they have lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collapse_laws.errors import UserError
from collapse_laws.protocol import LagError
from collapse_laws.verl import adapter
from collapse_laws.verl.branch import Attempt, surviving_branch
from collapse_laws.verl.hooks import batch_summary, check_behaviour, parse_lines, scalars


def update(t: int, S: int, rewards: tuple[float, ...] = (0.0, 1.0), **metrics: float) -> dict[str, Any]:
    return {
        "kind": "update",
        "t": t,
        "version": t // S,
        "behaviour": [t // S, t // S],
        "group_rewards": list(rewards),
        "group_sizes": [4] * len(rewards),
        "degenerate_groups": 1,
        "tokens": 40,
        "truncated": 1,
        "entropy": 0.5,
        "seconds": 1.0,
        "metrics": {"actor/lr": 1e-6, "actor/grad_norm": 1.0, **metrics},
    }


def validation(version: int, score: float) -> dict[str, Any]:
    return {
        "kind": "validation",
        "version": version,
        "metrics": {"val-core/org/set/acc/mean@1": score},
    }


def test_an_attempt_gives_way_at_the_checkpoint_from_which_the_next_one_started() -> None:
    first = Attempt(0, [update(t, 4, attempt=0) for t in range(11)])
    second = Attempt(2, [update(t, 4, attempt=1) for t in range(8, 14)])
    third = Attempt(2, [update(t, 4, attempt=2) for t in range(8, 16)])
    branch = surviving_branch([first, second, third], 4)
    assert [line["t"] for line in branch.updates] == list(range(16))
    assert [line["metrics"]["attempt"] for line in branch.updates] == [0] * 8 + [2] * 8


def test_an_attempt_that_fell_back_behind_an_earlier_start_takes_over_from_there() -> None:
    first = Attempt(0, [update(t, 4, attempt=0) for t in range(8)])
    second = Attempt(2, [update(t, 4, attempt=1) for t in range(8, 12)])
    third = Attempt(1, [update(t, 4, attempt=2) for t in range(4, 12)])  # its checkpoint was lost
    branch = surviving_branch([first, second, third], 4)
    assert [line["metrics"]["attempt"] for line in branch.updates] == [0] * 4 + [2] * 8


def test_validations_are_kept_once_for_each_version() -> None:
    first = Attempt(
        0,
        [
            validation(0, 0.1),
            validation(1, 0.2),
            validation(2, 0.9),
            *[update(t, 4) for t in range(9)],
        ],
    )
    second = Attempt(1, [validation(1, 0.25), validation(2, 0.3), *[update(t, 4) for t in range(4, 12)]])
    found = surviving_branch([first, second], 4).validations
    assert {v: list(m.values())[0] for v, m in found.items()} == {0: 0.1, 1: 0.2, 2: 0.3}


def test_a_missing_update_is_told() -> None:
    lines = [update(t, 4) for t in (0, 1, 3)]
    with pytest.raises(UserError, match="lines of update 2 are missing, although update 3 is there"):
        surviving_branch([Attempt(0, lines)], 4)


def test_rows_hold_means_errors_and_the_lag() -> None:
    lines = [
        update(0, 2, (0.0, 1.0)),
        update(1, 2, (0.5, 0.5)),
        update(2, 2, (1.0, 1.0), **{"actor/displacement_rms": 0.25}),
    ]
    lines[1]["metrics"]["actor/displacement_rms"] = 0.125
    branch = surviving_branch([Attempt(0, [validation(0, 0.4), *lines])], 2)
    steps = adapter.step_rows(branch, 2)
    assert [(row["t"], row["snapshot"], row["lag"]) for row in steps] == [
        (0, 0, 0),
        (1, 0, 1),
        (2, 1, 0),
    ]
    assert steps[0]["grad_cos"] is None
    assert steps[0]["response_length"] == 5.0
    (row,) = adapter.snapshot_rows(branch, 2, {"org/set": 50})  # the second cycle is not complete
    groups = np.array([0.0, 1.0, 0.5, 0.5])
    assert row["reward_mean"] == groups.mean()
    assert row["reward_se"] == pytest.approx(groups.std(ddof=1) / 2)
    assert (row["n"], row["truncated_fraction"], row["degenerate_group_fraction"]) == (
        16,
        2 / 16,
        0.5,
    )
    assert (row["validation_reward"], row["validation_n"], row["displacement_rms"]) == (
        0.4,
        50,
        0.0,
    )


def test_a_realised_lag_other_than_t_mod_s_is_an_error() -> None:
    line = update(5, 4)
    line["behaviour"] = [0, 0]
    branch = surviving_branch([Attempt(0, [*(update(t, 4) for t in range(5)), line])], 4)
    with pytest.raises(LagError, match="update 5 learned from snapshot 0"):
        adapter.step_rows(branch, 4)
    check_behaviour(5, [1, 1], 4)
    with pytest.raises(LagError, match="versions 0 to 1"):
        check_behaviour(5, [0, 1], 4)


def test_validation_is_weighted_by_problems_and_null_where_a_set_is_missing() -> None:
    metrics = {
        "val-core/a/b/acc/mean@1": 0.5,
        "val-aux/a/b/reward/mean@1": 0.9,
        "val-core/c/acc/mean@1": 1.0,
        "val-aux/num_turns/mean": 2,
    }
    assert adapter.validation_reward(metrics, {"a/b": 300, "c": 100}) == (0.625, 400)
    assert adapter.validation_reward(metrics, {"a/b": 300, "c": 100, "d": 1}) == (None, None)
    assert adapter.validation_reward({}, {"a/b": 300}) == (None, None)


def test_a_half_written_line_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "updates.jsonl"
    path.write_text(json.dumps(update(0, 4)) + "\n" + '{"kind":"upd')
    assert [line["t"] for line in parse_lines(path)] == [0]
    assert parse_lines(tmp_path / "nowhere") == []


def test_numbers_among_metrics_are_kept_and_the_rest_left_out() -> None:
    metrics = {
        "a": np.float32(0.5),
        "b": 3,
        "c": float("nan"),
        "d": "text",
        "e": [1.0],
        "f": np.float64("inf"),
    }
    assert scalars(metrics) == {"a": 0.5, "b": 3.0}


def test_the_summary_of_a_batch_goes_by_prompt() -> None:
    torch = pytest.importorskip("torch")

    class Batch:
        batch = {
            "response_mask": torch.tensor([[1, 1, 0], [1, 1, 1], [1, 0, 0], [1, 1, 0]]),
            "token_level_scores": torch.tensor([[0.0, 1, 0], [0, 0, 0.0], [1.0, 0, 0], [0, 1.0, 0]]),
            "rollout_log_probs": torch.full((4, 3), -0.5),
            "prompts": torch.tensor([[0, 7], [5, 6], [5, 6], [0, 7]]),
            "attention_mask": torch.tensor([[0, 1, 1, 1, 0], [1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [0, 1, 1, 1, 0]]),
        }
        non_tensor_batch = {
            "uid": np.array(["b", "a", "a", "b"], dtype=object),
            "min_global_steps": np.array([2, 2, 2, 2], dtype=object),
            "max_global_steps": np.array([2, 2, 3, 2], dtype=object),
        }

    summary = batch_summary(Batch(), max_response_tokens=3)
    assert summary["group_rewards"] == [0.5, 1.0]
    assert summary["group_sizes"] == [2, 2]
    assert summary["degenerate_groups"] == 1
    assert summary["behaviour"] == [2, 3]
    assert (summary["tokens"], summary["truncated"]) == (8, 1)
    assert summary["entropy"] == pytest.approx(0.5)
    assert len(set(summary["prompts"])) == 2


# plain logs


def plain(path: Path, S: int, cycles: int) -> None:
    """Three records a synchronisation as verl writes them, rewards equal to the update's number / 100."""
    records = []
    for v in range(1, cycles + 1):
        updates = range(max((v - 1) * S - 1, 0), v * S - 1)
        data = {
            "training/global_step": float(v * S - 1),
            "critic/score/mean": float(np.mean([t / 100 for t in updates])),
            "actor/lr": 2e-7,
            "response_length/clip_ratio": 0.01,
        }
        records += [
            (v, {"fully_async/rollouter/idle_ratio": 0.1}),
            (v, data),
            (v, {"val-core/math/acc/mean@1": v / 10}),
        ]
    path.write_text("".join(json.dumps({"step": step, "data": data}) + "\n" for step, data in records))


def test_a_plain_log_becomes_snapshots_and_says_what_is_lost(tmp_path: Path) -> None:
    plain(tmp_path / "verl.jsonl", 8, 4)
    record, lost = adapter.plain_log(tmp_path / "verl.jsonl")
    assert record.manifest == {"trainer": "verl", "sync_interval": 8, "lr": 2e-7}
    assert record.steps.empty
    assert record.snapshots["M"].tolist() == [0, 1, 2, 3]
    assert record.snapshots["t"].tolist() == [0, 8, 16, 24]
    assert record.snapshots["reward_mean"][2] == pytest.approx(np.mean(range(15, 23)) / 100)
    assert record.snapshots["validation_reward"].tolist()[1:] == [0.1, 0.2, 0.3]
    assert any("last update" in sentence for sentence in lost)


def test_a_plain_log_of_one_cycle_still_tells_s(tmp_path: Path) -> None:
    plain(tmp_path / "verl.jsonl", 16, 1)
    assert adapter.plain_log(tmp_path / "verl.jsonl")[0].sync_interval == 16


@pytest.mark.parametrize(
    ("text", "sentence"),
    [("x\n", "line 1, is not a record"), ('{"step":1,"data":{}}\n', "no training record")],
)
def test_other_files_are_refused(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "log").write_text(text)
    with pytest.raises(UserError, match=sentence):
        adapter.plain_log(tmp_path / "log")
