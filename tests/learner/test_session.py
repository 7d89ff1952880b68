"""Whole runs: what they equal, what they survive and what they refuse."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import yaml

from collapse_laws import grpo, runrecord
from collapse_laws.attention import pack, token_logprobs
from collapse_laws.cli import main
from collapse_laws.errors import UserError
from collapse_laws.learner import Learner, Preempted
from collapse_laws.policy import FlatParameters, load_policy
from collapse_laws.protocol import check_realised_lag
from collapse_laws.rollout import sample
from collapse_laws.runrecord import read_run
from collapse_laws.seeding import generator
from collapse_laws.session import train
from collapse_laws.tasks import make_task

ROOT = Path(__file__).resolve().parents[2]


def run(cell, start, folder: Path) -> Path:
    train(
        cell,
        model_dir=start,
        work=folder / "work",
        checkpoints=folder / "checkpoints",
        out=folder / "run",
    )
    return folder / "run"


def untimed(record: Path) -> dict[str, object]:
    """A record's content without its timings."""
    steps = [json.loads(line) for line in (record / "steps.jsonl").read_text().splitlines()]
    manifest = json.loads((record / "run.json").read_text())
    return {
        "steps": [{k: v for k, v in row.items() if k != "seconds"} for row in steps],
        "snapshots": (record / "snapshots.jsonl").read_text(),
        "run": {k: v for k, v in manifest.items() if k != "timings"},
    }


@pytest.mark.parametrize("ratio", ["behaviour", "recomputed"])
def test_record_follows_the_protocol(make_cell, start, tmp_path, ratio):
    record = read_run(run(make_cell(sync_interval=4, ratio=ratio), start, tmp_path))
    check_realised_lag(record.steps.t, record.steps.snapshot, 4)
    assert record.steps.lag.tolist() == [0, 1, 2, 3] * 4
    assert record.snapshots.t.tolist() == [0, 4, 8, 12]
    by_snapshot = record.steps.groupby("snapshot").reward_mean.mean()
    assert by_snapshot.to_numpy() == pytest.approx(record.snapshots.reward_mean.to_numpy())
    assert record.steps.grad_cos.isna().tolist() == [True] + [False] * 15
    fresh = record.steps[record.steps.lag == 0]
    assert (fresh.clip_fraction == 0).all()
    assert fresh.ratio_max.to_numpy() == pytest.approx(1, abs=1e-4)
    assert (record.steps[record.steps.lag == 3].ratio_max > 1.01).all()
    if ratio == "recomputed":
        assert (record.steps.clip_fraction == 0).all()
    assert record.steps.stale_feedback_cos.notna().tolist() == ([False] * 7 + [True]) * 2
    assert record.manifest["stop_reason"] == "horizon"
    assert load_policy(tmp_path / "checkpoints" / "final")


