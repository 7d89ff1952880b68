"""The registered sets on the real data: counts, contents, golds, and errors naming what differs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from collapse_laws.errors import UserError
from collapse_laws.tasks import benchmarks
from collapse_laws.tasks.checkers import math_reward

COUNTS = {
    "math_train": 7500,
    "math_test": 5000,
    "math500": 500,
    "minerva_math": 272,
    "amc23": 40,
    "amc24": 45,
}


@pytest.fixture(scope="module")
def bench(shared: Path) -> Path:
    return shared / "data" / "bench"


@pytest.fixture(scope="module")
def sets(bench: Path) -> dict[str, list[benchmarks.Problem]]:
    return {name: benchmarks.load(name, bench) for name in COUNTS}


def test_every_set_loads_with_its_count(sets: dict[str, list[benchmarks.Problem]]) -> None:
    assert {name: len(problems) for name, problems in sets.items()} == COUNTS
    assert set(COUNTS) == set(benchmarks.BENCHMARKS)


def test_every_gold_solution_scores_one_but_the_faulty_three(
    sets: dict[str, list[benchmarks.Problem]], bench: Path
) -> None:
    for name in ("math_train", "math_test"):
        rows, _ = benchmarks._local_rows(benchmarks.benchmark(name), bench)
        for problem, row in zip(sets[name], rows, strict=True):
            assert problem.golds == (row["answer"],)
            assert math_reward(row["solution"], problem.golds) == 1.0
    flagged = [problem.index for problem in sets["math_train"] if problem.flag]
    assert flagged == [252, 5341, 5343]
    golds = [sets["math_train"][i].golds[0] for i in flagged]
    assert golds == ["{17}.", "", ""]
    assert math_reward("$\\boxed{17}$", (golds[0],)) == 0.0


def test_math500_is_part_of_math_test(sets: dict[str, list[benchmarks.Problem]]) -> None:
    whole = {problem.text: problem for problem in sets["math_test"]}
    for problem in sets["math500"]:
        twin = whole[problem.text]
        assert (problem.golds, problem.subject, problem.level) == (
            twin.golds,
            twin.subject,
            twin.level,
        )


def test_float_golds_of_amc23_are_integers(sets: dict[str, list[benchmarks.Problem]]) -> None:
    assert [p.golds[0] for p in sets["amc23"]][:3] == ["27", "36", "45"]
    assert all(p.golds[0].lstrip("-").isdigit() for p in sets["amc23"])
    assert [p.index for p in sets["amc24"] if p.flag] == [17, 30, 39]


def test_minerva_golds_in_e_notation_have_a_latex_form(
    sets: dict[str, list[benchmarks.Problem]],
) -> None:
    scientific = [p for p in sets["minerva_math"] if p.scientific]
    assert len(scientific) == 58
    for p in scientific:
        mantissa, exponent = p.scientific
        assert float(p.golds[0]) == float(f"{mantissa}e{exponent}")
        right = f"so $\\boxed{{{mantissa} \\times 10^{{{exponent}}}}}$"
        assert math_reward(right, p.golds) == 1.0
        assert math_reward(f"so $\\boxed{{{p.golds[0]}}}$", p.golds) == 1.0
        for wrong in (exponent - 1, exponent + 1, -exponent):
            answer = f"so $\\boxed{{{mantissa} \\times 10^{{{wrong}}}}}$"
            assert math_reward(answer, p.golds) == 0.0
    assert not any(g.endswith("\n") for p in sets["minerva_math"] for g in p.golds)


@pytest.mark.parametrize(
    ("gold", "forms"),
    [
        ("-1./3", ("-1./3", "-\\frac{1}{3}")),
        ("1e-3", ("1e-3", "1 \\times 10^{-3}", "10^{-3}")),
        ("np.arcsin(10/13)", ("np.arcsin(10/13)", "\\arcsin(10/13)")),
        ("I(0) e^{-t}\n", ("I(0) e^{-t}",)),
        ("1.60", ("1.60",)),
    ],
)
def test_gold_forms(gold: str, forms: tuple[str, ...]) -> None:
    assert benchmarks.gold_forms(gold)[0] == forms


def _copy(bench: Path, folder: Path, rows: list[dict]) -> None:
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "amc24_45.jsonl").write_text(text, encoding="utf-8")


def test_a_difference_is_named(bench: Path, tmp_path: Path) -> None:
    rows, _ = benchmarks._local_rows(benchmarks.benchmark("amc24"), bench)
    _copy(bench, tmp_path, rows)
    assert len(benchmarks.load("amc24", tmp_path)) == 45
    _copy(bench, tmp_path, rows[:-1])
    with pytest.raises(UserError, match="has 44 rows; AMC 2024 has 45"):
        benchmarks.load("amc24", tmp_path)
    rows[7] = {**rows[7], "answer": "1"}
    _copy(bench, tmp_path, rows)
    with pytest.raises(UserError, match=r"in 1 of 45 rows, first in row 7 \("):
        benchmarks.load("amc24", tmp_path)
    del rows[3]["answer"]
    _copy(bench, tmp_path, rows)
    with pytest.raises(UserError, match="row 3: the column answer is missing"):
        benchmarks.load("amc24", tmp_path)


def test_copies_with_other_column_names_are_the_same_content(bench: Path, tmp_path: Path) -> None:
    rows, _ = benchmarks._local_rows(benchmarks.benchmark("minerva_math"), bench)
    renamed = [{"question": row["problem"], "answer": row["answer"]} for row in rows]
    text = "".join(json.dumps(row) + "\n" for row in renamed)
    (tmp_path / "minerva_math.jsonl").write_text(text, encoding="utf-8")
    assert len(benchmarks.load("minerva_math", tmp_path)) == 272


def test_an_unknown_set_names_the_known_ones() -> None:
    with pytest.raises(UserError, match="no benchmark 'aime'; allowed: math_train, math_test"):
        benchmarks.load("aime", "nowhere")
