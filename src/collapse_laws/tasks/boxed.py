"""Boxed addition: one-digit sums, for a real language model of a few hundred megabytes [declared].

The prompt shows four worked sums and asks a fifth; the reward is verl's `math_reward` on the decoded response, the
same checker as for MATH. SmolLM2-135M-Instruct starts at about 0.2, with the sums as questions in words at 0.06.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from collapse_laws.tasks.verl_checker import verl_math_reward

SHOTS = ((3, 4), (2, 6), (9, 5), (1, 1))


def _shot(a: int, b: int, answer: str) -> str:
    return f"{a} + {b} ={answer}"


@dataclass(frozen=True, slots=True)
class Sums:
    """Prompts of sums and their answers."""

    prompt: Tensor  # [n, P] right-padded
    prompt_length: Tensor  # [n]
    answer: list[str]


class BoxedAddition:
    """Sums of two numbers below `limit`."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, limit: int = 10, max_response_tokens: int = 8) -> None:
        if not 2 <= limit <= 100 or max_response_tokens < 1:
            raise ValueError(f"no sums below {limit} in {max_response_tokens} tokens")
        self._tokenizer, self._limit = tokenizer, limit
        self.max_response_tokens = max_response_tokens
        self._shots = "".join(_shot(a, b, f" \\boxed{{{a + b}}}\n") for a, b in SHOTS)

    def problems(self, n: int, generator: torch.Generator) -> Sums:
        """Draw n sums."""
        terms = torch.randint(0, self._limit, (n, 2), generator=generator).tolist()
        texts = [self._shots + _shot(a, b, "") for a, b in terms]
        ids = [torch.tensor(row) for row in self._tokenizer(texts).input_ids]
        prompt = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True, padding_value=self._tokenizer.pad_token_id)
        lengths = torch.tensor([len(row) for row in ids])
        return Sums(prompt, lengths, [str(a + b) for a, b in terms])

    def reward(self, problems: Sums, tokens: Tensor, samples: int) -> Tensor:
        """1.0 for each response whose last box holds the sum; tokens [n*samples, T]."""
        checker = verl_math_reward()
        texts = self._tokenizer.batch_decode(tokens.cpu(), skip_special_tokens=True)
        golds = (problems.answer[row // samples] for row in range(len(texts)))
        scores = [checker.compute_score(*pair) for pair in zip(texts, golds, strict=True)]
        return torch.tensor(scores, dtype=torch.float32)
