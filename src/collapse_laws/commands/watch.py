"""Follow a growing log and raise the alarm at collapse.

Exit codes: 0 the log stayed quiet for --until-idle seconds without a collapse, 1 collapse, 2 bad input, 130
interrupted.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
from pathlib import Path

from collapse_laws.advise.calibration import load_calibration, published_brackets
from collapse_laws.advise.follow import follow, line_format
from collapse_laws.advise.watch import Watcher
from collapse_laws.advise.wording import printable
from collapse_laws.commands.diagnose import add_log_arguments
from collapse_laws.errors import UserError
from collapse_laws.logs.numbers import check_rate, check_sync_interval
from collapse_laws.logs.own import is_record_directory, read_record
from collapse_laws.logs.reader import LINE_FORMATS
from collapse_laws.runrecord import STEPS

LONGEST_WAIT = 86_400.0  # seconds; a day between looks is beyond any use


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "exit codes: 0 quiet for --until-idle seconds without a collapse; 1 collapse; 2 bad input; 130 interrupted"
    )
    parser.add_argument(
        "log",
        type=Path,
        metavar="LOG",
        help="a log that grows by lines, or a running run's directory",
    )
    add_log_arguments(parser)
    parser.add_argument(
        "--calibration",
        type=Path,
        metavar="FILE",
        help="brackets that `calibrate` wrote; default: published",
    )
    parser.add_argument(
        "--on-collapse",
        metavar="CMD",
        help="run this command once at collapse; COLLAPSE_LOG, COLLAPSE_INDEX and COLLAPSE_STEP are in its environment",
    )
    parser.add_argument(
        "--until-idle",
        type=float,
        metavar="SECONDS",
        help="end once the log is quiet so long; default: never",
    )
    parser.add_argument(
        "--poll",
        type=float,
        default=1.0,
        metavar="SECONDS",
        help="pause between looks at the file (1)",
    )


def run(args: argparse.Namespace) -> int:
    path, interval = args.log, args.sync_interval
    if is_record_directory(path):
        interval = interval or read_record(path)[1]
        path = path / STEPS
    if path.is_dir() or not path.exists():
        raise UserError(
            f"{path} is not a file that exists; watch follows a log of lines, or a running run's directory."
        )
    if interval is None:
        raise UserError("watch needs --sync-interval: an alarm is dated by rollout batches.")
    check_sync_interval(interval)
    check_rate(args.lr)
    if not 0 < args.poll <= LONGEST_WAIT:
        raise UserError(f"--poll {args.poll:g} is not allowed; allowed: a number above 0, at most {LONGEST_WAIT:g}.")
    if args.until_idle is not None and not args.until_idle >= 0:
        raise UserError(f"--until-idle {args.until_idle:g} is not allowed; allowed: a number of at least 0.")
    brackets = load_calibration(args.calibration) if args.calibration else published_brackets()
    kind, sure = (args.format, True) if args.format else line_format(path)
    if kind not in LINE_FORMATS:
        raise UserError(f"--format {kind} does not grow by lines; watch follows {', '.join(LINE_FORMATS)}.")
    watcher = Watcher(path, kind, interval, args.lr, brackets, args.reward_key, args.step_key, sure)
    warned = False
    for line in follow(path, args.poll, args.until_idle, lambda sentence: _say([sentence])):
        if line is None:
            watcher.restart()
            print("the log began anew (rotated or truncated)", flush=True)
            continue
        _say(watcher.feed(line))
        if watcher.warning and not warned:
            warned = True
            print(printable(f"collapse-laws: warning: {watcher.warning}"), file=sys.stderr, flush=True)
        if watcher.collapsed:
            return _alarm(args, watcher)
    _say(watcher.finish())
    return _alarm(args, watcher) if watcher.collapsed else 0


def _say(sentences: list[str]) -> None:
    for sentence in sentences:
        print(printable(sentence), flush=True)


def _alarm(args: argparse.Namespace, watcher: Watcher) -> int:
    outcome = watcher.outcome
    if args.on_collapse and outcome is not None:
        environment = {
            **os.environ,
            "COLLAPSE_LOG": str(args.log),
            "COLLAPSE_INDEX": str(outcome.collapse_index),
            "COLLAPSE_STEP": str(outcome.collapse_step),
        }
        try:
            code = subprocess.run(shlex.split(args.on_collapse), env=environment, check=False).returncode
        except (OSError, ValueError) as error:
            print(f"collapse-laws: --on-collapse could not run: {error}", file=sys.stderr)
        else:
            if code:
                print(f"collapse-laws: --on-collapse ended with {code}", file=sys.stderr)
    return 1
