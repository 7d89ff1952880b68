"""One run of 48 learner updates in every shape that a trainer may log it; S=4, collapse in batch 9, partial drop in
batch 8.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import pprint
from collections.abc import Callable
from pathlib import Path

S, UPDATES, M, STEP, PARTIAL = 4, 48, 9, 36, 8
_LEVELS = [0.392, 0.445, 0.486, 0.546, 0.605, 0.652, 0.694, 0.748, 0.509, 0.021, 0.022, 0.023]
REWARDS = [_LEVELS[t // S] + 0.008 * math.sin(2.4 * t + 1) for t in range(UPDATES)]
LR = 1e-6
BAR = "\u2588\u2588\u258c"


def averages(every: int) -> list[tuple[int, float]]:
    """(step counted from 1, mean over the `every` updates it closes)."""
    return [(s, sum(REWARDS[s - every : s]) / every) for s in range(every, UPDATES + 1, every)]


def verl_line(step: int, wrap: bool = False) -> str:
    number = (lambda v: f"np.float64({v!r})") if wrap else repr
    values = {
        "global_seqlen/mean": 69484.0,
        "actor/entropy": 0.13,
        "actor/pg_loss": 1e-3,
        "actor/pg_clipfrac": 5e-3,
        "actor/ppo_kl": 2e-4,
        "actor/grad_norm": 2.0,
        "actor/lr": LR,
        "training/global_step": step,
        "training/epoch": 0,
        "critic/score/mean": REWARDS[step - 1],
        "critic/score/max": 1.0,
        "critic/score/min": 0.0,
        "critic/rewards/mean": REWARDS[step - 1],
        "response_length/mean": 161.7,
    }
    return f"step:{step} - " + " - ".join(f"{key}:{number(value)}" for key, value in values.items())


def bar(step: int, total: int = UPDATES, what: str = "") -> str:
    return f"{what}{100 * step // total:3d}%|{BAR:10s}| {step}/{total} [1:10:40<6:31:06, 64.47s/it]"


def trl_dict(step: int, reward: float, quoted: bool = False, **more: float) -> str:
    values = {
        "loss": 0.0,
        "grad_norm": 1.78,
        "learning_rate": LR,
        "num_tokens": 4096.0 * step,
        "completions/mean_length": 232.8,
        "rewards/accuracy_reward/mean": reward,
        "rewards/accuracy_reward/std": 0.3,
        "reward": reward,
        "reward_std": 0.4,
        "frac_reward_zero_std": 0.2,
        "kl": 0.001,
        "clip_ratio/region_mean": 0.01,
        "epoch": round(step / UPDATES, 2),
        **more,
    }
    return str({key: f"{value:.4g}" for key, value in values.items()} if quoted else values)


def _lines(lines: list[str]) -> bytes:
    return ("\n".join(lines) + "\n").encode()


def console(prefix: str = "", wrap: bool = False, bars: bool = True, colour: bool = False) -> bytes:
    lines = [
        f"{prefix}Total training steps: {UPDATES}",
        "INFO loading checkpoint shards: 100%|##| 2/2 [00:01<00:00]",
        f"{prefix}step:0 - val-core/math/reward/mean@1:0.31",
    ]
    for step in range(1, UPDATES + 1):
        lines.append((f"\x1b[36m{prefix.rstrip()}\x1b[0m " if colour else prefix) + verl_line(step, wrap))
        if bars:
            lines.append("\r" + bar(step, what="Training Progress: "))
    return _lines(lines)


def one_metric_a_line() -> bytes:
    lines = []
    for step in range(1, UPDATES + 1):
        lines += [
            f"(TaskRunner pid=3165) step:{step} - actor/lr:{LR}",
            bar(step, what="Training Progress: "),
            f"(TaskRunner pid=3165) step:{step} - critic/score/mean:{REWARDS[step - 1]}",
            f"(TaskRunner pid=3165) step:{step} - training/global_step:{step}",
        ]
    return _lines(lines)


def metric_lines_under_a_step() -> bytes:
    lines = []
    for step in range(1, UPDATES + 1):
        lines += [
            f"step:{step}",
            f"critic/score/mean:{REWARDS[step - 1]}",
            f"actor/lr:{LR}",
            "",
            "some noise",
        ]
    return _lines(lines)


def resumed_console() -> bytes:
    lines = [verl_line(step) for step in range(1, 31)]
    cut = verl_line(31)[:-90]  # killed while it was being written; the next job appends to the same line
    tail = ["(TaskRunner pid=77) " + verl_line(step) for step in range(21, UPDATES + 1)]
    return _lines([*lines, cut + tail[0], *tail[1:]])


def resumed_jsonl() -> bytes:
    rows = [json.dumps({"step": s, "reward": REWARDS[s - 1]}) for s in [*range(1, 27), *range(21, UPDATES + 1)]]
    rows.insert(26, '{"step": 27, "rew')
    return _lines(rows)


def fully_async_rows() -> list[dict]:
    rows = []
    for v in range(1, UPDATES // S + 1):
        covered = REWARDS[max(0, (v - 1) * S - 1) : v * S - 1]
        mean = sum(covered) / len(covered)
        rows.append({"step": v, "data": {"fully_async/rollouter/idle_ratio": 0.2}})
        if v % 2 == 0:
            rows.append({"step": v, "data": {"val-core/math/acc/mean@1": 0.5}})
        rows.append(
            {
                "step": v,
                "data": {
                    "training/global_step": v * S - 1,
                    "fully_async/count/current_param_version": v - 1,
                    "critic/score/mean": mean,
                    "critic/rewards/mean": mean,
                    "actor/lr": LR,
                },
            }
        )
    return rows


def fully_async_console() -> bytes:
    lines = []
    for row in fully_async_rows():
        body = " - ".join(f"{key}:{float(value)!r}" for key, value in row["data"].items())
        lines.append(f"\x1b[36m(FullyAsyncTrainer pid=15735, ip=10.0.0.3)\x1b[0m step:{row['step']} - {body}")
    return _lines(lines)


def printed(every: int, style: str, quoted: bool = False, nan: bool = False) -> bytes:
    """TRL's console: `before` (bar, dictionary), `after` (dictionary, bar), `redrawn` (both, with carriage returns),
    `plain`.
    """
    out = io.StringIO()
    out.write("Loading checkpoint shards: 100%|##| 2/2 [00:01<00:00]\n")
    if style != "plain":
        out.write("\r" + bar(0))
    values = dict(averages(every))
    for step in range(1, UPDATES + 1):
        text = None
        if step in values:
            text = trl_dict(
                step,
                values[step],
                quoted,
                **({"kl_nan": math.nan, "loss": math.nan} if nan else {}),
            )
        if style == "after" and text:
            out.write("\n" + text + "\n")
        if style != "plain":
            out.write("\r" + bar(step))
        if style == "before" and text:
            out.write("\n" + text + "\n")
        if style == "redrawn" and text:
            out.write("\r" + " " * 60 + "\r" + text + "\r\n" + bar(step))
        if style == "plain" and text:
            out.write(text + "\n")
        if style == "redrawn" and step % 12 == 0:
            for i in range(1, 5):
                out.write("\r" + bar(i, 4))
            out.write("\n{'eval_loss': 0.1, 'eval_reward': 0.5, 'epoch': 0.2}\n")
    out.write("{'train_runtime': 1233.2, 'train_loss': 0.0, 'epoch': 1.0}\n")
    return out.getvalue().encode()


def printed_without_bars(every: int, rewarded: int, summary: bool) -> bytes:
    """Dictionaries alone, one every `every` updates; the reward is in one of `rewarded` of them, as with several
    updates a generation batch.
    """
    lines = []
    for number, (step, reward) in enumerate(averages(every)):
        text = trl_dict(step, reward, quoted=True)
        if number % rewarded:
            text = str(
                {"loss": "0.0001", "grad_norm": "1.2", "learning_rate": str(LR), "entropy": "2.8", "epoch": "0.03"}
            )
        lines.append(text)
    speed = {"train_runtime": "9.4", "train_steps_per_second": f"{UPDATES / 9.4:.4g}"} if summary else {}
    lines.append(str({**speed, "train_loss": "-2.95e-05", "epoch": "0.3281"}))
    return _lines(lines)


def json_rows(step_name: str, reward_name: str, first: int = 1, nested: str | None = None, every: int = 1) -> bytes:
    rows = []
    for step, reward in averages(every):
        metrics = {reward_name: reward, "lr": LR, "loss": 0.1}
        rows.append(json.dumps({step_name: step - 1 + first, **({nested: metrics} if nested else metrics)}))
    return _lines(rows)


def wandb_csv(run: str = "grpo-run-1", metric: str = "critic/score/mean", step: str = "Step", first: int = 1) -> bytes:
    name = f"{run} - {metric}"
    lines = [",".join(f'"{cell}"' for cell in (step, name, f"{name}__MIN", f"{name}__MAX"))]
    lines += [",".join(f'"{cell}"' for cell in (t + first, r, r - 0.2, r + 0.2)) for t, r in enumerate(REWARDS)]
    return _lines(lines)


def table(step: str, reward: str, mark: str = ",", first: int = 1) -> bytes:
    return _lines(
        [mark.join([step, "loss", reward])]
        + [mark.join([str(t + first), "0.1", repr(r)]) for t, r in enumerate(REWARDS)]
    )


def printed_under_panels(bars: bool) -> bytes:
    """TRL with log_completions: a table of samples titled "Step 3" before each dictionary."""
    lines = []
    for step, reward in averages(1):
        lines += [
            f"\u256d\u2500\u2500 Step {step} \u2500\u2500\u256e",
            "\u2502 \u2502 Solve 2 \u2502 step 3: x=4 \u2502 1.00 \u2502 0.71 \u2502 \u2502",
            "\u2570\u2500\u2500\u2500\u2500\u256f",
            *([bar(step)] if bars else []),
            trl_dict(step, reward),
        ]
    return _lines(lines)


def slime_console() -> bytes:
    """The reward's line names the rollout, the step's line comes after it; `rollout/rewards` are normalised."""
    lines = []
    for t, reward in enumerate(REWARDS):
        rollout = {"rollout/response_lengths": 161.7, "rollout/rewards": 1e-9, "rollout/raw_reward": reward}
        lines += [
            f"(MegatronTrainRayActor pid=99) data.py:120 - rollout {t}: {rollout}",
            f"(MegatronTrainRayActor pid=99) model.py:551 - step {t}: { ({'train/lr-pg_0': LR, 'train/step': t}) }",
            f"(RolloutManager pid=98) perf {t}: { ({'perf/step_time': 64.4, 'rollout/step': t}) }",
        ]
    return _lines(lines)


def with_evaluation(name: str, word: str) -> list[dict]:
    """Rows of training and, at every second step, of held-out data, which only the text of a field tells apart."""
    rows = []
    for step, reward in averages(1):
        rows.append({name: "train", "step": step, "reward": reward})
        if step % 2 == 0:
            rows.append({name: word, "step": step, "reward": 0.8})
    return rows


def printed_over_lines(every: int, ends: str = "\n", prefix: str = "") -> bytes:
    """Dictionaries by pprint: keys sorted, one a line, the step last; a configuration and prose among them."""
    lines = ["{'trainer': {'steps': None,", "             'lr': 1e-06}}", "config = {", "prose of a reward: none", ""]
    for step, reward in averages(every):
        values = {"learning_rate": LR, "loss": 0.0, "num_tokens": 4096.0, "reward": reward, "step": step, "zeta": 1}
        lines += pprint.pformat(values, width=20).splitlines()
    return (ends.join(prefix + line for line in lines) + ends).encode()


def step_below(lines_of: Callable[[int, float], list[str]], every: int = 1) -> bytes:
    return _lines([line for step, reward in averages(every) for line in lines_of(step, reward)])


STEP_NAMES = (
    "train_step train_steps trainStep train/step global_steps globalStep current_step current_steps opt_step rl_step "
    "rl/step outer_step actor/step step_idx step_id n_step global_iteration progress/batch"
).split()

VARIANTS: dict[str, Callable[[], bytes]] = {
    "console": console,
    "console ray": lambda: console("(TaskRunner pid=3165) "),
    "console ray ip": lambda: console("(TaskRunner pid=3165, ip=10.1.2.3) ", wrap=True),
    "console colour": lambda: console("(main_task pid=1) ", wrap=True, colour=True),
    "console colour lost": lambda: console("(main_task pid=1) ", colour=True).replace(b"\x1b", b""),
    "console windows": lambda: console("(main_task pid=1) ").replace(b"\n", b"\r\n"),
    "console utf16": lambda: console().decode().encode("utf-16"),
    "console timestamps": lambda: b"".join(
        b"2026-11-29 17:55:47,123 INFO " + line for line in console(bars=False).splitlines(True)
    ),
    "console no newline": lambda: console(bars=False).rstrip(b"\n"),
    "one metric a line": one_metric_a_line,
    "metrics under a step": metric_lines_under_a_step,
    "resumed console": resumed_console,
    "resumed jsonl": resumed_jsonl,
    "doubled lines": lambda: b"".join(line + line for line in console(bars=False).splitlines(True)),
    "fully async": lambda: _lines([json.dumps(row) for row in fully_async_rows()]),
    "fully async console": fully_async_console,
    "fully async no global step": lambda: _lines(
        [
            json.dumps(
                {
                    "step": r["step"],
                    "data": {k: v for k, v in r["data"].items() if k != "training/global_step"},
                }
            )
            for r in fully_async_rows()
        ]
    ),
    "verl file": lambda: _lines(
        [
            json.dumps(
                {
                    "step": s,
                    "data": {"critic/score/mean": r, "training/global_step": s, "actor/lr": LR},
                }
            )
            for s, r in averages(1)
        ]
    ),
    "state": lambda: json.dumps(
        {
            "global_step": UPDATES,
            "log_history": [
                {"reward": r, "learning_rate": LR, "step": s, "epoch": s / UPDATES, "kl": math.nan}
                for s, r in averages(2)
            ]
            + [{"train_runtime": 1.0, "step": UPDATES}],
        }
    ).encode(),
    "state indented": lambda: json.dumps(
        {"log_history": [{"reward": r, "step": s} for s, r in averages(4)]}, indent=2
    ).encode(),
    "state logging_first_step": lambda: json.dumps(
        {"log_history": [{"reward": REWARDS[0], "step": 1}] + [{"reward": r, "step": s} for s, r in averages(4)]}
    ).encode(),
    "printed before": lambda: printed(1, "before"),
    "printed after": lambda: printed(1, "after"),
    "printed redrawn": lambda: printed(1, "redrawn", quoted=True),
    "printed before 2": lambda: printed(2, "before", nan=True),
    "printed after 2": lambda: printed(2, "after"),
    "printed redrawn 2": lambda: printed(2, "redrawn", quoted=True, nan=True),
    "printed redrawn 4": lambda: printed(4, "redrawn"),
    "printed plain": lambda: printed(1, "plain"),
    "printed plain, every second reward": lambda: printed_without_bars(1, 2, summary=False),
    "printed plain, every second reward and a summary": lambda: printed_without_bars(1, 2, summary=True),
    "printed plain, logging every 4": lambda: printed_without_bars(4, 1, summary=True),
    "jsonl reward": lambda: json_rows("step", "reward"),
    "jsonl zero based": lambda: json_rows("step", "mean_reward", first=0),
    "jsonl global_step": lambda: json_rows("global_step", "train/reward"),
    "jsonl iteration": lambda: json_rows("iteration", "reward_mean", first=0),
    "jsonl nested": lambda: json_rows("step", "reward/mean", nested="metrics"),
    "jsonl nested twice": lambda: _lines(
        [json.dumps({"step": s, "train": {"reward": {"mean": r, "std": 0.1}}}) for s, r in averages(1)]
    ),
    "jsonl rollout": lambda: json_rows("rollout_id", "rollout/raw_reward", first=0),
    "jsonl update score": lambda: json_rows("update", "objective/scores"),
    "jsonl accuracy": lambda: json_rows("train_step", "accuracy"),
    "jsonl every 2": lambda: json_rows("step", "reward", every=2),
    "jsonl every 4": lambda: json_rows("step", "reward", every=4),
    "jsonl every 3": lambda: json_rows("step", "reward", every=3),
    "jsonl long": lambda: _lines(
        [
            json.dumps({"step": s, "name": n, "value": v})
            for s, r in averages(1)
            for n, v in (("train/reward", r), ("train/lr", LR))
        ]
    ),
    **{
        f"jsonl step {name}": lambda name=name: json_rows(name, "reward", every=2)  # type: ignore[misc]
        for name in STEP_NAMES
    },
    "jsonl position": lambda: _lines(
        [json.dumps({"reward": r, "global_step/max_steps": f"{s}/{UPDATES}"}) for s, r in averages(2)]
    ),
    "jsonl planned steps": lambda: _lines(
        [json.dumps({"n_step": 5, "total_steps": 48, "current_steps": s, "reward": r}) for s, r in averages(2)]
    ),
    "jsonl slime": lambda: _lines(
        [
            json.dumps({"rollout/step": t, "rollout/rewards": 1e-9, "rollout/raw_reward": r})
            for t, r in enumerate(REWARDS)
        ]
    ),
    "jsonl mode": lambda: _lines([json.dumps(row) for row in with_evaluation("mode", "val")]),
    "jsonl split": lambda: _lines([json.dumps(row) for row in with_evaluation("split", "math_test")]),
    "jsonl long split": lambda: _lines(
        [
            json.dumps({"step": row["step"], "subset": row["subset"], "metric": "reward", "value": row["reward"]})
            for row in with_evaluation("subset", "validation")
        ]
    ),
    "csv phase": lambda: _lines(
        ["phase,step,reward"] + [",".join(map(str, row.values())) for row in with_evaluation("phase", "Eval")]
    ),
    "text mode": lambda: _lines([str(row) for row in with_evaluation("mode", "eval")]),
    "slime console": slime_console,
    "printed under panels": lambda: printed_under_panels(bars=True),
    "printed under panels without bars": lambda: printed_under_panels(bars=False),
    "printed after a line on the step": lambda: b"  Continuing training from global step 0\n" + printed(2, "before"),
    "printed over lines": lambda: printed_over_lines(2),
    "printed over lines by ray": lambda: printed_over_lines(1, "\r\n", "(TaskRunner pid=3165) "),
    "step below its metrics": lambda: step_below(lambda s, r: [f"reward: {r}", f"step: {s}"]),
    "step below several metrics": lambda: step_below(
        lambda s, r: ["-----", f"lr: {LR}", "loss: 0.1", f"reward: {r}", f"step: {s}"], every=2
    ),
    "boxed table": lambda: step_below(
        lambda s, r: [
            f"StatsLogger INFO: Epoch 1/1 Step {s}/{UPDATES} Train step {s}/{UPDATES} done.",
            "\u256d\u2500\u2500\u252c\u2500\u2500\u256e",
            f"\u2502 grpo_actor/task_reward/avg \u2502 {r:.4e} \u2502",
            f"\u2502 grpo_actor/update/lr       \u2502 {LR:.4e} \u2502",
            "\u2502 grpo_actor/task_reward/max \u2502 1.0000e+00 \u2502",
        ]
    ),
    "table of signs": lambda: step_below(
        lambda s, r: ["-" * 20, "| rollout/ |  |", f"|  ep_rew_mean | {r:.4f} |", f"|  iterations | {s} |", "-" * 20]
    ),
    "jsonl with commas": lambda: json_rows("step", "reward").replace(b"\n", b",\n"),
    "jsonl old line ends": lambda: json_rows("step", "reward").replace(b"\n", b"\r"),
    "jsonl of text": lambda: _lines(
        [json.dumps({"log": line + "\n", "stream": "stdout"}) for line in console().decode().splitlines()]
    ),
    "json list still open": lambda: b"[\n" + json_rows("step", "reward").replace(b"\n", b",\n"),
    "json objects indented": lambda: "\n".join(
        json.dumps({"reward": r, "step": s}, indent=1) for s, r in averages(2)
    ).encode(),
    "json pandas": lambda: json.dumps(
        {"step": {str(t): t for t in range(48)}, "reward": {str(t): r for t, r in enumerate(REWARDS)}}
    ).encode(),
    "verl file utf16": lambda: VARIANTS["verl file"]().decode().encode("utf-16"),
    "state behind a long head": lambda: json.dumps(
        {
            "config": "x" * 70_000,
            "log_history": [{"reward": r, "step": s} for s, r in averages(2)],
        }
    ).encode(),
    "jsonl strings": lambda: _lines([json.dumps({"step": str(s), "reward": f"{r:.5f}"}) for s, r in averages(1)]),
    "jsonl no step": lambda: _lines([json.dumps({"reward": r}) for _, r in averages(1)]),
    "json list": lambda: json.dumps([{"step": s, "reward": r} for s, r in averages(1)]).encode(),
    "json list indented": lambda: json.dumps([{"step": s, "reward": r} for s, r in averages(1)], indent=1).encode(),
    "json columns": lambda: json.dumps({"step": list(range(1, 49)), "reward": REWARDS}).encode(),
    "wandb csv": wandb_csv,
    "wandb csv dashed": lambda: wandb_csv("grpo - S4 - seed 1", "train/reward", "train/global_step"),
    "wandb csv zero": lambda: wandb_csv(metric="reward", first=0),
    "csv": lambda: table("step", "reward"),
    "csv semicolon": lambda: table("iteration", "mean_reward", ";"),
    "csv tab": lambda: table("global_step", "critic/score/mean", "\t"),
    "csv bom": lambda: b"\xef\xbb\xbf" + table("Step", "Reward"),
    "csv tensorboard": lambda: _lines(
        ["Wall time,Step,Value"] + [f"1690000000.{t},{t + 1},{r}" for t, r in enumerate(REWARDS)]
    ),
    "csv history": lambda: _lines(
        ["_runtime,_step,_timestamp,train/global_step,train/reward"]
        + [f"{t * 10.5},{2 * t},{1.7e9 + t},{t + 1},{r}" for t, r in enumerate(REWARDS)]
    ),
    "text equals": lambda: _lines([f"[2026-11-29] step={s} reward={r:.5f} lr={LR}" for s, r in averages(1)]),
    "text bars": lambda: _lines(
        [f"Step {s}/{UPDATES} | loss: 0.1 | mean reward: {r:.5f} | max reward: 1.0" for s, r in averages(1)]
    ),
    "text spaced": lambda: _lines([f"step {s} reward {r:.5f} lr {LR}" for s, r in averages(1)]),
    "text postfix": lambda: "".join(
        "\r" + bar(s)[:-1] + f", reward={r:.4f}, lr={LR}]" for s, r in averages(1)
    ).encode(),
    "text tensor": lambda: _lines([f"step: {s}, reward: tensor({r:.5f}, device='cuda:0')" for s, r in averages(1)]),
    "text json inside": lambda: _lines([f"INFO:root:{json.dumps({'step': s, 'reward': r})}" for s, r in averages(1)]),
    "plus minus one": lambda: _lines([json.dumps({"step": s, "reward": 2 * r - 1}) for s, r in averages(1)]),
    "gzip": lambda: gzip.compress(console("(TaskRunner pid=3165) ")),
    "gzip jsonl": lambda: gzip.compress(json_rows("step", "reward")),
}


def write(name: str, folder: Path) -> Path:
    """The variant as a file without a telling suffix: kinds are recognised by content."""
    path = folder / "some.log"
    path.write_bytes(VARIANTS[name]())
    return path
