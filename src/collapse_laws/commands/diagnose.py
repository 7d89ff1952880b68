"""Say whether the run behind a log collapsed, and why it may have."""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

from collapse_laws.advise.calibration import load_calibration
from collapse_laws.advise.diagnose import diagnose
from collapse_laws.advise.page import write_page
from collapse_laws.advise.wording import as_text
from collapse_laws.errors import UserError
from collapse_laws.logs import FORMATS, read_log


def add_log_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments that say how a log is read, shared by diagnose, watch and calibrate."""
    parser.add_argument("--sync-interval", type=int, metavar="S", help="learner updates between synchronisations")
    parser.add_argument("--lr", type=float, metavar="ETA", help="constant learning rate; default: the log's")
    parser.add_argument(
        "--format",
        choices=FORMATS,
        metavar="KIND",
        help=f"default: by content; {', '.join(FORMATS)}",
    )
    parser.add_argument("--reward-key", metavar="KEY", help="name of the mean training reward in the log")
    parser.add_argument("--step-key", metavar="KEY", help="name of the learner update in the log")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("log", type=Path, metavar="LOG", help="log file, run directory or TensorBoard directory")
    add_log_arguments(parser)
    parser.add_argument(
        "--calibration",
        type=Path,
        metavar="FILE",
        help="brackets that `calibrate` wrote; default: published",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--html", type=Path, metavar="FILE", help="also write a page with the plots")


def check_output(option: str, path: Path) -> None:
    """Make the folder of a file that is to be written, before the work; UserError where no file can be there."""
    if path.is_dir():
        raise UserError(f"{option} {path} is a directory; give the name of a file.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise UserError(f"{option} {path} is not allowed: a part of its folder's name is a file.") from None


def run(args: argparse.Namespace) -> int:
    if args.html is not None:
        check_output("--html", args.html)
    calibration = load_calibration(args.calibration) if args.calibration else None
    log = read_log(
        args.log,
        format=args.format,
        reward_key=args.reward_key,
        step_key=args.step_key,
        sync_interval=args.sync_interval,
    )
    found = diagnose(log, args.lr, calibration)
    if args.html is not None:
        write_page(args.html, found)
    print(json.dumps(finite(found.to_json()), indent=1, allow_nan=False) if args.json else as_text(found))
    return 0


def finite(value: Any) -> Any:
    """The value with NaN and infinity as null: strict JSON has neither."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value
