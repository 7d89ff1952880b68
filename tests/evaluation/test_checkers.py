"""The checkers on recorded hard cases, on Minerva golds, and on answers made to hang them."""

from __future__ import annotations

import importlib.util
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hostile import hostile_answers

from collapse_laws.errors import UserError
from collapse_laws.tasks import benchmarks, checkers
from collapse_laws.tasks.benchmarks import Problem
from collapse_laws.tasks.verify_pool import VerifyItem, VerifyPool


@pytest.fixture(scope="module")
def pool() -> Iterator[VerifyPool]:
    with VerifyPool(workers=2) as pool:
        yield pool


def test_recorded_cases(shared: Path, pool: VerifyPool) -> None:
    lines = (shared / "data" / "checker_cases.jsonl").read_text(encoding="utf-8").splitlines()
    cases = [json.loads(line) for line in lines]
    assert len(cases) == 64
    problems = [Problem(0, "", (case["gold"],)) for case in cases]
    verdicts = checkers.check(problems, [case["prediction_text"] for case in cases], pool)
    for case, verdict in zip(cases, verdicts, strict=True):
        assert verdict.math_reward == case["verl_math_reward"], case["id"]
        if case["gold"] is None:  # verl's call raises here
            assert (verdict.math_verify, verdict.math_verify_status) == (0.0, "no_gold")
        else:
            assert verdict.math_verify == case["math_verify"], case["id"]
            assert verdict.math_verify_status == "ok"


def test_minerva_golds_in_e_notation(shared: Path, pool: VerifyPool) -> None:
    problems = benchmarks.load("minerva_math", shared / "data" / "bench")
    scientific = [p for p in problems if p.scientific]

    def second_score(shift: int, scale: float = 1.0) -> list[float]:
        texts = []
        for p in scientific:
            mantissa, exponent = p.scientific
            mantissa = mantissa if scale == 1.0 else f"{float(mantissa) * scale:.6g}"
            texts.append(f"so $\\boxed{{{mantissa} \\times 10^{{{exponent + shift}}}}}$")
        return [v.math_verify for v in checkers.check(scientific, texts, pool)]

    assert second_score(0) == [1.0] * 58
    for shift in (-1, 1, 7):
        assert second_score(shift) == [0.0] * 58
    assert second_score(0, scale=1.1) == [0.0] * 58


@pytest.mark.parametrize(
    ("text", "extracted"),
    [
        ("first $\\boxed{1}$ then $\\boxed{\\frac{1}{2}}$", "\\frac{1}{2}"),
        ("$\\boxed 7$.", "7"),
        ("no box", None),
        ("$\\boxed{1", None),
        ("\\fbox{3}", None),
        ("\\boxed{}", ""),
    ],
)
def test_extracted_answer(text: str, extracted: str | None) -> None:
    assert checkers.extract_answer(text) == extracted


def test_the_checker_is_verls_own() -> None:
    folder = next(iter(importlib.util.find_spec("verl").submodule_search_locations))
    used = Path(checkers.verl_math_reward().__file__)
    assert used == Path(folder) / "utils" / "reward_score" / "math_reward.py"


def test_without_verl_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    checkers.verl_math_reward.cache_clear()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="verl is not installed; install the extra `verl`"):
        checkers.math_reward("$\\boxed{1}$", ("1",))
    with pytest.raises(UserError, match="math-verify, which is not installed"):
        VerifyPool()


def test_the_pool_grades_from_a_thread(pool: VerifyPool) -> None:
    results = []
    item = VerifyItem("so $\\boxed{0.5}$", ("\\frac{1}{2}",))
    thread = threading.Thread(target=lambda: results.extend(pool.grade([item])))
    thread.start()
    thread.join()
    assert [(r.score, r.status) for r in results] == [(1.0, "ok")]


def test_a_worker_killed_from_outside_is_replaced(pool: VerifyPool) -> None:
    item = VerifyItem("so $\\boxed{0.5}$", ("\\frac{1}{2}",))
    pool.grade([item] * 4)
    for worker in pool._workers:
        worker.process.kill()
        worker.process.wait()
    first = pool.grade([item] * 4)
    assert {r.status for r in first} <= {"ok", "error"}
    assert [r.status for r in pool.grade([item] * 4)] == ["ok"] * 4


@pytest.mark.slow
def test_hostile_answers_neither_hang_nor_spoil_the_rest(shared: Path, pool: VerifyPool) -> None:
    hostile = hostile_answers()
    assert len(hostile) == 20
    real = benchmarks.load("math_test", shared / "data" / "bench")[:980]
    asked, texts = [], []
    for i, problem in enumerate(real):  # every third answer is wrong, hostile ones lie among them
        wrong = i % 3 == 0
        asked.append(problem)
        texts.append(f"so $\\boxed{{{'-98765' if wrong else problem.golds[0]}}}$")
        if i % 49 == 0:
            asked.append(Problem(10_000 + i, "", ("5",)))
            texts.append(hostile[i // 49][1])
    assert len(asked) == 1000
    started = time.perf_counter()
    verdicts = checkers.check(asked, texts, pool)
    seconds = time.perf_counter() - started
    names = [name for name, _ in hostile]
    odd = []
    for problem, verdict in zip(asked, verdicts, strict=True):
        if problem.index >= 10_000:
            assert (verdict.math_reward, verdict.math_verify) == (0.0, 0.0)
            if verdict.math_verify_status != "ok":
                odd.append(names[(problem.index - 10_000) // 49])
        else:
            right = 0.0 if problem.index % 3 == 0 else 1.0
            assert (verdict.math_reward, verdict.math_verify) == (right, right)
            assert verdict.math_verify_status == "ok"
    assert {"tower", "power", "factorial", "long_sum"} <= set(odd)
    assert seconds < 60
