"""What an evaluation asks: the checkpoint, the benchmark's problems and prompts, and every setting
that decides a generation.

All of it comes from the `evaluation` section of a study in params.yaml; lengths, temperatures and
prompts there are [declared]. Proxy models are scored on a frozen held-out set of their own task.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from collapse_laws.errors import UserError
from collapse_laws.evaluation_table import SCHEMA_VERSION
from collapse_laws.generation import Decoding
from collapse_laws.study import Cell, Study
from collapse_laws.tasks import benchmarks
from collapse_laws.tasks.benchmarks import Problem
from collapse_laws.tasks.verify_pool import CPU_SECONDS

# what an evaluation says of the cell that its checkpoint is from
LABELS = ("study", "scale", "cell", "arm", "model", "sync_interval", "lr", "seed", "settings_digest")
HELD_OUT = "heldout"  # of the study's own task
HELD_OUT_STREAM = 2  # of the generator "validation"; 0 is what the learner validates on


@dataclass(frozen=True, slots=True)
class Subject:
    """What is evaluated: a checkpoint and what it is labelled with (a cell's names, or nothing)."""

    checkpoint: Path
    snapshot: str  # learner updates, or "final"
    labels: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked: a benchmark of a study's evaluation section, with everything that decides its generations."""

    benchmark: str
    backend: str
    seed: int
    problems: int | None  # the first so many; None for all
    decoding: Decoding
    prompt: dict[str, Any]
    engine: dict[str, Any]
    verify: bool
    verify_cpu_seconds: float
    task: dict[str, Any] | None  # of the held-out set


def benchmarks_of(study: Study, model: str) -> list[str]:
    """Names of the benchmarks that the study's section asks for this model."""
    section = study.evaluation.get("benchmarks", {})
    for name, body in section.items():
        unknown = sorted(set(body.get("models", ())) - set(study.models))
        if unknown:
            raise UserError(
                f"params.yaml, studies.{study.name}.evaluation.benchmarks.{name}.models: {unknown[0]!r} is not "
                f"defined; allowed: {', '.join(study.models)}."
            )
    return [name for name, body in section.items() if model in body.get("models", study.models)]


def request_of(study: Study, benchmark: str, settings: Mapping[str, Any]) -> Request:
    """The request that the study's evaluation section makes for a benchmark; UserError where it has none.

    `settings`: of a cell, for its task and its model's variables of the chat template.
    """
    section = study.evaluation
    if benchmark not in section.get("benchmarks", {}):
        known = ", ".join(section.get("benchmarks", {})) or "none"
        raise UserError(f"params.yaml, studies.{study.name}.evaluation: no benchmark {benchmark!r}; it has: {known}.")
    body = section["benchmarks"][benchmark]
    template = dict(settings.get("model", {}).get("chat_template", {}))
    decoding = Decoding(
        samples=body["samples"],
        temperature=float(body["temperature"]),
        top_p=float(body["top_p"]),
        max_new_tokens=body["max_new_tokens"],
        stop=tuple(body.get("stop", ())),
    )
    return Request(
        benchmark=benchmark,
        backend=section["backend"],
        seed=section["seed"],
        problems=body.get("problems"),
        decoding=decoding,
        prompt={} if benchmark == HELD_OUT else {**section.get("prompt", {}), "chat_template": template},
        engine=dict(section.get("engine", {})),
        verify=benchmark != HELD_OUT and section.get("verify", True),
        verify_cpu_seconds=float(section.get("verify_cpu_seconds", CPU_SECONDS)),
        task=dict(settings.get("task", {})) if benchmark == HELD_OUT else None,
    )


def stored_fields(request: Request) -> dict[str, Any]:
    """What the JSON of an evaluation says of its request, as JSON gives it back."""
    fields = {
        "benchmark": request.benchmark,
        "decoding": asdict(request.decoding),
        "prompt": request.prompt,
        "generation_seed": request.seed,
    }
    return json.loads(json.dumps(fields))


def is_current(path: Path, cell: Cell, request: Request) -> bool:
    """Whether `path` holds an evaluation of this cell that answers this request; the checkpoint is not looked at."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    asked = {"settings_digest": cell.digest, **stored_fields(request)}
    if not isinstance(found, dict) or any(found.get(name) != value for name, value in asked.items()):
        return False
    return request.problems is None or found.get("problems") in (None, request.problems)


def subject_of(study: Study, cell: Cell, snapshot: str, checkpoints: Path, models: Path) -> Subject:
    """The checkpoint of a cell after `snapshot` updates, or its `final` one; 0 is the study's starting checkpoint."""
    path = checkpoints / snapshot
    if snapshot == "0" and not path.exists():
        path = models
    if not (path / "config.json").exists():
        there = [p.parent.name for p in checkpoints.glob("*/config.json")]
        names = ", ".join(sorted(there, key=lambda n: (not n.isdigit(), n.zfill(9)))) or "none"
        raise UserError(f"{path} is no checkpoint in Hugging Face format; {checkpoints} has: {names}.")
    return Subject(path, snapshot, labels(cell))


def labels(cell: Cell) -> dict[str, Any]:
    """What an evaluation says of the cell that its checkpoint is from."""
    given = {"cell": cell.name, "settings_digest": cell.digest}
    return {name: given[name] if name in given else getattr(cell, name) for name in LABELS}


def absence(cell: Cell, request: Request) -> dict[str, Any]:
    """The JSON of an evaluation of a run that saved no checkpoint: no scores, and why."""
    reason = "The run was stopped before its first checkpoint."
    about = {"schema_version": SCHEMA_VERSION, "snapshot": "final", "scores": {}, "score": None, "reason": reason}
    return {**labels(cell), **stored_fields(request), **about}


def snapshots_of(checkpoints: Path) -> list[str]:
    """Names of the checkpoints in a folder, by update, `final` last."""
    names = [path.parent.name for path in checkpoints.glob("*/config.json")]
    return sorted(names, key=lambda name: (not name.isdigit(), name.zfill(12)))


def load_problems(request: Request, data: Path, tokenizer: Any) -> list[Problem]:
    """The problems asked for, the first so many where a number is given."""
    if request.benchmark == HELD_OUT:
        return held_out_problems(request, tokenizer)
    problems = benchmarks.load(request.benchmark, data)
    return problems[: request.problems]


def held_out_problems(request: Request, tokenizer: Any) -> list[Problem]:
    """The frozen test set of the study's task, apart from what the learner validates on.

    Chain arithmetic compares the whole response token by token; boxed addition is scored as
    mathematics is.
    """
    from collapse_laws.seeding import generator
    from collapse_laws.tasks import make_task
    from collapse_laws.tasks.arithmetic import EOS_ID, PAD_ID, ChainArithmetic

    task = make_task(request.task or {}, tokenizer)
    drawn = task.problems(request.problems or 1000, generator("validation", request.seed, HELD_OUT_STREAM))
    problems = []
    for i, (padded, length) in enumerate(zip(drawn.prompt, drawn.prompt_length, strict=True)):
        prompt = tuple(padded[: int(length)].tolist())
        answer, level = None, None
        if isinstance(task, ChainArithmetic):
            answer = tuple(t for t in drawn.answer[i].tolist() if t not in (PAD_ID, EOS_ID))
            gold, level = tokenizer.decode(answer), f"{int(drawn.terms[i])} terms"
        else:
            gold = drawn.answer[i]
        problems.append(
            Problem(
                index=i,
                text=tokenizer.decode(prompt),
                golds=(gold,),
                level=level,
                answer_tokens=answer,
                prompt_tokens=prompt,
            )
        )
    return problems


def prompt_tokens(problem: Problem, tokenizer: Any, prompt: Mapping[str, Any]) -> tuple[int, ...]:
    """Token ids of a prompt: the problem's own, or its text, through the chat template or plain."""
    if problem.prompt_tokens is not None:
        return problem.prompt_tokens
    text = prompt.get("prefix", "") + problem.text + prompt.get("suffix", "")
    if prompt["style"] == "plain":
        return tuple(tokenizer(text)["input_ids"])
    if not tokenizer.chat_template:
        raise UserError("the checkpoint's tokenizer has no chat template; set evaluation.prompt.style: plain.")
    messages = [{"role": "user", "content": text}]
    if prompt.get("system"):
        messages.insert(0, {"role": "system", "content": prompt["system"]})
    rendered = tokenizer.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True, **prompt.get("chat_template", {})
    )
    return tuple(tokenizer(rendered, add_special_tokens=False)["input_ids"])


