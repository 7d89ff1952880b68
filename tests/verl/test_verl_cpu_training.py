"""The real verl trainer on the CPU through the product's own overrides, hooks, launcher and
adapter; killed once and resumed.

FullyAsyncTrainer, Rollouter, message queue, FSDP2 over two gloo ranks with a reference policy,
reward loop, validation and checkpoints, on a tiny Llama. About two minutes for the two attempts.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

pytest.importorskip("verl", reason="needs the extra `verl`")

from cpu_verl_study import SMALL_CHAINS, cpu_params, plugin_environment, write_data, write_model

from collapse_laws.runrecord import RunRecord, read_run
from collapse_laws.study import load_study
from collapse_laws.tasks.arithmetic import ChainArithmetic, character_tokenizer
from collapse_laws.verl import gpus, launch
from collapse_laws.verl.adapter import plain_log
from collapse_laws.verl.hooks import mark
from collapse_laws.warmstart import make_start

pytestmark = [pytest.mark.verl, pytest.mark.slow]
HERE = Path(__file__).resolve().parent
S, UPDATES, PROMPTS, TRAINING_PROMPTS = 4, 16, 4, 40

PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from cpu_verl_study import cpu_cell
from collapse_laws.verl import launch
base = Path(sys.argv[2])
folders = {key: base / key for key in ("work", "checkpoints", "out", "data")}
limits = launch.Limits(stall_seconds=280)
launch.train(cpu_cell(), model_dir=base / "model", limits=limits, **folders)
"""


class Run:
    """What the two attempts left behind."""

    def __init__(self, base: Path, killed_after: int) -> None:
        self.base, self.killed_after = base, killed_after
        self.record: RunRecord = read_run(base / "out")
        files = sorted((base / "out" / "attempts").glob("[0-9][0-9][0-9].jsonl"))
        self.attempts = [[json.loads(line) for line in file.read_text().splitlines()] for file in files]
        self.starts = self.record.manifest["timings"]["attempts_from_update"]

    def updates(self, attempt: int) -> list[dict[str, Any]]:
        return [line for line in self.attempts[attempt] if line["kind"] == "update"]


def start(base: Path, gradients: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, **plugin_environment(gradients)}
    environment["PYTHONPATH"] = os.pathsep.join([str(HERE.parents[1] / "src"), environment["PYTHONPATH"]])
    with open(base / "supervisor.log", "ab") as log:
        return subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(HERE), str(base)],
            env=environment,
            stdout=log,
            stderr=log,
        )


def log_end(base: Path) -> str:
    consoles = sorted((base / "work" / "attempts").glob("*/console.log"))
    tail = consoles[-1].read_text(errors="replace")[-3000:] if consoles else ""
    return (base / "supervisor.log").read_text() + tail


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    base = tmp_path_factory.mktemp("verl")
    study = load_study(cpu_params(SMALL_CHAINS), "cpu")
    make_start(study, "tiny", base / "start")
    write_model(base / "start", base / "model")
    write_data(ChainArithmetic(**SMALL_CHAINS), base / "data", TRAINING_PROMPTS, 16, seed=5)
    first = base / "work" / "attempts" / "000"
    supervisor = start(base, base / "gradients-0")
    deadline = time.monotonic() + 280
    while not (first / "updates.jsonl").exists() or '"t":9' not in (first / "updates.jsonl").read_text():
        if supervisor.poll() is not None or time.monotonic() > deadline:
            supervisor.kill()
            launch.end_processes(base / "work")
            pytest.fail(log_end(base))
        time.sleep(0.1)
    supervisor.send_signal(signal.SIGKILL)  # the supervisor and, as on a node that fails, everything with it
    supervisor.wait()
    launch.end_processes(base / "work")
    last = (first / "updates.jsonl").read_text().splitlines()[-1]
    supervisor = start(base, base / "gradients-1")
    try:
        code = supervisor.wait(timeout=280)
    finally:
        supervisor.kill()
        launch.end_processes(base / "work")
    assert code == 0, log_end(base)
    return Run(base, json.loads(last).get("t", UPDATES))


def test_every_update_is_in_the_record_once(run: Run) -> None:
    assert run.record.steps["t"].tolist() == list(range(UPDATES))
    assert run.record.manifest["updates"] == UPDATES
    assert run.record.manifest["stop_reason"] == "horizon"
    assert run.starts[0] == 0
    assert 4 <= run.starts[1] <= run.killed_after + 1
    assert run.starts[1] % S == 0
    assert [line["t"] for line in run.updates(1)] == list(range(run.starts[1], UPDATES))


