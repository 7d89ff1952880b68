"""Sampling responses from a snapshot: one uniform number a token, a static key-value cache, finished rows dropped.

A token is the inverse of the cumulative distribution at its uniform number, so what is sampled
depends on the weights, the prompt and the numbers alone, and not on how rows are batched.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import PreTrainedModel

from collapse_laws.attention import DecodeCache, hidden_states

ROWS_AT_ONCE = 2048  # rows of one sampling loop; larger ones leave the cache of a CPU core


@dataclass(frozen=True, slots=True)
class Rollouts:
    """Sampled responses, right-padded; row r belongs to prompt r // samples."""

    tokens: Tensor  # [n*samples, T]
    lengths: Tensor  # [n*samples] tokens up to and with the end token
    logprobs: Tensor  # [n*samples, T] of the sampled tokens, nats; 0 after the end
    entropies: Tensor  # [n*samples, T] of the distributions sampled from, nats; 0 after the end
    finished: Tensor  # [n*samples] bool: the end token came within T

    def rows(self, start: int, end: int) -> Rollouts:
        """The responses start ... end-1."""
        return Rollouts(*(getattr(self, name)[start:end] for name in self.__slots__))


@torch.no_grad()
def sample(
    model: PreTrainedModel,
    prompt: Tensor,
    prompt_length: Tensor,
    *,
    samples: int,
    max_new_tokens: int,
    eos_token_id: int,
    pad_token_id: int,
    temperature: float = 1.0,
    uniform: Tensor | None = None,
) -> Rollouts:
    """Sample `samples` responses to each prompt, or decode greedily at temperature 0.

    prompt: [n, P] right-padded, prompt_length: [n]. uniform: [n*samples, max_new_tokens] numbers in
    [0, 1), needed unless the temperature is 0.
    """
    if temperature > 0 and uniform is None:
        raise ValueError("sampling at a temperature above 0 needs uniform numbers")
    rows = len(prompt) * samples
    out = Rollouts(
        tokens=torch.full((rows, max_new_tokens), pad_token_id),
        lengths=torch.full((rows,), max_new_tokens),
        logprobs=torch.zeros(rows, max_new_tokens),
        entropies=torch.zeros(rows, max_new_tokens),
        finished=torch.zeros(rows, dtype=torch.bool),
    )
    for chosen in _chunks(prompt_length, max(1, ROWS_AT_ONCE // samples)):
        _sample_chunk(
            model,
            prompt[chosen],
            prompt_length[chosen],
            chosen,
            samples,
            eos_token_id,
            temperature,
            uniform,
            out,
        )
    return out


def _chunks(length: Tensor, size: int) -> list[Tensor]:
    """Indices of prompts that are sampled together: of one length each where enough prompts share it."""
    order = torch.argsort(length, stable=True)
    chunks, start = [], 0
    for i in range(1, len(order) + 1):
        full = i - start == size
        changed = i < len(order) and length[order[i]] != length[order[i - 1]] and i - start >= size // 8
        if full or changed or i == len(order):
            chunks.append(order[start:i])
            start = i
    return [chunk for chunk in chunks if len(chunk)]


def _sample_chunk(
    model: PreTrainedModel,
    prompt: Tensor,
    prompt_length: Tensor,
    chosen: Tensor,
    samples: int,
    eos_token_id: int,
    temperature: float,
    uniform: Tensor | None,
    out: Rollouts,
) -> None:
    width, steps = int(prompt_length.max()), out.tokens.shape[1]
    prompt = prompt[:, :width]
    n = len(prompt)
    cache = DecodeCache(n * samples, width, steps)
    cache.group = samples
    if bool((prompt_length < width).any()):
        valid = (torch.arange(width) < prompt_length[:, None]).repeat_interleave(samples, 0)
        cache.bias = torch.zeros(n * samples, 1, 1, cache.width)
        cache.bias[:, 0, 0, :width].masked_fill_(~valid, float("-inf"))
    positions = torch.arange(width).expand(n, -1)
    hidden = hidden_states(model, prompt, positions, cache=cache)
    cache.filled, cache.group = width, 1
    head = model.get_output_embeddings()
    logits = head(hidden[torch.arange(n), prompt_length - 1]).repeat_interleave(samples, 0)

    row = (chosen[:, None] * samples + torch.arange(samples)).flatten()  # where each sampled row goes in `out`
    position = prompt_length.repeat_interleave(samples)
    active = torch.ones(n * samples, dtype=torch.bool)
    for step in range(steps):
        distribution = F.log_softmax(logits.float() / (temperature or 1.0), dim=-1)
        probability = distribution.exp()
        if temperature > 0:
            cumulative = probability.double().cumsum(-1)
            threshold = uniform[row, step].double()[:, None] * cumulative[:, -1:]
            token = (cumulative <= threshold).sum(-1).clamp(max=probability.shape[1] - 1)
        else:
            token = distribution.argmax(-1)
        written = row if bool(active.all()) else row[active]
        here = token if written is row else token[active]
        chosen_logprob = distribution.gather(1, token[:, None])[:, 0]
        entropy = -(probability * distribution).nan_to_num(0.0).sum(-1)
        out.tokens[written, step] = here
        out.logprobs[written, step] = chosen_logprob if written is row else chosen_logprob[active]
        out.entropies[written, step] = entropy if written is row else entropy[active]
        ended = active & (token == eos_token_id)
        out.lengths[row[ended]] = step + 1
        out.finished[row[ended]] = True
        active &= ~ended
        left = int(active.sum())
        if left == 0 or step == steps - 1:
            return
        if left < len(active) // 2:  # most rows have ended: stop computing them
            kept = active.nonzero()[:, 0]
            cache.keep(kept)
            row, position, token, active = row[kept], position[kept], token[kept], active[kept]
        hidden = hidden_states(model, token[:, None], position[:, None], cache=cache)
        cache.filled += 1
        position = position + 1
        logits = head(hidden[:, 0])