def checkpoint_digest(checkpoint: Path) -> str:
    """16 hex digits over the files' names, sizes and first and last MiB: a replaced checkpoint is
    noticed in no time.
    """
    digest = hashlib.sha256()
    for path in sorted(p for p in checkpoint.iterdir() if p.is_file()):
        size = path.stat().st_size
        digest.update(f"{path.name} {size}\n".encode())
        with open(path, "rb") as file:
            digest.update(file.read(1 << 20))
            if size > 2 << 20:
                file.seek(-(1 << 20), 2)
                digest.update(file.read())
    return digest.hexdigest()[:16]


def end_tokens(checkpoint: Path, tokenizer: Any) -> tuple[int, ...]:
    """The tokenizer's end token first, then those of generation_config.json (Llama's chat models end with another)."""
    found = [tokenizer.eos_token_id]
    path = checkpoint / "generation_config.json"
    if path.exists():
        named = json.loads(path.read_text(encoding="utf-8")).get("eos_token_id")
        found += named if isinstance(named, list) else [named]
    ends = tuple(dict.fromkeys(token for token in found if token is not None))
    if not ends:
        raise UserError(f"{checkpoint} names no end token, neither in its tokenizer nor in generation_config.json.")
    return ends


def title_of(request: Request) -> str:
    return "held-out set" if request.benchmark == HELD_OUT else benchmarks.benchmark(request.benchmark).title
