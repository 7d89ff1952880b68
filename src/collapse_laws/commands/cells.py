"""List the cells of a study, or refresh workflow/cells.yaml, from which DVC makes one stage a cell."""

from __future__ import annotations

import argparse
from pathlib import Path

import yaml

from collapse_laws.errors import UserError
from collapse_laws.ledger import cells_ledger, check_records
from collapse_laws.study import PARAMS, load_params, load_study

LEDGER = Path("workflow/cells.yaml")
HEADER = "# Made from params.yaml by `collapse-laws cells --write`; DVC makes one stage a cell of it.\n"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--params", type=Path, default=PARAMS)
    parser.add_argument("--study", help="default: the active study")
    parser.add_argument("--extent", help="core or full; default: params.yaml's")
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--write", action="store_true", help=f"write {LEDGER}")
    action.add_argument("--check", action="store_true", help=f"fail unless {LEDGER} is up to date")
    action.add_argument("--check-records", action="store_true", help="fail unless every recorded cell's run is current")


def run(args: argparse.Namespace) -> int:
    params = load_params(args.params)
    if args.check_records:
        check_records(params, args.params.parent / "runs")
        return 0
    if args.write or args.check:
        ledger = args.params.parent / LEDGER
        text = HEADER + yaml.safe_dump(cells_ledger(params), sort_keys=False)
        if args.write:
            ledger.write_text(text, encoding="utf-8")
        elif not ledger.exists() or ledger.read_text(encoding="utf-8") != text:
            raise UserError(f"{ledger} is not what {args.params} expands to; run `collapse-laws cells --write`.")
        return 0
    for cell in load_study(params, args.study, args.extent).cells:
        print(f"{cell.name}\t{cell.horizon_updates} updates\t{cell.digest}\t{','.join(cell.blocks)}")
    return 0
