"""Stands for verl's main module in the launcher's tests: writes lines and checkpoints as the hooks and verl would.

FAKE_PLAN is JSON: `rewards` (by snapshot), and what to do after an update: `crash_after`,
`hang_after`, `stale_at`, `no_gradient`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

plan = json.loads(os.environ["FAKE_PLAN"])
options = dict(argument.lstrip("+").split("=", 1) for argument in sys.argv[1:])
S = int(options.get("async_training.trigger_parameter_sync_step", "4"))
prompts = int(options["actor_rollout_ref.actor.ppo_mini_batch_size"])
updates = int(options["rollout.total_rollout_steps"]) // prompts
states = Path(json.loads(options["trainer.default_local_dir"]))
every = int(options["trainer.save_freq"])
resume = json.loads(options.get("trainer.resume_from_path", '""'))
start = int(resume.rsplit("_", 1)[1]) if resume else 0
attempt = int(Path.cwd().name)
assert int(os.environ["COLLAPSE_LAWS_VERL_CONSUMED"]) == start * S * prompts


def write(line: dict) -> None:
    with open(os.environ["COLLAPSE_LAWS_VERL_LOG"], "a") as file:
        file.write(json.dumps(line) + "\n")


if plan.get("detached"):  # as Ray does
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"], start_new_session=True)
for t in range(start * S, updates):
    version = t // S
    behaviour = version - 1 if t == plan.get("stale_at") else version
    reward = plan["rewards"][min(version, len(plan["rewards"]) - 1)]
    metrics = {"actor/lr": float(options["actor_rollout_ref.actor.optim.lr"]), "attempt": attempt}
    if not plan.get("no_gradient"):
        metrics["actor/grad_norm"] = 1.0
    line = {
        "kind": "update",
        "t": t,
        "version": version,
        "behaviour": [behaviour, behaviour],
        "group_rewards": [reward] * prompts,
    }
    line |= {
        "group_sizes": [4] * prompts,
        "degenerate_groups": 0,
        "tokens": 10,
        "truncated": 0,
        "entropy": 0.5,
    }
    write({**line, "prompts": list(range(prompts)), "seconds": 0.1, "metrics": metrics})
    if behaviour != version:
        write({"kind": "fault", "t": t, "error": f"update {t} learned from the wrong version."})
        sys.exit(1)
    if (t + 1) % (S * every) == 0:
        done = (t + 1) // S
        weights = states / f"global_step_{done}" / "actor" / "huggingface"
        weights.mkdir(parents=True)
        (weights / "weights").write_text(str(done))
        (states / "latest_checkpointed_iteration.txt").write_text(str(done))
    if attempt == 0 and t == plan.get("crash_after"):
        sys.exit(7)
    if attempt == 0 and t == plan.get("hang_after"):
        time.sleep(300)
    time.sleep(plan.get("pace", 0.0))
