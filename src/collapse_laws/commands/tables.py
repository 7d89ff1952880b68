"""Write Tables 1 to 3 of a study."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from collapse_laws.configuration import table2
from collapse_laws.configuration_verl import composed_rows
from collapse_laws.errors import UserError
from collapse_laws.render import write_table, write_text
from collapse_laws.results import load_results
from collapse_laws.runrecord import write_json
from collapse_laws.study import PARAMS
from collapse_laws.tables import sensitivity_table, table1, table3
from collapse_laws.twins import table1_twin, table2_twin, table3_twin
from collapse_laws.verdict import macros, metrics


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--params", type=Path, default=PARAMS)
    parser.add_argument("--study", help="default: the active study; `published`: the paper's tables")
    parser.add_argument("--active", action="store_true", help="also copy the CSV files to results/table{1,2,3}.csv")


def run(args: argparse.Namespace) -> int:
    results = load_results(args.params, args.study)
    if results.published and args.active:
        raise UserError("`published` cannot be the active study; leave --active out.")
    configuration = table2(results, composed_rows(results))
    tables = [
        table1(results),
        table1_twin(results),
        configuration,
        table2_twin(results, configuration),
        table3(results),
        table3_twin(results),
        sensitivity_table(results),
    ]
    for table in tables:
        write_table(table, results.directory)
    write_text(results.directory / "macros.tex", macros(results))
    write_json(results.directory / "metrics.json", metrics(results))
    if args.active:
        for number in (1, 2, 3):
            name = f"table{number}.csv"
            shutil.copyfile(results.directory / name, results.root / "results" / name)
    print(f"{results.directory}: Tables 1 to 3 with their twins, macros.tex and metrics.json")
    return 0
