"""Turn a run record into an outcome."""

from __future__ import annotations

import argparse
from pathlib import Path

from collapse_laws.errors import UserError
from collapse_laws.laws.results import cell_path, cell_result
from collapse_laws.runrecord import MANIFEST, read_run, write_json
from collapse_laws.study import PARAMS, load_study


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--params", type=Path, default=PARAMS)
    parser.add_argument("--study", help="default: the active study")
    parser.add_argument("--extent", help="core or full; default: params.yaml's")
    parser.add_argument("--cell", help="default: every cell of the study that has a finished run")
    parser.add_argument(
        "--run", dest="run_directory", type=Path, help="with --cell: the record; default: runs/<study>/<cell>"
    )
    parser.add_argument("--out", type=Path, help="with --cell; default: results/<study>/cells/<cell>.json")


def run(args: argparse.Namespace) -> int:
    study = load_study(args.params, args.study, args.extent)
    if args.cell is None and (args.run_directory or args.out):
        raise UserError("--run and --out name one record and its outcome; give --cell with them.")
    if args.cell is not None:
        cells = [study.cell(args.cell)]
    else:
        cells = [cell for cell in study.cells if (_directory(study.name, cell.name) / MANIFEST).exists()]
        if not cells:
            raise UserError(f"runs/{study.name} holds no finished run; train a cell of the study first.")
    for cell in cells:
        record = read_run(args.run_directory or _directory(study.name, cell.name))
        result = cell_result(cell, record)
        write_json(args.out or cell_path(study.name, cell.name), result)
        outcome = result["outcome"]
        print(f"{cell.name}\t{outcome['label']}\t{outcome['reason']}")
    return 0


def _directory(study: str, cell: str) -> Path:
    return Path("runs") / study / cell
