"""Estimate boundary and clock from several logs, and advise on a new setting."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from collapse_laws.advise.calibrate import Calibration, advice, calibrate, observe_group, observe_logs
from collapse_laws.advise.calibration import save_calibration
from collapse_laws.advise.wording import printable
from collapse_laws.commands.diagnose import add_log_arguments, check_output, finite
from collapse_laws.errors import UserError
from collapse_laws.logs.numbers import MOST_SYNC_INTERVAL, MOST_UPDATES, is_rate


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs",
        nargs="+",
        metavar="RUN",
        help="LOG, LOG@S or LOG@S,ETA; or one STUDY (STUDY:ARM/MODEL) of results/",
    )
    add_log_arguments(parser)
    parser.add_argument(
        "--want-sync-interval",
        type=int,
        metavar="S",
        help="advise for this S; default: the largest S of the runs",
    )
    parser.add_argument("--want-lr", type=float, metavar="ETA", help="say what is expected of this learning rate")
    parser.add_argument("--want-horizon", type=int, metavar="UPDATES", help="say what a run of this length can show")
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("calibration.json"),
        metavar="FILE",
        help="default: calibration.json",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    for name in ("want_sync_interval", "want_lr", "want_horizon"):
        value = getattr(args, name)
        most = MOST_SYNC_INTERVAL if name == "want_sync_interval" else MOST_UPDATES
        allowed = value is None or (is_rate(value) if name == "want_lr" else 0 < value <= most)
        if not allowed:
            limits = "a learning rate such as 1e-6" if name == "want_lr" else f"a whole number from 1 to {most}"
            raise UserError(f"--{name.replace('_', '-')} {value} is not allowed; allowed: {limits}.")
    check_output("--output", args.output)
    runs = observe_group(args.runs[0]) if len(args.runs) == 1 else None
    if runs is None:
        keys = {"format": args.format, "reward_key": args.reward_key, "step_key": args.step_key}
        runs = observe_logs(args.runs, args.sync_interval, args.lr, keys)
    found = calibrate(runs, args.runs[0] if len(args.runs) == 1 else "calibrated")
    save_calibration(args.output, found.brackets, finite(found.details()))
    wanted = args.want_sync_interval or max(run.sync_interval for run in runs)
    sentences = advice(found.brackets, wanted, args.want_lr, args.want_horizon)
    if args.json:
        body = {
            "calibration": str(args.output),
            "brackets": found.brackets,
            "advice": sentences,
            **found.details(),
        }
        body["brackets"] = {name: getattr(found.brackets, name) for name in found.brackets.__slots__}
        print(json.dumps(finite(body), indent=1, allow_nan=False))
        return 0
    for run_ in runs:
        onset = "" if run_.onset is None else f", onset in ({run_.onset[0]:g}, {run_.onset[1]:g}]"
        print(printable(f"{run_.name}: S={run_.sync_interval} eta={run_.lr:.3g} {run_.label}{onset}"))
    b = found.brackets
    print(f"boundary of S*eta: stable up to {_number(b.stable_max)}, collapsed from {_number(b.collapsed_min)}")
    print(f"clock of t*eta: {_clock(found)}")
    print(f"law (i): {found.boundary.verdict}. {found.boundary.reason}")
    print(f"law (ii): {found.clock.verdict}. {found.clock.reason}")
    print(*sentences, f"written: {args.output}", sep="\n")
    return 0


def _clock(found: Calibration) -> str:
    low, high = found.brackets.c2_low, found.brackets.c2_high
    if found.clock.runs and found.clock.c2 is None:
        shared = "the collapsed runs share no clock"
        return shared if high is None else f"{shared}; with scatter, c2 in ({_number(low)}, {_number(high)}]"
    return "unknown, since no run of S >= 2 collapsed" if high is None else f"c2 in ({_number(low)}, {_number(high)}]"


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3g}"
