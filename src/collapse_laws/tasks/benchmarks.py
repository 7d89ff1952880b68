"""The benchmarks: where each comes from, what is wrong with it, and how its golds are made.

Section 2 of the paper names the sets ([stated]: MATH, MATH-500, Minerva Math, AMC 2023, AMC 2024), but gives no Hub id, no
revision and no row count for AMC 2024; those are [declared] here. A set is read from a folder of local files, or from
the Hub at its revision; either way its row count and the digest of every row are compared with what stands here, and an
error names the first row that differs.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from collapse_laws.errors import UserError

ROW_DIGEST_DIGITS = 6  # hex digits of a row's SHA-256: a changed row goes unnoticed with probability 2^-24
ROW_DIGESTS = "benchmark_rows.json"


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One set of problems."""

    name: str
    title: str
    hub: str  # Hugging Face dataset
    config: str
    split: str
    revision: str | None  # None: no revision is known to hold this content
    file: str  # local file without its ending: FILE.jsonl, FILE.part1of2.jsonl ..., or FILE.parquet
    rows: int
    columns: dict[str, tuple[str, ...]]  # our name -> names in the copies; what the digests cover
    licence: str
    defects: tuple[str, ...] = ()  # what is wrong, and what is done about it
    flagged: dict[int, str] = field(default_factory=dict)  # row -> why no right answer can score or exist

    def content_sha256(self) -> str:
        """SHA-256 of the row digests in order: the content hash of the set."""
        return hashlib.sha256(_known_digests()[self.name].encode()).hexdigest()


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


_MATH_HUB = "DigitalLearningGmbH/MATH-lighteval"
_MATH_REVISION = "0530c78699ea5e8eb5530600900e1f328b48acad"
_MATH_COLUMNS = {
    "problem": ("problem",),
    "level": ("level",),
    "subject": ("type", "subject"),
    "solution": ("solution",),
}

BENCHMARKS: dict[str, Benchmark] = {
    b.name: b
    for b in (
        Benchmark(
            name="math_train",
            title="MATH train",
            hub=_MATH_HUB,
            config="default",
            split="train",
            revision=_MATH_REVISION,
            file="math_train",
            rows=7500,
            columns=_MATH_COLUMNS,
            licence="MIT",
            defects=(
                "three golds are faulty; kept, since the training set is the published one, and flagged",
                "114 solutions have several boxes: the last one is the gold, as in verl",
                "rows 2773 and 2832 have the level '?': reported as a level of its own",
            ),
            flagged={
                252: "the gold is read as '{17}.', which no answer equals",
                5341: "the box is empty: an empty box scores 1 and every answer 0",
                5343: "the box is empty: an empty box scores 1 and every answer 0",
            },
        ),
        Benchmark(
            name="math_test",
            title="MATH test",
            hub=_MATH_HUB,
            config="default",
            split="test",
            revision=_MATH_REVISION,
            file="math_test",
            rows=5000,
            columns=_MATH_COLUMNS,
            licence="MIT",
            defects=(
                "90 solutions have several boxes: the last one is the gold, as in verl",
                "problems 1038 and 4656 are near-duplicates of training problems 1414 and 2948: kept",
            ),
        ),
        Benchmark(
            name="math500",
            title="MATH-500",
            hub="HuggingFaceH4/MATH-500",
            config="default",
            split="test",
            revision="6e4ed1a2a79af7d8630a6b768ec859cb5af4d3be",
            file="math500",
            rows=500,
            columns={
                "problem": ("problem",),
                "level": ("level",),
                "subject": ("subject", "type"),
                "answer": ("answer",),
            },
            licence="MIT",
            defects=("a subset of MATH test: never report it beside MATH as independent",),
        ),
        Benchmark(
            name="minerva_math",
            title="Minerva Math",
            hub="math-ai/minervamath",
            config="default",
            split="test",
            revision=None,
            file="minerva_math",
            rows=272,
            columns={"problem": ("problem", "question"), "answer": ("answer",)},
            licence="MIT for the file; the problems are MIT OpenCourseWare's",
            defects=(
                "58 golds are in e-notation (4.5e33), which neither checker takes for 4.5 \\times 10^{33}: accepted in either form",
                "golds 38 and 49 are Python fractions (-1./3), gold 5 is np.arcsin(10/13): accepted as LaTeX too",
                "gold 86 ends in a line break: stripped",
            ),
        ),
        Benchmark(
            name="amc23",
            title="AMC 2023",
            hub="math-ai/amc23",
            config="default",
            split="test",
            revision="80815d37005feb82cd7f8fbc6901d5d3eff43057",
            file="amc23_40",
            rows=40,
            columns={"problem": ("problem", "question"), "answer": ("answer",)},
            licence="the Mathematical Association of America's copyright",
            defects=("golds are floats (27.0), which no string checker takes for 27: read as integers",),
        ),
        Benchmark(
            name="amc24",
            title="AMC 2024",
            hub="rawsh/2024_AMC12",
            config="default",
            split="train",
            revision="47b35303156a75cdfc6fcca694db66905d5b2033",
            file="amc24_45",
            rows=45,
            columns={
                "exam": ("exam",),
                "number": ("problem_number",),
                "problem": ("problem",),
                "answer": ("answer",),
            },
            licence="none stated; the Mathematical Association of America's copyright",
            defects=(
                "45 of the 50 problems of AMC 12A and 12B: those with figures are missing",
                "three rows cannot be answered as written: scored as they are, flagged, and the score without them is given",
                "the gold of 12B-4 is the letter of a bin, D: kept",
            ),
            flagged={
                17: "12A-20 asks which of the following intervals, and none follow",
                30: "12B-10 lists 2, 2, 3, 2, ... for 2.2, 3.2, ...",
                39: "12B-20 asks for s, and its text has 8 in the place of s",
            },
        ),
    )
}

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


def row_digests(canonical: Iterable[Mapping[str, str]]) -> str:
    """ROW_DIGEST_DIGITS hex digits a row, one after the other."""
    return "".join(
        hashlib.sha256(json.dumps(list(row.values()), ensure_ascii=True).encode()).hexdigest()[
            :ROW_DIGEST_DIGITS
        ]
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
            f"{differing[0]} ({first['problem'][:60]!r}); allowed: the content of revision {chosen.revision} of {chosen.hub}."
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
    from collapse_laws.tasks.checkers import verl_math_reward

    checker = verl_math_reward()
    return checker.remove_boxed(checker.last_boxed_only_string(solution))


def gold_forms(gold: str) -> tuple[tuple[str, ...], tuple[str, int] | None]:
    """The accepted forms of a Minerva gold, and its (mantissa, exponent) where it is in e-notation."""
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
