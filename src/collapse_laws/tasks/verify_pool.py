"""A pool of math-verify processes that no answer can hang or kill.

math-verify computes with what a model wrote, and a model may write a tower of powers. Each worker
is a process of its own (`verify_worker.py`); an item that uses more than its CPU seconds is ended
by the kernel and gets the status `timeout`, and a worker that does not answer within a wall time is
killed from here. One item is in flight per worker, so nothing but the item at fault is lost. The
pool works from any thread, and verdicts do not depend on the load of the machine.
"""

from __future__ import annotations

import importlib.util
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from collapse_laws.errors import UserError

WORKER = Path(__file__).with_name("verify_worker.py")
STATUSES = ("ok", "timeout", "memory", "error", "no_gold")
# The slowest MATH test solution takes 0.25 s, most a few ms; hostile answers never end.
CPU_SECONDS = 1.0  # [declared]
# Wall limit in CPU limits: reached only by a worker that neither computes nor answers.
WALL_FACTOR = 20  # [declared]
MEMORY_BYTES = 4 << 30  # address space of a worker [declared]
START_SECONDS = 120.0  # importing sympy on a busy machine


@dataclass(frozen=True, slots=True)
class VerifyItem:
    """One answer to grade: the whole response, the accepted golds and, for a gold like 3.6e-10, its parts."""

    text: str
    golds: tuple[str | None, ...]
    scientific: tuple[str, int] | None = None  # mantissa, exponent


@dataclass(frozen=True, slots=True)
class VerifyResult:
    """The score (0 or 1) and one of STATUSES; whatever is not `ok` scores 0."""

    score: float
    status: str


class _Worker:
    """One grading process and the item it is at work on."""

    def __init__(self, cpu_seconds: float) -> None:
        self._cpu_seconds = cpu_seconds
        self.item: int | None = None
        self.deadline = 0.0
        self._start()

    def _start(self) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-P", str(WORKER), str(self._cpu_seconds), str(MEMORY_BYTES)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,  # so that a kill reaches its child too
        )
        self._buffer = b""

    def send(self, index: int, item: VerifyItem) -> None:
        request = {"text": item.text, "golds": item.golds, "scientific": item.scientific}
        self.item = index
        self.deadline = time.monotonic() + max(WALL_FACTOR * self._cpu_seconds, 10.0)
        try:
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            self.deadline = 0.0  # the worker is gone; the next look replaces it

    def receive(self) -> list[dict[str, Any]] | None:
        """The lines that have arrived; None where the process has gone."""
        data = os.read(self.process.stdout.fileno(), 1 << 16)
        if not data:
            return None
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def replace(self) -> None:
        self.close()
        self._start()

    def close(self) -> None:
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            try:
                pipe.close()
            except BrokenPipeError:  # an unsent request is flushed on closing
                pass
        self.item = None


class VerifyPool:
    """Grades items in `workers` processes; use as a context manager.

    Raises UserError where math-verify is not installed or a worker cannot start.
    """

    def __init__(self, workers: int | None = None, cpu_seconds: float = CPU_SECONDS) -> None:
        if importlib.util.find_spec("math_verify") is None:
            raise UserError(
                "the second score needs math-verify, which is not installed; install the extra `verl`, or set verify: "
                "false in the study's evaluation section."
            )
        self._count = workers or len(os.sched_getaffinity(0))
        self._cpu_seconds = cpu_seconds
        self._workers: list[_Worker] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for worker in self._workers:
            worker.close()
        self._workers = []

    def grade(self, items: Iterable[VerifyItem]) -> list[VerifyResult]:
        """The result of each item, in the order given."""
        items = list(items)
        results: list[VerifyResult | None] = [None] * len(items)
        waiting = []
        for index, item in enumerate(items):
            if any(gold is None for gold in item.golds):
                results[index] = VerifyResult(0.0, "no_gold")
            else:
                waiting.append(index)
        if waiting:
            self._run(items, waiting[::-1], results)
        return results

    def _run(self, items: Sequence[VerifyItem], waiting: list[int], results: list[VerifyResult | None]) -> None:
        while len(self._workers) < min(self._count, len(waiting)):
            self._workers.append(self._started(_Worker(self._cpu_seconds)))
        with selectors.DefaultSelector() as selector:
            for worker in self._workers:
                if waiting:
                    worker.send(index := waiting.pop(), items[index])
                selector.register(worker.process.stdout, selectors.EVENT_READ, worker)
            while any(worker.item is not None for worker in self._workers):
                nearest = min(w.deadline for w in self._workers if w.item is not None)
                ready = {key.data for key, _ in selector.select(max(nearest - time.monotonic(), 0.0))}
                for worker in self._workers:
                    if worker.item is None:
                        continue
                    result = self._look(worker, worker in ready, selector)
                    if result is not None:
                        results[worker.item] = result
                        worker.item = None
                        if waiting:
                            worker.send(index := waiting.pop(), items[index])

    def _look(self, worker: _Worker, ready: bool, selector: selectors.BaseSelector) -> VerifyResult | None:
        """The result of the worker's item if there is one; a dead or silent worker is replaced."""
        status = "timeout"
        if ready:
            lines = worker.receive()
            if lines:
                return VerifyResult(lines[0]["score"], lines[0]["status"])
            if lines is not None:  # half a line
                return None
            status = "error"
        elif time.monotonic() < worker.deadline:
            return None
        item = worker.item
        selector.unregister(worker.process.stdout)
        worker.replace()
        self._started(worker)
        selector.register(worker.process.stdout, selectors.EVENT_READ, worker)
        worker.item = item
        return VerifyResult(0.0, status)

    @staticmethod
    def _started(worker: _Worker) -> _Worker:
        """Wait for the worker's first line."""
        with selectors.DefaultSelector() as selector:
            selector.register(worker.process.stdout, selectors.EVENT_READ)
            lines = worker.receive() if selector.select(START_SECONDS) else None
        if not lines or lines[0].get("status") != "ready":
            worker.close()
            raise UserError(
                "the grading process of math-verify did not start; `python -c 'import math_verify'` shows why."
            )
        return worker
