"""Fit boundary and clock to a study's outcomes."""

from __future__ import annotations

import argparse
from pathlib import Path

from collapse_laws.laws.results import laws_path, study_laws
from collapse_laws.laws.summary import summary
from collapse_laws.runrecord import write_json
from collapse_laws.study import PARAMS, load_study


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--params", type=Path, default=PARAMS)
    parser.add_argument("--study", help="default: the active study")
    parser.add_argument("--out", type=Path, help="default: results/<study>/laws.json")


def run(args: argparse.Namespace) -> int:
    study = load_study(args.params, args.study)
    result = study_laws(study)
    write_json(args.out or laws_path(study.name), result)
    for group in result["groups"]:
        print("\n".join(summary(group)))
    return 0
