"""Write the training and validation files of a verl study, or fetch one of its starting models."""

from __future__ import annotations

import argparse
from pathlib import Path

from collapse_laws import gpu_environment
from collapse_laws.errors import UserError
from collapse_laws.study import PARAMS, load_study


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--params", type=Path, default=PARAMS)
    parser.add_argument("--study", help="default: the active study")
    parser.add_argument(
        "--local",
        type=Path,
        default=Path("data/local"),
        help="folder of local copies; what is not there comes from the Hub",
    )
    parser.add_argument("--out", type=Path, help="default: data/<study>, or models/<study>/<model>")
    parser.add_argument("--model", help="fetch this model of the study instead of the data")


def run(args: argparse.Namespace) -> int:
    study = load_study(args.params, args.study)
    if study.trainer != "verl":
        raise UserError(f"study {study.name!r} needs no prepared data: its trainer is {study.trainer!r}, not 'verl'.")
    gpu_environment.enter(study.trainer)
    if args.model is not None:
        from collapse_laws.verl.models import fetch

        source = fetch(study, args.model, args.out or Path("models") / study.name / args.model)
        print(f"{args.model}: {source['hub_id']} at {source['commit']}")
        return 0
    from collapse_laws.verl.data import prepare

    out = args.out or Path("data") / study.name
    for name, notes in prepare(study, args.local, out)["files"].items():
        print(f"{out / name}.parquet: {notes['rows']} rows{_remarks(notes)}")
    return 0


def _remarks(notes: dict) -> str:
    remarks = []
    if "source_rows" in notes and notes["source_rows"] != notes["rows"]:
        remarks.append(f"of {notes['source_rows']}")
    remarks += [f"left out row {row['index']}: {row['why']}" for row in notes.get("dropped", [])]
    if notes.get("prompts_with_conflicting_answers"):
        remarks.append(f"{notes['prompts_with_conflicting_answers']} prompts with more than one answer, kept")
    for name, found in notes.get("overlap", {}).items():
        remarks.append(f"{len(found['in_training'])} of {found['problems']} problems of {name} are in it")
    return "".join(f"; {remark}" for remark in remarks)
