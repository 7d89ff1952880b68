"""Run the theory simulator and check the estimators on it."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

import numpy as np

from collapse_laws.errors import UserError
from collapse_laws.laws.validation import DESIGNS, MAIN_DESIGN, PARAMETERS, validate, write_validation
from collapse_laws.study import cell_name
from collapse_laws.theory.simulator import Truth, simulate_run, write_record


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, default=Path("results/validation"))
    parser.add_argument("--studies", type=int, default=200, help="simulated studies of each design")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--main-only", action="store_true", help=f"only the design {MAIN_DESIGN!r}")
    parser.add_argument("--records", type=Path, help="write run records there instead, over the grid below")
    parser.add_argument("--sync-intervals", type=int, nargs="+", default=[8, 16, 32])
    parser.add_argument("--rates", nargs="+", default=["1e-6", "5e-7", "2e-7", "1e-7"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])


def run(args: argparse.Namespace) -> int:
    if args.studies < 1 or args.jobs < 1 or min(args.sync_intervals) < 1:
        raise UserError("--studies, --jobs and --sync-intervals must be at least 1.")
    if min(args.seed, *args.seeds) < 0:
        raise UserError("--seed and --seeds must be at least 0.")
    if args.records:
        return _records(args)
    designs = [design for design in DESIGNS if design.name == MAIN_DESIGN or not args.main_only]
    rows = validate(designs, args.studies, args.seed, args.jobs)
    summary = write_validation(args.out, designs, rows, args.seed)
    print("Theory simulator, not training: share of studies whose 95 % set holds the truth")
    for entry in summary:
        covered = ", ".join(
            f"{name} {entry[name]['coverage']:.3f}" for name in PARAMETERS if entry[name]["coverage"] is not None
        )
        print(f"{entry['design']}: {covered}; law (i) {entry['law_i']}; law (ii) {entry['law_ii']}")
    return 0


def _records(args: argparse.Namespace) -> int:
    truth = dataclasses.replace(Truth())
    for interval in args.sync_intervals:
        for rate in args.rates:
            for seed in args.seeds:
                try:
                    lr = float(rate)
                except ValueError:
                    lr = 0.0
                if not 0 < lr < 1:
                    raise UserError(f"--rates: {rate!r} is not a learning rate between 0 and 1.")
                name = cell_name("theory", "conditional-model", interval, rate, seed)
                rng = np.random.default_rng([args.seed, interval, seed, int(lr * 1e12)])
                found = simulate_run(truth, interval, lr, seed, rng)
                write_record(found, truth, args.records.name, name, args.records / name)
                print(f"{name}\t{'stable' if found.exit_index is None else f'exit at batch {found.exit_index}'}")
    return 0
