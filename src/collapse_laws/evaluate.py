"""Score a checkpoint on a benchmark: generations, verdicts, and one JSON file with a Parquet of generations beside it.

Protocol [stated]: MATH test with the checker of training for the Llama models; avg@1 on MATH-500
and Minerva Math and avg@8 on AMC 2023 and 2024 for Qwen3-8B; decoding and samples fixed across
cells and steps.

An evaluation works in parts (`generation.py`); a part that was generated or scored before a kill is
taken as it is, provided that the request (checkpoint, content, decoding, prompts) is the same.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from collapse_laws import generation
from collapse_laws.errors import UserError
from collapse_laws.evaluation_request import (
    LABELS,
    Request,
    Subject,
    checkpoint_digest,
    end_tokens,
    load_problems,
    prompt_tokens,
    stored_fields,
    title_of,
)
from collapse_laws.evaluation_table import (
    EXACT,
    MATH_REWARD,
    MATH_VERIFY,
    SCHEMA_VERSION,
    read_result,
    summarise,
)
from collapse_laws.runrecord import settings_digest, write_json
from collapse_laws.tasks import checkers
from collapse_laws.tasks.benchmarks import Problem
from collapse_laws.tasks.verify_pool import VerifyPool


def evaluate(
    subject: Subject,
    request: Request,
    *,
    data: Path,
    out: Path,
    work: Path,
    requests_per_part: int = generation.REQUESTS_PER_PART,
) -> dict[str, Any]:
    """Evaluate and write `out` (JSON) and the Parquet of generations beside it; returns what the JSON holds.

    An `out` that answers the same request is returned as it is. `work` holds the parts until both
    files are written.
    """
    started = time.perf_counter()
    tokenizer = _tokenizer(subject.checkpoint)
    problems = load_problems(request, data, tokenizer)
    asked = {
        "schema_version": SCHEMA_VERSION,
        "checkpoint_digest": checkpoint_digest(subject.checkpoint),
        "content": settings_digest({"problems": [[p.text, *p.golds] for p in problems]}),
        "request": asdict(request),
    }
    digest = settings_digest(json.loads(json.dumps(asked)))
    known = read_result(out) if out.exists() and out.with_suffix(".parquet").exists() else None
    if known is not None and known.get("request_digest") == digest:
        if {name: known[name] for name in LABELS if name in known} == subject.labels:
            return known
    parts = work / digest  # a changed request never meets another's parts
    table, backend = _rows(subject, request, problems, tokenizer, parts, requests_per_part)
    result = {
        "schema_version": SCHEMA_VERSION,
        **subject.labels,
        "snapshot": subject.snapshot,
        **stored_fields(request),
        "title": title_of(request),
        "request_digest": digest,
        "checkpoint_digest": asked["checkpoint_digest"],
        "backend": backend,
        **summarise(table, problems, request.decoding.samples),
        "timings": {"seconds": round(time.perf_counter() - started, 3)},
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    parquet = out.with_suffix(".parquet")
    temporary = parquet.with_name(f".{parquet.name}.tmp")
    table.to_parquet(temporary, index=False)
    temporary.replace(parquet)
    write_json(out, result)
    shutil.rmtree(work)
    return read_result(out)


def _tokenizer(checkpoint: Path) -> Any:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(checkpoint)
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"the tokenizer of {checkpoint} cannot be read: {reason}.") from None


def _rows(
    subject: Subject,
    request: Request,
    problems: Sequence[Problem],
    tokenizer: Any,
    work: Path,
    requests_per_part: int,
) -> tuple[pd.DataFrame, str]:
    """One row a generation with its verdicts, and the backend's name and version."""
    request.decoding.check(request.backend)
    ends = end_tokens(subject.checkpoint, tokenizer)
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else ends[0]
    by_row = {problem.index: problem for problem in problems}
    job = generation.Job(
        checkpoint=subject.checkpoint,
        prompts={row: prompt_tokens(p, tokenizer, request.prompt) for row, p in by_row.items()},
        decoding=request.decoding,
        end_tokens=ends,
        pad_token=pad,
        engine=request.engine,
    )
    parts = generation.plan(
        work,
        request.benchmark,
        list(by_row),
        request.decoding.samples,
        request.seed,
        requests_per_part,
    )
    tables, backend = [], ""
    second = VerifyPool(cpu_seconds=request.verify_cpu_seconds) if request.verify else contextlib.nullcontext()
    with second as pool:
        for part in generation.generate(request.backend, job, parts):
            scored = part.path.with_suffix(".parquet")
            completions, backend = generation.read_part(part, ends)
            if not scored.exists():
                table = _score(completions, by_row, job, tokenizer, pool)
                temporary = scored.with_name(f".{scored.name}.tmp")
                table.to_parquet(temporary, index=False)
                temporary.replace(scored)
            tables.append(pd.read_parquet(scored))
    return pd.concat(tables, ignore_index=True), backend


def _score(
    completions: Sequence[generation.Completion],
    problems: Mapping[int, Problem],
    job: generation.Job,
    tokenizer: Any,
    pool: VerifyPool | None,
) -> pd.DataFrame:
    asked = [problems[c.problem] for c in completions]
    texts, finished = [], []
    for completion in completions:
        text = tokenizer.decode(list(completion.tokens), skip_special_tokens=True)
        cuts = [text.find(stop) for stop in job.decoding.stop if stop in text]
        texts.append(text[: min(cuts)] if cuts else text)
        finished.append(completion.finished or bool(cuts))
    table = pd.DataFrame(
        {
            "problem": [p.index for p in asked],
            "sample": [c.sample for c in completions],
            "gold": [p.golds[0] for p in asked],
            "text": texts,
            "response_tokens": [len(c.tokens) for c in completions],
            "finished": finished,
        }
    )
    if asked[0].answer_tokens is not None:
        table["extracted"] = texts
        table[EXACT] = [
            float(c.finished and c.tokens == p.answer_tokens) for c, p in zip(completions, asked, strict=True)
        ]
        return table
    verdicts = checkers.check(asked, texts, pool)
    table["extracted"] = [v.extracted for v in verdicts]
    table[MATH_REWARD] = [v.math_reward for v in verdicts]
    if pool is not None:
        table[MATH_VERIFY] = [v.math_verify for v in verdicts]
        table["math_verify_status"] = [v.math_verify_status for v in verdicts]
    return table
