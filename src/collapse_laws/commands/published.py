"""Re-analyse the published tables."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from collapse_laws.laws.published import REFERENCE, STUDY, headline, load_published, write_published
from collapse_laws.laws.results import laws_path
from collapse_laws.laws.summary import summary


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--reference", type=Path, default=REFERENCE)
    parser.add_argument("--json", action="store_true", help="print the sets as JSON and write no file")


def run(args: argparse.Namespace) -> int:
    runs = load_published(args.reference)
    found = headline(runs)
    if args.json:
        print(json.dumps(found))
        return 0
    laws = write_published(runs)
    print("\n".join(_text(found)))
    for group in laws["groups"]:
        print("\n".join(["", *summary(group)]))
    print(f"\nWritten: {laws_path(STUDY)} and {len(runs)} outcomes under results/{STUDY}/cells/.")
    return 0


def _text(found: Mapping[str, Any]) -> list[str]:
    llama, qwen = found["llama"], found["qwen3-8b"]
    return [
        "What the published tables say, read as onset intervals (S(M-1), SM]:",
        "",
        f"  collapse clock, Llama     c2 in ({llama['c2'][0]:g}, {llama['c2'][1]:g}]",
        f"  collapse clock, Qwen3-8B  c2 in ({qwen['c2'][0]:g}, {qwen['c2'][1]:g}]",
        f"  log t = a - b log eta + c log S: b in {_set(llama['b'])}, c in {_set(llama['c'])}",
        f"  boundary eta_max ~ S^-alpha: alpha in {_set(llama['alpha'])}; main grid alone "
        f"{_set(llama['alpha_main_grid'])}",
        f"  S*eta: stable up to {llama['stable_max']:g} (main grid {llama['stable_max_main_grid']:g}), collapsed from "
        f"{llama['collapsed_min']:g}",
    ]


def _set(interval: list[float | None]) -> str:
    low, high = ("unbounded" if end is None else f"{end:.3f}" for end in interval)
    return f"[{low}, {high}]"