def test_one_update_a_cycle_is_synchronous_grpo(make_cell, start, tmp_path):
    """S=1 through the asynchronous loop, against GRPO written straight down, bit for bit."""
    cell = make_cell(sync_interval=1, horizon_updates=12)
    s = cell.settings
    run(cell, start, tmp_path)
    asynchronous, tokenizer = load_policy(tmp_path / "checkpoints" / "final")

    policy, _ = load_policy(start)
    reference, _ = load_policy(start)
    task = make_task(s["task"], tokenizer)
    flat = FlatParameters(policy)
    optimizer = torch.optim.AdamW(
        [flat.value],
        lr=cell.lr,
        betas=(s["adam_beta1"], s["adam_beta2"]),
        eps=s["adam_eps"],
        weight_decay=s["weight_decay"],
    )
    n, group = s["prompts_per_step"], s["group_size"]
    for t in range(12):
        problems = task.problems(n, generator("data", cell.seed, t))
        shape = (n * group, task.max_response_tokens)
        uniform = torch.rand(shape, generator=generator("rollout", cell.seed, t))
        rollouts = sample(
            policy,
            problems.prompt,
            problems.prompt_length,
            samples=group,
            max_new_tokens=task.max_response_tokens,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            uniform=uniform,
        )
        reward = task.reward(problems, rollouts.tokens, group).view(n, group)
        packed = pack(problems.prompt, problems.prompt_length, rollouts.tokens, rollouts.lengths, group)
        with torch.no_grad():
            reference_logprob, _ = token_logprobs(reference, packed)
        logprob, _ = token_logprobs(policy, packed)
        advantage = grpo.group_advantage(reward, 1, s["advantage_eps"]).flatten()[packed.row]
        loss = grpo.surrogate(logprob, logprob.detach(), advantage, 0.2, 0.2, 3.0).loss.mean()
        loss = loss + s["kl_coef"] * grpo.kl_k3(logprob, reference_logprob).mean()
        flat.grad.zero_()
        loss.backward()
        norm = flat.grad.norm().item()
        if norm > 1:
            flat.grad.mul_(1 / (norm + 1e-6))
        optimizer.step()
    for mine, theirs in zip(asynchronous.parameters(), policy.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_same_seed_same_record(make_cell, start, tmp_path):
    first = untimed(run(make_cell(), start, tmp_path / "a"))
    assert untimed(run(make_cell(), start, tmp_path / "b")) == first
    assert untimed(run(make_cell(seed=4), start, tmp_path / "c")) != first


def test_data_and_start_do_not_depend_on_interval_or_rate(make_cell, start, tmp_path):
    """The first batch is the same in all cells; at rate ~0 so is every later one."""
    first, frozen = [], []
    for i, (S, lr) in enumerate([(1, 1e-3), (4, 2e-3), (8, 1e-4)]):
        record = read_run(run(make_cell(S, lr), start, tmp_path / f"a{i}"))
        first.append((record.steps.reward_mean[0], record.steps.grad_norm[0], record.steps.tokens[0]))
        record = read_run(run(make_cell(S, 1e-30), start, tmp_path / f"b{i}"))
        frozen.append(record.steps[["reward_mean", "tokens"]].to_numpy().tolist())
    assert first[0] == first[1] == first[2]
    assert frozen[0] == frozen[1] == frozen[2]


@pytest.mark.slow
def test_killed_five_times(start, tmp_path):
    """SIGKILL at random updates and a restart each time give the uninterrupted record."""
    params = yaml.safe_load((ROOT / "params.yaml").read_text())
    params["studies"]["smoke"]["settings"] |= {
        "horizon_updates": 240,
        "checkpoint_every_updates": 16,
    }
    (tmp_path / "workflow" / "schemas").mkdir(parents=True)
    schema = "workflow/schemas/params.schema.yaml"
    (tmp_path / schema).write_text((ROOT / schema).read_text())
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(params))
    cell = "recomputed_tiny_S8_eta1e-3_seed11"

    def command(folder: str) -> list[str]:
        return [
            *(sys.executable, "-m", "collapse_laws", "train", "--study", "smoke", "--cell", cell),
            *("--model-dir", str(start), "--work", f"{folder}/work"),
            *("--checkpoints", f"{folder}/checkpoints", "--out", f"{folder}/run"),
        ]

    def rows(path: Path) -> int:
        return path.read_bytes().count(b"\n") if path.exists() else 0

    dice = random.Random(5)
    kills = sorted(dice.sample(range(5, 220), 5))
    steps = tmp_path / "killed" / "work" / "steps.jsonl"
    for kill_at in kills:
        process = subprocess.Popen(command("killed"), cwd=tmp_path, stderr=subprocess.DEVNULL)
        while rows(steps) < kill_at and process.poll() is None:
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    with open(steps, "a") as file:
        file.write('{"t":')  # as if it had been killed while writing
    for folder in ("killed", "whole"):
        done = subprocess.run(command(folder), cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    assert untimed(tmp_path / "killed" / "run") == untimed(tmp_path / "whole" / "run")
    assert not (tmp_path / "killed" / "work").exists()


def test_terminated_run_saves_and_goes_on(make_cell, start, tmp_path, monkeypatch):
    """SIGTERM in the middle of a cycle: the update at hand is finished, saved, and nothing repeated."""
    cell = make_cell(checkpoint_every_updates=1000)
    whole = untimed(run(cell, start, tmp_path / "whole"))
    update, calls = Learner._update, []

    def terminate_at_seven(self, experience):
        calls.append(self.progress.t)
        if self.progress.t == 6 and len(calls) == 7:
            os.kill(os.getpid(), signal.SIGTERM)
        return update(self, experience)

    monkeypatch.setattr(Learner, "_update", terminate_at_seven)
    with pytest.raises(Preempted):
        run(cell, start, tmp_path / "cut")
    assert len((tmp_path / "cut/work/steps.jsonl").read_text().splitlines()) == 7
    record = run(cell, start, tmp_path / "cut")
    assert calls == list(range(16))
    assert untimed(record) == whole
    assert json.loads((record / "run.json").read_text())["timings"]["sessions"] == 2


def test_collapse_stops_the_run(make_cell, start, tmp_path):
    record = read_run(
        run(
            make_cell(8, 0.5, horizon_updates=400, stop_patience_snapshots=3, stop_patience_lr_budget=0.0),
            start,
            tmp_path,
        )
    )
    assert record.manifest["stop_reason"] == "collapse"
    assert len(record.steps) == record.manifest["updates"] < 400
    assert record.snapshots.reward_mean.iloc[-1] < 0.1 < record.snapshots.reward_mean[0]


def test_a_loss_that_is_not_finite_ends_the_run_as_failed(make_cell, start, tmp_path, monkeypatch):
    surrogate = grpo.surrogate

    def infinite(logprob, *args):
        return surrogate(logprob * float("inf"), *args)

    monkeypatch.setattr(grpo, "surrogate", infinite)
    record = read_run(run(make_cell(), start, tmp_path))
    assert record.manifest["stop_reason"] == "failed"
    assert len(record.steps) == 1
    assert record.steps.grad_norm.isna().all()


def half_done(cell, start, folder: Path) -> Path:
    """A run with a saved state in `work`, as a kill leaves it."""
    work = folder / "work"
    work.mkdir(parents=True)
    learner = Learner(cell, start, work, folder / "checkpoints")
    learner.stop_requested = True
    with pytest.raises(Preempted):
        learner.run(lambda: None)
    learner.writer.close()
    return work


def test_damaged_state_is_named(make_cell, start, tmp_path):
    work = half_done(make_cell(), start, tmp_path)
    data = (work / "state.pt").read_bytes()
    for damage in (data[: len(data) // 2], b"", b"no checkpoint at all"):
        (work / "state.pt").write_bytes(damage)
        with pytest.raises(UserError, match=r"state\.pt is damaged"):
            run(make_cell(), start, tmp_path)
    assert (work / "steps.jsonl").read_text()


def test_state_of_other_settings_is_refused(make_cell, start, tmp_path):
    half_done(make_cell(), start, tmp_path)
    with pytest.raises(UserError, match="saved with other settings"):
        run(make_cell(kl_coef=0.5), start, tmp_path)


def test_state_of_another_learner_is_refused(make_cell, start, tmp_path):
    work = half_done(make_cell(), start, tmp_path)
    (work / "cell.json").write_text(json.dumps({"settings_digest": make_cell().digest, "source_fingerprint": "0" * 16}))
    with pytest.raises(UserError, match="a run of another learner"):
        run(make_cell(), start, tmp_path)


def test_rows_from_before_the_first_checkpoint_do_not_enter_a_run_of_other_settings(make_cell, start, tmp_path):
    work = half_done(make_cell(kl_coef=0.5), start, tmp_path)
    (work / "state.pt").unlink()
    assert (work / "steps.jsonl").read_text()
    mixed = run(make_cell(), start, tmp_path)
    assert untimed(mixed) == untimed(run(make_cell(), start, tmp_path / "afresh"))


def test_second_start_is_refused(make_cell, start, tmp_path, monkeypatch):
    def start_again(self, *_):
        with pytest.raises(UserError, match="being trained already"):
            run(self.cell, start, tmp_path)
        return "horizon"

    monkeypatch.setattr(Learner, "run", start_again)
    (tmp_path / "work").mkdir()
    for name in ("steps.jsonl", "snapshots.jsonl"):
        (tmp_path / "work" / name).touch()
    run(make_cell(), start, tmp_path)


def test_full_disk_loses_no_complete_row(start, tmp_path, monkeypatch, capsys):
    """A disk that fills up after ten rows: one sentence, exit code 2, ten rows, and the run goes on later."""
    append, written = runrecord.RowWriter.append, []

    def fills_up(self, row):
        if len(written) == 10:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
        written.append(row)
        append(self, row)

    args = ["train", "--params", str(ROOT / "params.yaml"), "--study", "smoke"]
    args += ["--cell", "recomputed_tiny_S2_eta2e-3_seed11", "--model-dir", str(start)]
    args += ["--work", str(tmp_path / "work"), "--checkpoints", str(tmp_path / "ck")]
    args += ["--out", str(tmp_path / "run")]
    monkeypatch.setattr(runrecord.RowWriter, "append", fills_up)
    assert main(args) == 2
    error = capsys.readouterr().err
    assert "No space left on device" in error
    assert "Traceback" not in error
    rows = sum(len((tmp_path / "work" / f).read_text().splitlines()) for f in ("steps.jsonl", "snapshots.jsonl"))
    assert rows == 10
    monkeypatch.setattr(runrecord.RowWriter, "append", append)
    assert main(args) == 0
    assert len(read_run(tmp_path / "run").steps) == 16


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_study_for_a_gpu_says_so(make_cell, start, tmp_path):
    import dataclasses

    with pytest.raises(UserError, match="there is none here"):
        run(dataclasses.replace(make_cell(), device="cuda"), start, tmp_path)


def test_no_checkpoint_to_start_from(make_cell, tmp_path):
    with pytest.raises(UserError, match=r"config\.json is missing"):
        run(make_cell(), tmp_path / "nowhere", tmp_path)


def test_a_start_made_for_another_task_is_refused(make_cell, start, tmp_path):
    copy = tmp_path / "start"
    shutil.copytree(start, copy)
    found = json.loads((copy / "warmstart.json").read_text())
    (copy / "warmstart.json").write_text(json.dumps(found | {"settings_digest": "0" * 16}))
    with pytest.raises(UserError, match="was made with settings 0000000000000000, but"):
        run(make_cell(), copy, tmp_path)
    (copy / "warmstart.json").write_text("{")
    with pytest.raises(UserError, match=r"warmstart\.json is damaged"):
        run(make_cell(), copy, tmp_path)
