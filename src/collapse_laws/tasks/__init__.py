"""What policies are trained and judged on: prompts with rewards that a program can verify."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from collapse_laws.errors import UserError
from collapse_laws.tasks.arithmetic import ChainArithmetic
from collapse_laws.tasks.boxed import BoxedAddition


class Batch(Protocol):
    """Problems of a task: right-padded prompts and their lengths, and whatever the task judges responses with."""

    prompt: Tensor  # [n, P]
    prompt_length: Tensor  # [n]


class Task(Protocol):
    """A source of problems with a verifiable 0/1 reward."""

    max_response_tokens: int

    def problems(self, n: int, generator: torch.Generator) -> Batch: ...

    def reward(self, problems: Batch, tokens: Tensor, samples: int) -> Tensor: ...


def make_task(settings: Mapping[str, Any], tokenizer: PreTrainedTokenizerBase) -> Task:
    """The task that a study's settings name; UserError for an unknown name or a setting it does not allow."""
    options = dict(settings)
    name = options.pop("name", None)
    try:
        if name == "chain_arithmetic":
            return ChainArithmetic(**options)
        if name == "boxed_addition":
            return BoxedAddition(tokenizer, **options)
    except (TypeError, ValueError) as error:
        raise UserError(f"params.yaml, settings.task: {error}.") from None
    raise UserError(
        f"params.yaml, settings.task.name: {name!r} is not a task; allowed: chain_arithmetic, boxed_addition."
    )
