"""Checkers: what makes an answer right.

The score is the paper's rule-based checker (section 2, [stated] without a name). Taken as
`math_reward.compute_score` of verl [declared], which verl itself uses for MATH: the last
`\\boxed{}`, normalised as a string, equal to the gold. It is used through verl's own file, not
rewritten. math-verify gives a second, labelled score, since `math_reward` rejects right answers in
other forms (0.75 for 3/4). verl has no checker for Minerva and AMC; the same two are used there on
golds in the forms that `benchmarks` makes of them [declared].
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from dataclasses import dataclass

from collapse_laws.tasks.benchmarks import Problem
from collapse_laws.tasks.verify_pool import VerifyItem, VerifyPool
from collapse_laws.tasks.verl_checker import verl_math_reward

MATH_REWARD, MATH_VERIFY = "math_reward", "math_verify"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the checkers say about one response."""

    extracted: str | None  # what the score compared with the gold; None where the response has no box
    math_reward: float  # 0 or 1
    math_verify: float | None  # 0 or 1; None where it was not asked for
    math_verify_status: str | None  # one of verify_pool.STATUSES


def extract_answer(text: str) -> str | None:
    """The content of the last box as verl's checker reads it; None where there is none, or it does not close."""
    checker = verl_math_reward()
    box = checker.last_boxed_only_string(text)
    # remove_boxed asserts one of these two beginnings; \fbox has neither and verl scores it 0
    if box is None or not box.startswith(("\\boxed{", "\\boxed ")):
        return None
    return checker.remove_boxed(box) if box.startswith("\\boxed ") or box.endswith("}") else None


def math_reward(text: str, golds: Sequence[str | None]) -> float:
    """1.0 where verl's checker accepts the response for any of the golds, else 0.0."""
    checker = verl_math_reward()
    with contextlib.redirect_stdout(io.StringIO()):  # it prints its own assertion errors
        return max(float(checker.compute_score(text, gold)) for gold in golds)


def check(problems: Sequence[Problem], texts: Sequence[str], pool: VerifyPool | None = None) -> list[Verdict]:
    """The verdict on each response; `texts[i]` answers `problems[i]`. Without a pool the second score is None."""
    second = [(None, None)] * len(texts)
    if pool is not None:
        items = [
            VerifyItem(text, problem.golds, problem.scientific) for problem, text in zip(problems, texts, strict=True)
        ]
        second = [(result.score, result.status) for result in pool.grade(items)]
    return [
        Verdict(extract_answer(text), math_reward(text, problem.golds), *verify)
        for problem, text, verify in zip(problems, texts, second, strict=True)
    ]
