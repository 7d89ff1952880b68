"""Generation for evaluation: requests, parts that survive a kill, and the two backends that fill them.

A request is one sample of one problem, with a seed derived from (evaluation seed, benchmark,
problem, sample) alone, so that every cell and snapshot decodes in the same way [stated: decoding
and samples fixed across cells and steps] and neither batching nor a resumed run changes a sample.
Requests are grouped into parts; a part's file is written once, whole. Backends: `local` (this
package's sampler, for models that a CPU holds) and `vllm` (its offline engine, in an environment of
its own).
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from collapse_laws.errors import UserError
from collapse_laws.wide_heads import NARROWEST, head_dim, write_with_wide_heads

VLLM_PYTHON = "COLLAPSE_LAWS_VLLM_PYTHON"
VLLM_WORKER = Path(__file__).with_name("generate_vllm.py")
REQUESTS_PER_PART = 4096  # what a kill can lose; large enough for an engine to stay full [declared]
BACKENDS = ("local", "vllm")


@dataclass(frozen=True, slots=True)
class Decoding:
    """How responses are drawn; the same for every cell and snapshot of a study."""

    samples: int
    temperature: float
    top_p: float
    max_new_tokens: int
    stop: tuple[str, ...] = ()

    def check(self, backend: str) -> None:
        """UserError for what cannot be meant, or what the backend cannot do."""
        if self.temperature == 0 and self.samples > 1:
            raise UserError(
                f"temperature 0 gives {self.samples} equal samples; samples must be 1, or the temperature above 0."
            )
        if backend == "local" and self.temperature > 0 and self.top_p != 1.0:
            raise UserError(f"the local sampler has no top_p ({self.top_p}); set it to 1, or backend: vllm.")


@dataclass(frozen=True, slots=True)
class Part:
    """Requests that are generated and written together: (problem row, sample, seed)."""

    path: Path
    requests: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class Completion:
    """One generated response."""

    problem: int  # row of the benchmark
    sample: int
    tokens: tuple[int, ...]  # without the token that ended it
    finished: bool  # an end token or a stop string came within the limit


@dataclass(frozen=True, slots=True)
class Job:
    """What a backend needs: the checkpoint, prompt token ids by problem row, how to decode."""

    checkpoint: Path
    prompts: dict[int, tuple[int, ...]]
    decoding: Decoding
    end_tokens: tuple[int, ...]  # the first is the tokenizer's end token
    pad_token: int
    engine: dict[str, Any]  # of vLLM: dtype, tensor_parallel_size, ...


def request_seed(seed: int, benchmark: str, problem: int, sample: int) -> int:
    """The seed of one request, 31 bits."""
    state = np.random.SeedSequence((seed, zlib.crc32(benchmark.encode()), problem, sample))
    return int(state.generate_state(1)[0]) & 0x7FFFFFFF


def plan(
    folder: Path,
    benchmark: str,
    rows: Sequence[int],
    samples: int,
    seed: int,
    size: int = REQUESTS_PER_PART,
) -> list[Part]:
    """The parts of an evaluation; all samples of a problem lie in one part."""
    per_part = max(1, size // samples)
    return [
        Part(
            folder / f"part-{number:05d}.jsonl",
            tuple((row, s, request_seed(seed, benchmark, row, s)) for row in chosen for s in range(samples)),
        )
        for number, chosen in enumerate(rows[i : i + per_part] for i in range(0, len(rows), per_part))
    ]


def read_part(part: Part, end_tokens: Sequence[int]) -> tuple[list[Completion], str]:
    """The completions of a finished part, end tokens cut off, and the backend's version."""
    lines = [json.loads(line) for line in part.path.read_text(encoding="utf-8").splitlines()]
    *rows, version = lines
    completions = []
    for row in rows:
        tokens = row["tokens"]
        end = next((i for i, token in enumerate(tokens) if token in end_tokens), len(tokens))
        finished = row["finished"] or end < len(tokens)
        completions.append(Completion(row["problem"], row["sample"], tuple(tokens[:end]), finished))
    name, number = next(iter(version.items()))
    return completions, f"{'local' if name == 'torch' else name} ({name} {number})"


def generate(backend: str, job: Job, parts: Sequence[Part]) -> Iterator[Part]:
    """Fill the parts that are not there; yields every part once its file is there."""
    job.decoding.check(backend)
    if backend == "vllm":
        _run_vllm(job, [part for part in parts if not part.path.exists()])
        yield from parts
        return
    sampler = None
    for part in parts:
        if not part.path.exists():
            sampler = sampler or _LocalSampler(job)
            sampler.fill(part)
        yield part


