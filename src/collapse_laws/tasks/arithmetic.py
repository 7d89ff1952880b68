"""Chain arithmetic: a verifiable task that a Llama of 25 thousand parameters can learn on a CPU [declared].

A prompt such as `7+3-8=` is evaluated from left to right modulo 10. The response names each further
operand with the running result after it, then `#`, the answer and the end token: `30` `82`... for
7+3-8: `3` `0` `8` `2` `#` `2` `<eos>`. The reward is 1 exactly when the whole response is that one,
so that guessing the last digit does not pay.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from transformers import PreTrainedTokenizerFast

SYMBOLS = "0123456789+-*=#"
PAD, EOS = "<pad>", "<eos>"
VOCABULARY = {symbol: i for i, symbol in enumerate((*SYMBOLS, PAD, EOS))}
PAD_ID, EOS_ID, EQUALS_ID, HASH_ID = (VOCABULARY[s] for s in (PAD, EOS, "=", "#"))


def character_tokenizer() -> PreTrainedTokenizerFast:
    """One token a character, and an end and a padding token; its length is the vocabulary of the models."""
    tokenizer = Tokenizer(models.WordLevel(VOCABULARY, unk_token=PAD))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=EOS, pad_token=PAD, clean_up_tokenization_spaces=False
    )


@dataclass(frozen=True, slots=True)
class Problems:
    """Prompts with what it takes to judge and to demonstrate them; `n` problems, at most `K` terms each."""

    prompt: Tensor  # [n, 2*K] tokens, right-padded
    prompt_length: Tensor  # [n]
    terms: Tensor  # [n] number of terms
    digits: Tensor  # [n, K]
    operators: Tensor  # [n, K] tokens; entry i stands between terms i and i+1
    answer: Tensor  # [n, T] the one rewarded response, right-padded


class ChainArithmetic:
    """The task for chains of `min_terms` to `max_terms` digits below `modulus`, joined by `operators`."""

    def __init__(self, min_terms: int = 3, max_terms: int = 6, operators: str = "+-*", modulus: int = 10) -> None:
        if not 2 <= min_terms <= max_terms or not 2 <= modulus <= 10 or not set(operators) <= set("+-*"):
            raise ValueError(f"no chains of {min_terms} to {max_terms} terms, {operators!r}, modulo {modulus}")
        self.min_terms, self.max_terms, self.modulus = min_terms, max_terms, modulus
        self._operators = torch.tensor([VOCABULARY[symbol] for symbol in operators])
        self.max_response_tokens = 2 * (max_terms - 1) + 3 + 4  # four more than the longest right answer

    def problems(self, n: int, generator: torch.Generator) -> Problems:
        """Draw n problems."""
        K = self.max_terms
        terms = torch.randint(self.min_terms, K + 1, (n,), generator=generator)
        digits = torch.randint(0, self.modulus, (n, K), generator=generator)
        operators = self._operators[torch.randint(0, len(self._operators), (n, K), generator=generator)]
        column = torch.arange(2 * K)
        interleaved = torch.stack([digits, operators], dim=2).flatten(1)
        prompt = torch.where(column < 2 * terms[:, None] - 1, interleaved, PAD_ID)
        prompt[torch.arange(n), 2 * terms - 1] = EQUALS_ID
        results = self._results(digits, operators)
        answer = self._response(terms, digits, results, results[torch.arange(n), terms - 1])
        return Problems(prompt, 2 * terms, terms, digits, operators, answer)

    def reward(self, problems: Problems, tokens: Tensor, samples: int) -> Tensor:
        """1.0 for each response equal to its problem's answer, else 0.0; tokens [n*samples, T] -> [n*samples]."""
        answer = problems.answer.repeat_interleave(samples, 0)[:, : tokens.shape[1]]
        return (tokens == answer).all(1).float()

    def demonstrations(
        self, n: int, generator: torch.Generator, wrong_result_rate: float, format_fault_rate: float
    ) -> tuple[Problems, Tensor, Tensor]:
        """Problems with faulty worked answers: responses [n, T] and their lengths [n].

        Each running result is random with probability `wrong_result_rate`, and the chain goes on
        from it. A share `format_fault_rate` lacks a step (four in ten of them), the `#` (three) or
        gives a random last digit (three).
        """
        problems = self.problems(n, generator)
        K, rows = self.max_terms, torch.arange(n)
        wrong = torch.rand(n, K, generator=generator) < wrong_result_rate
        random_result = torch.randint(0, self.modulus, (n, K), generator=generator)
        results = self._results(problems.digits, problems.operators, torch.where(wrong, random_result, -1))
        fault = torch.rand(n, generator=generator) / max(format_fault_rate, 1e-9)
        skipped = torch.randint(1, K, (n,), generator=generator)
        last = results[rows, problems.terms - 1]
        random_digit = torch.randint(0, self.modulus, (n,), generator=generator)
        last = torch.where((fault >= 0.7) & (fault < 1), random_digit, last)
        skip = torch.where(fault < 0.4, skipped, K)
        no_hash = (fault >= 0.4) & (fault < 0.7)
        response = self._response(problems.terms, problems.digits, results, last, skip, no_hash)
        return problems, response, (response != PAD_ID).sum(1)

    def _results(self, digits: Tensor, operators: Tensor, forced: Tensor | None = None) -> Tensor:
        """Running results [n, K]; `forced` [n, K] replaces a result where it is not negative."""
        results = [digits[:, 0]]
        for i in range(1, self.max_terms):
            before, digit, operator = results[-1], digits[:, i], operators[:, i - 1]
            result = torch.where(operator == VOCABULARY["-"], before - digit, before * digit)
            result = torch.where(operator == VOCABULARY["+"], before + digit, result) % self.modulus
            if forced is not None:
                result = torch.where(forced[:, i] >= 0, forced[:, i], result)
            results.append(result)
        return torch.stack(results, dim=1)

    def _response(
        self,
        terms: Tensor,
        digits: Tensor,
        results: Tensor,
        last: Tensor,
        skip: Tensor | None = None,
        no_hash: Tensor | None = None,
    ) -> Tensor:
        """The response tokens [n, T]: pairs for terms 1..terms-1 but `skip`, `#` unless `no_hash`, `last`, the end."""
        n, K = digits.shape
        slots = torch.full((n, 2 * (K - 1) + 3), PAD_ID)
        slots[:, 0 : 2 * (K - 1) : 2] = digits[:, 1:]
        slots[:, 1 : 2 * (K - 1) : 2] = results[:, 1:]
        term = torch.arange(1, K)
        present = term < terms[:, None]
        if skip is not None:
            present &= term != skip[:, None]
        keep = torch.ones_like(slots, dtype=torch.bool)
        keep[:, : 2 * (K - 1)] = present.repeat_interleave(2, dim=1)
        slots[:, -3], slots[:, -2], slots[:, -1] = HASH_ID, last, EOS_ID
        if no_hash is not None:
            keep[:, -3] = ~no_hash
        order = torch.argsort((~keep).int(), dim=1, stable=True)  # moves what is kept to the left
        response = torch.full((n, self.max_response_tokens), PAD_ID)
        response[:, : slots.shape[1]] = torch.where(keep, slots, PAD_ID).gather(1, order)
        return response
