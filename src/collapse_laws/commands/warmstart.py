"""Make the starting checkpoint of a study's model."""

from __future__ import annotations

import argparse
from pathlib import Path

from collapse_laws.study import PARAMS, load_study


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--params", type=Path, default=PARAMS)
    parser.add_argument("--study", help="default: the active study")
    parser.add_argument("--model", required=True, help="a model of the study")
    parser.add_argument("--out", type=Path, help="default: models/<study>/<model>")


def run(args: argparse.Namespace) -> int:
    import torch

    from collapse_laws.warmstart import make_start

    torch.set_num_threads(1)
    study = load_study(args.params, args.study)
    out = args.out or Path("models") / study.name / args.model
    scores = make_start(study, args.model, out)
    sampled, greedy = scores["sampled_reward"], scores["greedy_reward"]
    print(f"{out}: sampled reward {sampled:.3f}, greedy {greedy:.3f}")
    return 0
