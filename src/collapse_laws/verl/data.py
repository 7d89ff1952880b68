"""The parquet files that verl trains and validates on, made from checked rows, and what was left out of them.

Section 4.1 [stated]: MATH (7,500 / 5,000) for Llama, DAPO-Math-17k for Qwen3, validated on MATH-500
and Minerva. Declared: three MATH training rows whose gold no answer can meet are dropped; DAPO is
one row for each of its 17,917 indices; the problem is followed by verl's own instruction to box the
answer, for every set, so that one 0/1 reward serves all (DAPO's own template asks for `Answer:` and
is removed).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from collapse_laws.errors import UserError
from collapse_laws.runrecord import write_json
from collapse_laws.study import Cell, Study
from collapse_laws.tasks.benchmarks import Problem, load
from collapse_laws.verl.prepared import REPORT, data_settings, file_names, prepared_report

INSTRUCTION = " Let's think step by step and output the final answer within \\boxed{}."
REWARD_FILE = Path(__file__).with_name("reward.py")

# training set -> the registered set or source it is made of; `dapo` has a reader of its own here
TRAINING_SETS = {"math": "math_train", "dapo": "dapo"}
DATA_SOURCES = {
    "math_train": "DigitalLearningGmbH/MATH-lighteval",
    "math_test": "DigitalLearningGmbH/MATH-lighteval",
    "math500": "HuggingFaceH4/MATH-500",
    "minerva_math": "math-ai/minervamath",
    "amc23": "math-ai/amc23",
    "amc24": "rawsh/2024_AMC12",
    "dapo": "BytedTsinghua-SIA/DAPO-Math-17k",
}
EVALUATION_SETS = ("math_test", "math500", "minerva_math", "amc23", "amc24")

DAPO_REVISION = "65877096c24ffa7abc4e4fa5edb95cf3413a5674"
DAPO_ROWS, DAPO_CYCLES = 17_917, 100  # of the file on the Hub: 1,791,700 rows
DAPO_FILES = (
    "dapo_math_17k",
    "dapo-math-17k",
)  # local: NAME.jsonl, NAME.part1of2.jsonl ..., NAME.parquet
DAPO_PREFIX = (
    "Solve the following math problem step by step. The last line of your response should be of "
    "the form Answer: $Answer "
    "(without quotes) where $Answer is the answer to the problem.\n\n"
)
DAPO_SUFFIX = '\n\nRemember to put your answer on its own line after "Answer:".'


@dataclass(frozen=True, slots=True)
class Row:
    """One prompt of a prepared set."""

    index: int  # in the source
    problem: str
    golds: tuple[str, ...]  # any of them is right; the first is the source's own


@dataclass(frozen=True, slots=True)
class RunData:
    """The prepared files of one run; absolute paths."""

    train: tuple[Path, ...]
    validation: tuple[Path, ...]
    reward: Path
    validation_sizes: dict[str, int]  # problems by verl's data source
    digests: dict[str, str]  # file name -> SHA-256


def run_data(cell: Cell, folder: Path) -> RunData:
    """A run's files in a folder that `prepare` filled; UserError where it did not, or not as it would now."""
    model = cell.settings["model"]
    files = prepared_report(cell, folder)["files"]
    names = [model["dataset"], *model["validation"]]
    return RunData(
        train=(folder / f"{names[0]}.parquet",),
        validation=tuple(folder / f"{name}.parquet" for name in names[1:]),
        reward=REWARD_FILE,
        validation_sizes={files[name]["data_source"]: files[name]["rows"] for name in names[1:]},
        digests={f"{name}.parquet": files[name]["sha256"] for name in names},
    )


def prepare(study: Study, local: Path, out: Path) -> dict[str, Any]:
    """Write every file that the study's models train and validate on to `out`; return the report, also written there.

    local: folder of local copies; a set that has none there comes from the Hub. Every registered
    set is checked row by row. Raises UserError where a set cannot be had, or where its count or
    content differs.
    """
    training, validation = file_names(study.models.values())
    unknown = [name for name in training if name not in TRAINING_SETS]
    if unknown:
        raise UserError(
            f"params.yaml, studies.{study.name}.models: dataset {unknown[0]!r} is not allowed; allowed: "
            f"{', '.join(TRAINING_SETS)}."
        )
    files: dict[str, Any] = {}
    report: dict[str, Any] = {"study": study.name, "settings": data_settings(), "files": files}
    out.mkdir(parents=True, exist_ok=True)
    for name in training:
        source = TRAINING_SETS[name]
        if source == "dapo":
            rows, notes = deduplicated(dapo_rows(local))
            notes["overlap"] = overlap(rows, {other: load(other, local) for other in EVALUATION_SETS})
        else:
            rows, notes = without_faulty(load(source, local))
        files[name] = {**write_parquet(out / f"{name}.parquet", rows, source, "train"), **notes}
    for name in validation:
        rows = [_row(problem) for problem in load(name, local)]
        files[name] = write_parquet(out / f"{name}.parquet", rows, name, "test")
    write_json(out / REPORT, report)
    return report


