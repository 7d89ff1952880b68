"""What an evaluation found: the scores of one, and a tidy table of all of a study over snapshots.

`summarise` reduces a table of generations with verdicts to what the JSON of an evaluation holds;
`collect` gathers those files of a study into one row a (cell, snapshot, benchmark, score).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from collapse_laws import scores
from collapse_laws.errors import UserError
from collapse_laws.runrecord import read_manifest

if TYPE_CHECKING:  # the tasks import PyTorch, and collecting must not wait for it
    from collapse_laws.study import Cell
    from collapse_laws.tasks.benchmarks import Problem

SCHEMA_VERSION = 1
# the checkers in the order of their standing: the first that a table has is the score to report
EXACT, MATH_REWARD, MATH_VERIFY = "exact", "math_reward", "math_verify"
COLUMNS = (
    "study scale cell arm model sync_interval lr seed snapshot t benchmark score primary metric problems samples mean "
    "low high confidence method truncated_fraction no_answer_fraction response_tokens_mean backend"
).split()


def summarise(table: pd.DataFrame, problems: Sequence[Problem], samples: int) -> dict[str, Any]:
    """Scores of a table with one row a generation; the first score is the one to report."""
    names = [n for n in (EXACT, MATH_REWARD, MATH_VERIFY) if n in table]
    table = table.sort_values(["problem", "sample"])
    right = {name: table[name].to_numpy().reshape(len(problems), -1) for name in names}
    first = right[names[0]]
    summary = {
        "problems": len(problems),
        "samples": samples,
        "metric": f"avg@{samples}",
        "score": names[0],
        "confidence": scores.CONFIDENCE,
        "scores": scores.scores_json({name: scores.score(right[name]) for name in names}),
        "pass_at_k": {name: {str(k): v for k, v in scores.pass_at_k(right[name]).items()} for name in names},
        "by_subject": scores.scores_json(scores.by_group(first, [p.subject for p in problems])),
        "by_level": scores.scores_json(scores.by_group(first, [p.level for p in problems])),
        "truncated_fraction": float(1 - table["finished"].mean()),
        "no_answer_fraction": float(table["extracted"].isna().mean()),
        "response_tokens_mean": float(table["response_tokens"].mean()),
    }
    if MATH_VERIFY in table:
        odd = table[table["math_verify_status"] != "ok"]
        columns = ["problem", "sample", "math_verify_status"]
        summary["math_verify_not_ok"] = odd[columns].rename(columns={"math_verify_status": "status"}).to_dict("records")
    flagged = np.array([p.flag is not None for p in problems])
    if flagged.any() and not flagged.all():
        summary["flagged"] = {
            "problems": {str(p.index): p.flag for p in problems if p.flag},
            "without": scores.score(first[~flagged]).to_json(),
        }
    return summary


def read_result(path: Path) -> dict[str, Any]:
    """The JSON of an evaluation; UserError where it is none."""
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path} is not JSON ({error}).") from None
    if not isinstance(result, dict) or result.get("schema_version") != SCHEMA_VERSION:
        raise UserError(f"{path} is no evaluation of schema {SCHEMA_VERSION}.")
    return result


def collect(evals: Path, runs: Path, cells: Iterable[Cell] | None = None) -> pd.DataFrame:
    """All evaluations under evals/<cell>/<snapshot>/<benchmark>.json, one row a score, columns COLUMNS.

    With `cells`, those of other cells or of other settings are left out. `t` is the learner update of the snapshot;
    that of `final` is the run record's, or missing where there is none.
    """
    digests = None if cells is None else {cell.name: cell.digest for cell in cells}
    rows = []
    for path in sorted(evals.glob("*/*/*.json")):
        result = read_result(path)
        if digests is not None and digests.get(result.get("cell")) != result.get("settings_digest"):
            continue
        common = {name: result.get(name) for name in COLUMNS}
        common["t"] = _update_of(result["snapshot"], runs / path.parent.parent.name)
        for name, value in result["scores"].items():
            rows.append({**common, "score": name, "primary": name == result["score"], **value})
    table = pd.DataFrame(rows, columns=COLUMNS).astype({"t": "Int64"})
    order = [
        "arm",
        "model",
        "sync_interval",
        "lr",
        "seed",
        "cell",
        "benchmark",
        "score",
        "t",
        "snapshot",
    ]
    return table.sort_values(order, ignore_index=True)


def _update_of(snapshot: str, run: Path) -> int | None:
    if snapshot.isdigit():
        return int(snapshot)
    if not (run / "run.json").exists():
        return None
    manifest = read_manifest(run)  # the last checkpoint of a trainer that was stopped is older than its last update
    return manifest.get("final_checkpoint_updates", manifest["updates"])


def over_snapshots(table: pd.DataFrame) -> pd.DataFrame:
    """The table to read: a row a (cell, benchmark), a column a learner update, cells `mean [low,
    high]` of the first score.
    """
    first = table[table["primary"]].copy()
    first["text"] = [
        f"{mean:.3f} [{low:.3f}, {high:.3f}]"
        for mean, low, high in zip(first["mean"], first["low"], first["high"], strict=True)
    ]
    first["at"] = [
        int(t) if pd.notna(t) else -1 for t in first["t"]
    ]  # a final snapshot without a record comes first, named as it is
    names = {at: str(at) if at >= 0 else "final" for at in first["at"]}
    wide = first.pivot_table(
        index=["cell", "benchmark", "metric", "score"], columns="at", values="text", aggfunc="last"
    )
    return wide.rename(columns=names).rename_axis(columns=None).fillna("-").reset_index()
