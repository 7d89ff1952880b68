"""Scoring 5,000 MATH answers with both checkers takes under a minute on two cores."""

from __future__ import annotations

from pathlib import Path

from pytest_benchmark.fixture import BenchmarkFixture

from collapse_laws.tasks import benchmarks, checkers
from collapse_laws.tasks.verify_pool import VerifyPool


def test_scoring_math_with_both_checkers(benchmark: BenchmarkFixture, shared: Path) -> None:
    folder = shared / "data" / "bench"
    problems = benchmarks.load("math_test", folder)
    rows, _ = benchmarks._local_rows(benchmarks.benchmark("math_test"), folder)
    solutions = [row["solution"] for row in rows]

    def score() -> list[checkers.Verdict]:
        with VerifyPool(workers=2) as pool:
            return checkers.check(problems, solutions, pool)

    verdicts = benchmark.pedantic(score, rounds=1)
    assert sum(v.math_reward for v in verdicts) == 5000
    assert sum(v.math_verify for v in verdicts) >= 4990
    assert benchmark.stats.stats.max < 60