def _row(problem: Problem) -> Row:
    return Row(problem.index, problem.text, problem.golds)


def without_faulty(problems: Sequence[Problem]) -> tuple[list[Row], dict[str, Any]]:
    """The rows that a right answer can score on, and the others with the reason."""
    kept = [_row(p) for p in problems if not p.flag]
    dropped = [{"index": p.index, "gold": p.golds[0], "why": p.flag} for p in problems if p.flag]
    return kept, {"source_rows": len(problems), "dropped": dropped}


def dapo_rows(local: Path) -> Iterable[Mapping[str, Any]]:
    """DAPO-Math-17k as prompt, ground_truth and index, from a local copy or the Hub, template and
    all; UserError where neither is there."""
    for name in DAPO_FILES:
        parts = sorted(local.glob(f"{name}.jsonl")) or sorted(local.glob(f"{name}.part*of*.jsonl"))
        if parts:
            return [
                _dapo_row(json.loads(line)) for part in parts for line in part.read_text(encoding="utf-8").splitlines()
            ]
        if (local / f"{name}.parquet").exists():
            batches = pq.ParquetFile(local / f"{name}.parquet").iter_batches()
            return (_dapo_row(row) for batch in batches for row in batch.to_pylist())
    source = DATA_SOURCES["dapo"]
    try:
        import datasets

        rows = datasets.load_dataset(source, split="train", revision=DAPO_REVISION)
    except (ImportError, OSError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(
            f"DAPO-Math-17k is not in {local}, and {source} cannot be read from the Hub ({reason}); put its rows at "
            f"{local / DAPO_FILES[1]}.parquet."
        ) from None
    return (_dapo_row(row) for row in rows)


def _dapo_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """One shape for the Hub's file (nested) and for flat copies."""
    if "reward_model" in row:
        return {
            "prompt": row["prompt"][0]["content"],
            "ground_truth": row["reward_model"]["ground_truth"],
            "index": row["extra_info"]["index"],
        }
    return {key: row[key] for key in ("prompt", "ground_truth", "index")}


def deduplicated(rows: Iterable[Mapping[str, Any]]) -> tuple[list[Row], dict[str, Any]]:
    """One row for each index, in the order of first appearance, without DAPO's template; and what was found on the way.

    Raises UserError where the indices are not 17,917, where an index comes back with another text,
    or where a gold is no integer.
    """
    first: dict[Any, tuple[str, str]] = {}
    total = 0
    for row in rows:
        total += 1
        content = (row["prompt"], str(row["ground_truth"]))
        if first.setdefault(row["index"], content) != content:
            raise UserError(
                f"DAPO-Math-17k, row {total - 1}: index {row['index']!r} comes back with another prompt or answer."
            )
    if len(first) != DAPO_ROWS:
        raise UserError(f"DAPO-Math-17k has {len(first)} different indices in {total} rows; allowed: {DAPO_ROWS}.")
    kept, golds = [], {}
    for number, (prompt, gold) in enumerate(first.values()):
        if not re.fullmatch(r"-?\d+", gold.strip()):
            raise UserError(f"DAPO-Math-17k, index {number}: the answer {gold!r} is no integer.")
        problem = prompt.removeprefix(DAPO_PREFIX).removesuffix(DAPO_SUFFIX).strip()
        kept.append(Row(number, problem, (gold.strip(),)))
        golds.setdefault(problem, set()).add(gold.strip())
    return kept, {
        "source_rows": total,
        "different_prompts": len(golds),
        "prompts_with_conflicting_answers": sum(len(answers) > 1 for answers in golds.values()),
    }


def fingerprint(problem: str) -> str:
    """A problem's letters and digits in lower case: two spellings of one problem agree, spaces and
    marks do not matter."""
    return "".join(re.findall(r"[^\W_]", problem.lower()))


def overlap(rows: Sequence[Row], sets: Mapping[str, Sequence[Problem]]) -> dict[str, Any]:
    """For each evaluation set: its size, and the problems that stand in the training rows too."""
    known = {fingerprint(row.problem) for row in rows}
    return {
        name: {
            "problems": len(problems),
            "in_training": [p.index for p in problems if fingerprint(p.text) in known],
        }
        for name, problems in sets.items()
    }


def write_parquet(path: Path, rows: Sequence[Row], source: str, split: str) -> dict[str, Any]:
    """Write rows in verl's layout through a temporary file; return what the report says of the file."""
    table = pa.Table.from_pylist([verl_row(row, DATA_SOURCES[source], split) for row in rows])
    temporary = path.with_suffix(".tmp")
    pq.write_table(table, temporary)
    temporary.replace(path)
    return {
        "rows": len(rows),
        "data_source": DATA_SOURCES[source],
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
    }


def verl_row(row: Row, data_source: str, split: str) -> dict[str, Any]:
    """The columns of verl's own `math_dataset` preparation, and every accepted gold beside the first."""
    return {
        "data_source": data_source,
        "prompt": [{"role": "user", "content": row.problem + INSTRUCTION}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": row.golds[0]},
        "extra_info": {"split": split, "index": row.index, "golds": list(row.golds)},
    }
