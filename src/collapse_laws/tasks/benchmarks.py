"""Benchmarks as problems: read from a folder or the Hub, checked row by row, golds brought into the forms accepted.

A set's row count and the digest of every row are compared with what `benchmark_rows.json` holds,
whichever way it was read, and an error names the first row that differs. `benchmark_registry` says
what each set is.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from collapse_laws.errors import UserError
from collapse_laws.tasks.benchmark_registry import BENCHMARKS, Benchmark

ROW_DIGEST_DIGITS = 6  # hex digits of a row's SHA-256: a changed row goes unnoticed with probability 2^-24
ROW_DIGESTS = "benchmark_rows.json"


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem with its golds; an answer equal to any gold is right."""

    index: int  # row of the set, from 0
    text: str
    golds: tuple[str, ...]
    subject: str | None = None
    level: str | None = None
    scientific: tuple[str, int] | None = None  # (mantissa, exponent) of a gold in e-notation
    flag: str | None = None  # why no right answer can score or exist
    answer_tokens: tuple[int, ...] | None = None  # set where the answer is compared token by token
    prompt_tokens: tuple[int, ...] | None = None  # set where the problem is not text


_SCIENTIFIC = re.compile(r"(-?\d+(?:\.\d*)?)[eE]([+-]?\d+)")
_PYTHON_FRACTION = re.compile(r"(-?)(\d+)\.?/(\d+)\.?")


def benchmark(name: str) -> Benchmark:
    """The registered set of that name; UserError naming the others."""
    if name not in BENCHMARKS:
        raise UserError(f"there is no benchmark {name!r}; allowed: {', '.join(BENCHMARKS)}.")
    return BENCHMARKS[name]


def load(name: str, folder: Path | str) -> list[Problem]:
    """The problems of a set, from `folder` if its file lies there, else from the Hub; checked row by row.

    Raises UserError where the set cannot be had, or where count or content differ.
    """
    chosen = benchmark(name)
    rows, source = _local_rows(chosen, Path(folder))
    if rows is None:
        rows, source = _hub_rows(chosen, Path(folder)), f"{chosen.hub} on the Hub"
    canonical = [canonical_row(chosen, row, source, i) for i, row in enumerate(rows)]
    _check(chosen, canonical, source)
    return [_problem(chosen, i, row) for i, row in enumerate(canonical)]


def canonical_row(chosen: Benchmark, row: Mapping[str, Any], source: str, index: int) -> dict[str, str]:
    """The row under our column names, every value as text; UserError where a column is missing."""
    values = {}
    for ours, names in chosen.columns.items():
        value = next((row[name] for name in names if row.get(name) is not None), None)
        if value is None:
            raise UserError(f"{source}, row {index}: the column {' or '.join(names)} is missing.")
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        text = str(value)
        # two copies of AMC 2023 hold the same golds as floats and as text
        if chosen.name == "amc23" and ours == "answer" and re.fullmatch(r"-?\d+\.0", text):
            text = text[:-2]
        values[ours] = text.removeprefix("Level ") if ours == "level" else text
    return values


def content_sha256(name: str) -> str:
    """SHA-256 of a registered set's row digests in order: the content hash of the set."""
    return hashlib.sha256(_known_digests()[benchmark(name).name].encode()).hexdigest()


def row_digests(canonical: Iterable[Mapping[str, str]]) -> str:
    """ROW_DIGEST_DIGITS hex digits a row, one after the other."""
    return "".join(
        hashlib.sha256(json.dumps(list(row.values()), ensure_ascii=True).encode()).hexdigest()[:ROW_DIGEST_DIGITS]
        for row in canonical
    )


@functools.cache
def _known_digests() -> dict[str, str]:
    return json.loads(resources.files("collapse_laws.tasks").joinpath(ROW_DIGESTS).read_text())


def _check(chosen: Benchmark, canonical: list[dict[str, str]], source: str) -> None:
    found, known = row_digests(canonical), _known_digests()[chosen.name]
    if len(canonical) != chosen.rows:
        raise UserError(f"{source} has {len(canonical)} rows; {chosen.title} has {chosen.rows}.")
    if found != known:
        step = ROW_DIGEST_DIGITS
        differing = [i for i in range(chosen.rows) if found[i * step :][:step] != known[i * step :][:step]]
        first = canonical[differing[0]]
        raise UserError(
            f"{source} differs from {chosen.title} in {len(differing)} of {chosen.rows} rows, first in row "
            f"{differing[0]} ({first['problem'][:60]!r}); allowed: the content of revision {chosen.revision} of "
            f"{chosen.hub}."
        )


def _local_rows(chosen: Benchmark, folder: Path) -> tuple[list[dict[str, Any]] | None, str]:
    paths = sorted(folder.glob(f"{chosen.file}.jsonl")) or sorted(folder.glob(f"{chosen.file}.part*of*.jsonl"))
    if paths:
        rows = []
        for path in paths:
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                try:
                    rows.append(json.loads(line))
                except ValueError as error:
                    raise UserError(f"{path}, line {number}, is not JSON: {error}.") from None
        return rows, str(folder / chosen.file)
    path = folder / f"{chosen.file}.parquet"
    if path.exists():
        import pyarrow.parquet

        return pyarrow.parquet.read_table(path).to_pylist(), str(path)
    return None, ""


def _hub_rows(chosen: Benchmark, folder: Path) -> list[dict[str, Any]]:
    advice = f"put its rows at {folder / chosen.file}.jsonl"
    try:
        import datasets
    except ImportError:
        raise UserError(
            f"{chosen.title} is not in {folder}, and the package datasets, which reads it from the Hub, is not "
            f"installed; install the extra `verl`, or {advice}."
        ) from None
    try:
        rows = datasets.load_dataset(chosen.hub, chosen.config, split=chosen.split, revision=chosen.revision)
    except (OSError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(
            f"{chosen.title} is not in {folder}, and {chosen.hub} cannot be read from the Hub ({reason}); {advice}."
        ) from None
    return list(rows)


def _problem(chosen: Benchmark, index: int, row: Mapping[str, str]) -> Problem:
    gold = row["answer"] if "answer" in row else solution_gold(row["solution"])
    golds, scientific = gold_forms(gold) if chosen.name == "minerva_math" else ((gold,), None)
    return Problem(
        index=index,
        text=row["problem"],
        golds=golds,
        subject=row.get("subject") or row.get("exam"),
        level=row.get("level"),
        scientific=scientific,
        flag=chosen.flagged.get(index),
    )


def solution_gold(solution: str) -> str:
    """The content of the last box of a solution, read by verl's functions, as its data preparation does."""
    from collapse_laws.tasks.verl_checker import verl_math_reward

    checker = verl_math_reward()
    return checker.remove_boxed(checker.last_boxed_only_string(solution))


def gold_forms(gold: str) -> tuple[tuple[str, ...], tuple[str, int] | None]:
    """The accepted forms of a Minerva gold, and (mantissa, exponent) of one in e-notation."""
    gold = gold.strip()
    if match := _SCIENTIFIC.fullmatch(gold):
        mantissa, exponent = match[1], int(match[2])
        forms = [gold, f"{mantissa} \\times 10^{{{exponent}}}"]
        if float(mantissa) == 1:
            forms.append(f"10^{{{exponent}}}")
        return tuple(forms), (mantissa, exponent)
    if match := _PYTHON_FRACTION.fullmatch(gold):
        return (gold, f"{match[1]}\\frac{{{match[2]}}}{{{match[3]}}}"), None
    if gold.startswith("np.arcsin"):
        return (gold, gold.replace("np.arcsin", "\\arcsin")), None
    return (gold,), None
