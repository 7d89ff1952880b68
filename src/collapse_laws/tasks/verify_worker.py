"""One grading process of math-verify, started by `verify_pool` as a script of its own.

It reads one JSON request a line and answers with one JSON line. A parent process forks a child that
does the work; the kernel ends the child (SIGPROF, default action) once an item has used its CPU
seconds, even inside a big-integer power that no Python signal handler interrupts, and even if the
evaluation has died meanwhile. The parent then answers in the child's place and forks the next.
math-verify's own time-outs are off: they count wall time, so that a loaded machine would change
verdicts, and they work in a main thread only.

Imports the standard library and math-verify alone, so that it starts fast and forks without
threads.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import signal
import sys
from typing import Any

from latex2sympy2_extended.antlr_parser import PSParser
from math_verify.grader import verify
from math_verify.parser import ExprExtractionConfig, LatexExtractionConfig, parse
from sympy import Expr, Float, Integer

# the extraction targets of verl's `math_verify.compute_score`
GOLD_TARGETS = (LatexExtractionConfig(),)
PREDICTION_TARGETS = (ExprExtractionConfig(), LatexExtractionConfig())

# latex2sympy2-extended 1.11.0 carries one grammar per ANTLR runtime, and the one for 4.9.3, which
# Hydra and so verl pin,
# lacks a token that its converter asks for before it looks at percentages: 44\% would parse to
# nothing
if not hasattr(PSParser.AtomContext, "FUNC_GAMMA"):
    PSParser.AtomContext.FUNC_GAMMA = lambda self: None


def grade(text: str, golds: list[str], scientific: list[Any] | None) -> float:
    """1.0 where math-verify finds the answer in `text` equal to any gold, else 0.0.

    `scientific` is (mantissa, exponent) of a gold such as 3.6e-10, or None. Such a gold is compared
    after division by 10**exponent, since math-verify rounds to six decimals and would accept any
    number below 1e-6 for any other.
    """
    predictions = parse(text, PREDICTION_TARGETS, parsing_timeout=None)
    if not predictions:
        return 0.0
    if scientific is not None:
        mantissa, exponent = Float(scientific[0]), Integer(10) ** scientific[1]
        for prediction in predictions:
            if isinstance(prediction, Expr) and _equal(mantissa, (prediction / exponent).evalf(15)):
                return 1.0
        golds = golds[:1]  # the gold as written; its other forms are the same number
    for gold in golds:
        parsed = parse("\\boxed{" + gold + "}", GOLD_TARGETS, parsing_timeout=None)
        if any(_equal(g, p) for p in predictions for g in parsed):
            return 1.0
    return 0.0


def _equal(gold: Any, prediction: Any) -> bool:
    return verify(gold, prediction, timeout_seconds=None)


def _answer(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def _work(cpu_seconds: float) -> None:
    """The child: grade until the input ends."""
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    # one request is in flight at a time, so nothing is read ahead and lost when this process is
    # killed
    while line := sys.stdin.readline():
        request = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
        try:
            score = grade(request["text"], request["golds"], request["scientific"])
        except (MemoryError, RecursionError) as error:
            answer = {
                "score": 0.0,
                "status": "memory" if isinstance(error, MemoryError) else "error",
            }
        else:
            answer = {"score": score, "status": "ok"}
        signal.setitimer(signal.ITIMER_PROF, 0)
        _answer(answer)


def main(cpu_seconds: float, memory_bytes: int) -> None:
    """Fork children until the input ends; answer for those that die."""
    logging.disable(logging.CRITICAL)
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.setrecursionlimit(10_000)
    parse("$\\boxed{\\frac{1}{2}}$", GOLD_TARGETS, parsing_timeout=None)  # builds the grammar once, before any fork
    _answer({"status": "ready"})
    while True:
        child = os.fork()
        if child == 0:
            _work(cpu_seconds)
            os._exit(0)
        _, wait_status = os.waitpid(child, 0)
        if os.WIFEXITED(wait_status) and os.WEXITSTATUS(wait_status) == 0:
            return
        killed = os.WTERMSIG(wait_status) if os.WIFSIGNALED(wait_status) else 0
        _answer({"score": 0.0, "status": "timeout" if killed == signal.SIGPROF else "error"})


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