def test_every_trajectory_was_sampled_by_the_snapshot_that_the_lag_names(run: Run) -> None:
    for attempt in range(2):
        for line in run.updates(attempt):
            assert line["behaviour"] == [line["t"] // S, line["t"] // S]
    assert run.record.steps["lag"].tolist() == [t % S for t in range(UPDATES)]


def test_at_each_cycle_start_the_ratio_is_one_and_the_clip_holds_nothing(run: Run) -> None:
    steps = run.record.steps
    starts = steps[steps["lag"] == 0]
    assert (starts["clip_fraction"] == 0).all()
    assert starts["ratio_max"].max() < 1 + 1e-4
    assert starts["kl_behaviour"].abs().max() < 1e-5
    assert steps.loc[steps["lag"] > 0, "ratio_max"].min() > 1 + 1e-3
    assert steps["kl_ref"][0] == pytest.approx(0, abs=1e-6)
    assert steps["kl_ref"].iloc[-1] > 1e-4


def test_the_cosine_equals_the_one_of_saved_gradients_and_its_norm_verls(run: Run) -> None:
    compared = 0
    for attempt in range(2):
        gradients = [torch.load(path) for path in sorted((run.base / f"gradients-{attempt}").glob("*.pt"))]
        lines = run.updates(attempt)
        assert len(gradients) >= len(lines)
        for i, line in enumerate(lines):
            metrics = line["metrics"]
            assert metrics["actor/grad_norm_probe"] == pytest.approx(float(gradients[i].norm()), rel=1e-6)
            assert metrics["actor/grad_norm_probe"] == pytest.approx(metrics["actor/grad_norm"], rel=1e-5)
            if i == 0:
                assert "actor/grad_cos" not in metrics, "no gradient before it in this process"
                continue
            expected = torch.nn.functional.cosine_similarity(gradients[i], gradients[i - 1], dim=0)
            assert metrics["actor/grad_cos"] == pytest.approx(float(expected), abs=1e-6)
            compared += 1
    assert compared >= 10
    missing = run.record.steps.index[run.record.steps["grad_cos"].isna()].tolist()
    assert missing == sorted({0, run.starts[1]})


def test_displacement_is_measured_from_the_start_of_the_run_across_attempts(run: Run) -> None:
    displacement = run.record.steps["displacement_rms"]
    lr = run.record.manifest["lr"]
    assert displacement[0] == pytest.approx(lr * run.record.steps["update_rms"][0], rel=0.05)
    jumps = displacement.diff().abs()[1:]
    assert jumps.max() <= lr * run.record.steps["update_rms"].max() * 1.01
    final = torch.cat([v.flatten() for v in _weights(run.base / "checkpoints" / "final")])
    first = torch.cat([v.flatten() for v in _weights(run.base / "model")])
    rms = float((final - first).double().square().mean().sqrt())
    assert displacement.iloc[-1] == pytest.approx(rms, rel=0.02)  # the policy is saved in bfloat16


def _weights(folder: Path) -> list[torch.Tensor]:
    from safetensors.torch import load_file

    state = load_file(folder / "model.safetensors")
    return [state[key].float() for key in sorted(state)]


def test_prompts_come_in_the_seeds_order_as_if_nothing_had_happened(run: Run) -> None:
    from torchdata.stateful_dataloader.sampler import RandomSampler

    sampler = RandomSampler(range(TRAINING_PROMPTS), generator=torch.Generator().manual_seed(11))
    texts = [row["prompt"][0]["content"] for row in pq.read_table(run.base / "data" / "chains.parquet").to_pylist()]
    marks = [mark(character_tokenizer()(text)["input_ids"]) for text in texts]
    order = [marks[index] for _ in range(2) for index in sampler]
    rows = {line["t"]: line["prompts"] for line in run.updates(0) if line["t"] < run.starts[1]}
    rows |= {line["t"]: line["prompts"] for line in run.updates(1)}
    for cycle in range(UPDATES // S):
        got = sorted(prompt for t in range(S * cycle, S * cycle + S) for prompt in rows[t])
        assert got == sorted(order[cycle * S * PROMPTS : (cycle + 1) * S * PROMPTS]), cycle


def test_snapshots_are_the_means_of_their_own_rollouts(run: Run) -> None:
    snapshots, steps = run.record.snapshots, run.record.steps
    assert snapshots["M"].tolist() == list(range(UPDATES // S))
    by_cycle = steps["reward_mean"].to_numpy().reshape(-1, S).mean(1)
    np.testing.assert_allclose(snapshots["reward_mean"], by_cycle, atol=1e-12)
    assert snapshots["n"].tolist() == [S * PROMPTS * 4] * (UPDATES // S)
    assert snapshots["validation_reward"].notna().tolist() == [True, False, True, False]
    assert run.record.manifest["final_validation_reward"] is not None


def test_nothing_of_the_run_is_left_running_or_in_work(run: Run) -> None:
    assert gpus.marked_processes(launch.RUN_VARIABLE, str(run.base / "work")) == []
    assert not (run.base / "work").exists()


def test_verls_own_log_has_lost_what_the_adapter_says(run: Run, tmp_path: Path) -> None:
    """The attempt's plain log against the hooks' lines: averaged over a cycle and shifted by one update."""
    record, lost = plain_log(run.base / "out" / "attempts" / "001.verl.jsonl")
    assert record.sync_interval == S
    assert len(lost) == 5
    lines = {line["t"]: np.mean(line["group_rewards"]) for line in run.updates(1)}
    for row in record.snapshots.itertuples():
        covered = [t for t in range(row.t - 1, row.t + S - 1) if t in lines]
        assert row.reward_mean == pytest.approx(np.mean([lines[t] for t in covered]), abs=1e-6)
