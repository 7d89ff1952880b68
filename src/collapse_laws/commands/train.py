"""Train one cell, or resume it, with the study's trainer."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from collapse_laws import gpu_environment
from collapse_laws.errors import UserError
from collapse_laws.study import PARAMS, Cell, load_study


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--params", type=Path, default=PARAMS)
    parser.add_argument("--study", help="default: the active study")
    parser.add_argument("--cell", required=True, help="a cell's name; `collapse-laws cells` lists them")
    parser.add_argument("--model-dir", type=Path, help="starting checkpoint; default: models/<study>/<model>")
    parser.add_argument("--work", type=Path, help="run in progress; default: work/<study>/<cell>")
    parser.add_argument("--checkpoints", type=Path, help="default: checkpoints/<study>/<cell>")
    parser.add_argument("--out", type=Path, help="the run record; default: runs/<study>/<cell>")
    parser.add_argument("--data", type=Path, help="prepared data of a verl study; default: data/<study>")
    parser.add_argument(
        "--check-only",
        action="store_true",
        help="verl: check the configuration and a Slurm job's GPUs, and start nothing",
    )


def run(args: argparse.Namespace) -> int:
    study = load_study(args.params, args.study)
    cell = study.cell(args.cell)
    folders = {
        "model_dir": args.model_dir or Path("models") / study.name / cell.model,
        "work": args.work or Path("work") / study.name / cell.name,
        "checkpoints": args.checkpoints or Path("checkpoints") / study.name / cell.name,
        "out": args.out or Path("runs") / study.name / cell.name,
    }
    gpu_environment.enter(cell.trainer)
    if cell.trainer == "verl":
        from collapse_laws.verl import launch

        if args.check_only:
            print(launch.check(cell))
            return 0
        try:
            reason = launch.train(cell, data=args.data, **folders)
        except launch.Preempted:
            return _told_to_stop(cell, folders["work"])
        print(f"{folders['out']}: stopped by {reason}")
        return 0
    if args.check_only or args.data:
        raise UserError(
            f"study {study.name!r} is trained by the local learner; --check-only and --data are for studies with "
            "trainer: verl."
        )
    import torch

    from collapse_laws.learner import Preempted
    from collapse_laws.session import train

    if cell.device == "cpu":
        torch.set_num_threads(1)  # tiny matrices: a second thread only costs; cells run side by side instead
    try:
        reason = train(cell, **folders)
    except Preempted:
        return _told_to_stop(cell, folders["work"])
    print(f"{folders['out']}: stopped by {reason}")
    return 0


def _told_to_stop(cell: Cell, work: Path) -> int:
    print(f"{cell.name}: told to stop; saved in {work}, start it again to go on", file=sys.stderr)
    return 143
