"""Write the one-page report of a study."""

from __future__ import annotations

import argparse
from pathlib import Path

from collapse_laws.report import write_report
from collapse_laws.results import load_results
from collapse_laws.study import PARAMS


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--params", type=Path, default=PARAMS)
    parser.add_argument("--study", help="default: the active study; `published`: the paper's tables")


def run(args: argparse.Namespace) -> int:
    path = write_report(load_results(args.params, args.study))
    print(f"{path}\t{path.stat().st_size / 1e6:.1f} MB")
    return 0
