"""Draw the figures of a study."""

from __future__ import annotations

import argparse
from pathlib import Path

from collapse_laws.errors import UserError
from collapse_laws.figures import draw
from collapse_laws.figures.catalogue import figure_names
from collapse_laws.results import load_results
from collapse_laws.study import PARAMS


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--params", type=Path, default=PARAMS)
    parser.add_argument("--study", help="default: the active study; `published`: the paper's tables")
    parser.add_argument("--only", metavar="NAME", help="one figure")


def run(args: argparse.Namespace) -> int:
    results = load_results(args.params, args.study)
    known = figure_names(results.name)
    if args.only is not None and args.only not in known:
        raise UserError(f"study {results.name!r} has no figure {args.only!r}; allowed: {', '.join(known)}.")
    notes = draw(results, None if args.only is None else [args.only])
    for name in known if args.only is None else [args.only]:
        print(f"{results.directory / 'figures' / name}.svg\t{notes[name]['empty'] or 'drawn'}")
    return 0