class _LocalSampler:
    """The package's own sampler with the checkpoint loaded once."""

    def __init__(self, job: Job) -> None:
        from collapse_laws.policy import load_policy

        self._job = job
        self._model, _ = load_policy(job.checkpoint)

    def fill(self, part: Part) -> None:
        import torch

        from collapse_laws.rollout import sample

        decoding = self._job.decoding
        rows = [problem for problem, sample, _ in part.requests if sample == 0]
        prompts = [self._job.prompts[row] for row in rows]
        width = max(len(prompt) for prompt in prompts)
        padded = torch.full((len(prompts), width), self._job.pad_token)
        for i, prompt in enumerate(prompts):
            padded[i, : len(prompt)] = torch.tensor(prompt)
        uniform = None
        if decoding.temperature > 0:
            draws = [np.random.default_rng(seed).random(decoding.max_new_tokens) for _, _, seed in part.requests]
            uniform = torch.from_numpy(np.stack(draws))
        rollouts = sample(
            self._model,
            padded,
            torch.tensor([len(prompt) for prompt in prompts]),
            samples=decoding.samples,
            max_new_tokens=decoding.max_new_tokens,
            eos_token_id=self._job.end_tokens[0],
            pad_token_id=self._job.pad_token,
            temperature=decoding.temperature,
            uniform=uniform,
        )
        lines = []
        for i, (problem, number, _) in enumerate(part.requests):
            tokens = rollouts.tokens[i, : int(rollouts.lengths[i])].tolist()
            finished = bool(rollouts.finished[i])
            lines.append({"problem": problem, "sample": number, "tokens": tokens, "finished": finished})
        lines.append({"torch": torch.__version__})
        part.path.parent.mkdir(parents=True, exist_ok=True)
        temporary = part.path.with_name(f".{part.path.name}.{os.getpid()}")
        temporary.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        os.replace(temporary, part.path)


def vllm_python() -> str:
    """The interpreter that has vLLM: $COLLAPSE_LAWS_VLLM_PYTHON, .venv-vllm, or this one; UserError where none has."""
    if named := os.environ.get(VLLM_PYTHON):
        if not os.access(named, os.X_OK):
            raise UserError(f"{VLLM_PYTHON} names {named}, which is no interpreter.")
        return named
    local = Path(".venv-vllm/bin/python")
    if local.exists():
        return str(local)
    if importlib.util.find_spec("vllm") is not None:
        return sys.executable
    raise UserError(
        f"vLLM is not installed; run `make env-vllm`, or let {VLLM_PYTHON} name an interpreter that has it."
    )


def _vllm_checkpoint(checkpoint: Path, folder: Path) -> Path:
    """The checkpoint, or one of equal function with heads that vLLM has a kernel for."""
    config = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
    if head_dim(config) >= NARROWEST:
        return checkpoint.resolve()
    wide = folder / "wide-heads"
    write_with_wide_heads(checkpoint, wide)
    return wide.resolve()


def _run_vllm(job: Job, parts: Sequence[Part]) -> None:
    if not parts:
        return
    python = vllm_python()
    rows = sorted({problem for part in parts for problem, _, _ in part.requests})
    place = {row: i for i, row in enumerate(rows)}
    sampling = {
        "temperature": job.decoding.temperature,
        "top_p": job.decoding.top_p,
        "max_tokens": job.decoding.max_new_tokens,
        "stop_token_ids": list(job.end_tokens),
    }
    if job.decoding.stop:
        sampling["stop"] = list(job.decoding.stop)
    spec = {
        "model": str(_vllm_checkpoint(job.checkpoint, parts[0].path.parent)),
        # responses are decoded here, so the engine needs the tokenizer for stop strings alone
        "engine": {**job.engine, "skip_tokenizer_init": not job.decoding.stop},
        "sampling": sampling,
        "prompts": [list(job.prompts[row]) for row in rows],
        "parts": [
            {
                "path": str(part.path.resolve()),
                "requests": [
                    {"problem": problem, "sample": sample, "seed": seed, "prompt": place[problem]}
                    for problem, sample, seed in part.requests
                ],
            }
            for part in parts
        ],
    }
    folder = parts[0].path.parent
    folder.mkdir(parents=True, exist_ok=True)
    spec_path, log = folder / "vllm.json", folder / "vllm.log"
    spec_path.write_text(json.dumps(spec), encoding="utf-8")
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    for key, value in (("VLLM_CPU_KVCACHE_SPACE", "1"), ("VLLM_CPU_OMP_THREADS_BIND", "nobind")):
        environment.setdefault(key, value)  # read by the CPU build alone
    with open(log, "ab") as output:
        process = subprocess.Popen(
            [python, "-P", str(VLLM_WORKER), str(spec_path.resolve())],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,  # its engine processes end with it
        )
        try:
            code = process.wait()
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    if code != 0:
        # a validation error's substance is the indented line below it
        found = re.findall(r"\b\w*(?:Error|Exception): .*(?:\n  (?!File)\w.*)?", log.read_text(errors="replace"))
        reason = " ".join(found[-1].split())[:240].rstrip(".") if found else "it names no error"
        raise UserError(f"vLLM ended with code {code} on {job.checkpoint} ({reason}); the whole text is in {log}.")
