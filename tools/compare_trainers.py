"""Train cells of the proxy with the local learner and with the real verl on the CPU, and compare.

    python tools/compare_trainers.py --out comparison [--arm lowerclipoff] [--lr 4e-3 4e-4]

Both trainers get the same model, task, settings and horizon. They cannot get the same samples:
prompts of the local learner are drawn afresh for every batch, verl goes through a file of
`--prompts` of them (many more than a run uses), and the generators differ. So the labels must
agree, the first rollout batch (one policy, two samplers) must agree within its sampling error, and
z = difference / its standard error is given for every batch up to the first that has fallen.

The arm `recomputed` has no counterpart in verl: its fully-async trainer forms the ratio to the
behaviour snapshot in both of its modes. Exit code 0: they agree, 1: they do not. verl takes about
two seconds an update of 128 rollouts on one core, and 45 to start.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "verl"))

from cpu_verl_study import plugin_environment, verl_settings, write_data, write_model  # noqa: E402

from collapse_laws import collapse, session  # noqa: E402
from collapse_laws.errors import UserError  # noqa: E402
from collapse_laws.runrecord import RunRecord, read_run, write_json  # noqa: E402
from collapse_laws.study import Study, load_params, load_study  # noqa: E402
from collapse_laws.tasks.arithmetic import ChainArithmetic  # noqa: E402
from collapse_laws.verl import launch  # noqa: E402
from collapse_laws.warmstart import make_start  # noqa: E402


def studies(args: argparse.Namespace) -> tuple[Study, Study]:
    """The same cells as a local study and as a verl study."""
    proxy = load_params(ROOT / "params.yaml")["studies"]["proxy"]
    if args.arm not in proxy["arms"] or proxy["arms"][args.arm]["ratio"] != "behaviour":
        raise UserError(f"--arm {args.arm!r} is not allowed; allowed: the proxy's arms with ratio: behaviour.")
    block = {
        "extent": "core",
        "arm": args.arm,
        "model": "tiny",
        "sync_interval": args.sync_interval,
        "lr": args.lr,
        "seed": args.seed,
    }
    settings = {
        **proxy["settings"],
        "horizon_updates": args.updates,
        "prompts_per_step": args.prompts_per_step,
    }
    arm = {key: value for key, value in proxy["arms"][args.arm].items() if key != "horizon_lr_budget"}
    task = {key: value for key, value in settings["task"].items() if key != "name"}
    model = proxy["models"]["tiny"]
    tokens = {
        "max_prompt_tokens": 2 * task["max_terms"],
        "max_response_tokens": ChainArithmetic(**task).max_response_tokens,
    }
    verl_model = {**model, **tokens, "dataset": "chains", "validation": ["heldout"]}
    # verl's update with its micro-batches is the same; one micro-batch a rank is the fastest
    for_verl = verl_settings(settings, micro_batch=args.prompts_per_step * settings["group_size"], training_ranks=1)

    def study(trainer: str, own: dict[str, Any], models: dict[str, Any]) -> Study:
        body = {
            "title": trainer,
            "scale": "proxy",
            "trainer": trainer,
            "device": "cpu",
            "settings": own,
        }
        body |= {"models": {"tiny": models}, "arms": {args.arm: arm}, "blocks": {"compared": block}}
        return load_study({"study": trainer, "studies": {trainer: body}}, trainer)

    return study("local", settings, model), study("verl", for_verl, verl_model)


def compare(local: RunRecord, verl: RunRecord, reference: float | None) -> dict[str, Any]:
    """Labels, and the z of each rollout batch up to the first that lies below half of its run's best."""
    outcomes = [collapse.classify_run(record, reference) for record in (local, verl)]
    batches = min(len(local.snapshots), len(verl.snapshots))
    rewards = np.array([record.snapshots["reward_mean"][:batches] for record in (local, verl)])  # [2, batches]
    errors = np.array([record.snapshots["reward_se"][:batches] for record in (local, verl)])
    fallen = (rewards < 0.5 * np.maximum.accumulate(rewards, axis=1)).any(axis=0)
    kept = int(np.argmax(fallen)) if fallen.any() else batches
    z = (rewards[0] - rewards[1]) / np.sqrt((errors**2).sum(axis=0) + 1e-12)
    first = float(z[0])  # the same policy: only sampling differs
    return {
        "labels": [outcome.label for outcome in outcomes],
        "collapse_index": [outcome.collapse_index for outcome in outcomes],
        "rewards_local": rewards[0].round(4).tolist(),
        "rewards_verl": rewards[1].round(4).tolist(),
        "z": z.round(2).tolist(),
        "batches_compared": kept,
        "z_first": round(first, 2),
        "z_rms": round(float(np.sqrt(np.mean(z[:kept] ** 2))), 2) if kept else None,
        "agree": outcomes[0].label == outcomes[1].label and abs(first) < 4,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--arm", default="lowerclipoff")
    parser.add_argument("--sync-interval", type=int, default=8)
    parser.add_argument("--lr", nargs="+", default=["4e-3", "4e-4"], help="one that collapses and one that does not")
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--updates", type=int, default=96)
    parser.add_argument("--prompts-per-step", type=int, default=32)
    parser.add_argument("--prompts", type=int, default=20_000, help="in verl's training file")
    args = parser.parse_args()
    torch.set_num_threads(1)
    local, verl = studies(args)
    out = args.out.resolve()
    if not (out / "model-verl").exists():
        make_start(local, "tiny", out / "model")
        write_model(out / "model", out / "model-verl")
        task = {key: value for key, value in local.settings["task"].items() if key != "name"}
        write_data(ChainArithmetic(**task), out / "data", args.prompts, 64, seed=args.seed)
    os.environ.update(plugin_environment())
    results = {}
    for ours, theirs in zip(local.cells, verl.cells, strict=True):
        for study, cell in (("local", ours), ("verl", theirs)):
            base = out / study / cell.name
            if (base / "run" / "run.json").exists():
                continue
            folders = {
                "work": base / "work",
                "checkpoints": base / "checkpoints",
                "out": base / "run",
            }
            if study == "local":
                session.train(cell, model_dir=out / "model", **folders)
            else:
                launch.train(cell, model_dir=out / "model-verl", data=out / "data", **folders)
        records = [read_run(out / study / ours.name / "run") for study in ("local", "verl")]
        results[ours.name] = compare(*records, ours.reference_lr_budget)
        print(ours.name, json.dumps(results[ours.name]))
    write_json(out / "comparison.json", results)
    return 0 if all(result["agree"] for result in results.values()) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UserError as error:
        print(f"compare_trainers: error: {error}", file=sys.stderr)
        sys.exit(2)
