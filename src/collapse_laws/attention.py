"""Attention without padding or repeated prompts, through the attention interface of transformers.

Two uses of any Hugging Face causal language model are made fast here without touching its code:
* learning: the tokens of a whole batch lie one after the other in a single packed row, each prompt
  once for all its samples, so that no layer computes a padding token or a prompt twice;
* sampling (`rollout.py`): one new token a row against a static key-value cache.
Models must take positions explicitly and hand keyword arguments on to their attention, as Llama and
Qwen do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel

ATTENTION = "shared_prompt"


@dataclass(frozen=True, slots=True)
class PackedBatch:
    """Prompts and responses of a batch in one row: all prompt tokens, then all response tokens but each one's last.

    `n` prompts, `G` samples each; `P` and `T` are the longest prompt and response.
    """

    token: Tensor  # [N] packed input tokens
    position: Tensor  # [N]
    prompt_slot: Tensor  # [n, P] packed index of each prompt token; padding points at 0
    prompt_valid: Tensor  # [n, P] bool
    response_slot: Tensor  # [n*G, T-1] packed index of each response input; padding points at 0
    response_valid: Tensor  # [n*G, T-1] bool
    bias: Tensor  # [n*G, 1, T-1, P+T-1] additive mask of a response over its prompt and itself
    predictor: Tensor  # [tokens] packed index of the hidden state that predicts each response token
    target: Tensor  # [tokens] the response tokens
    row: Tensor  # [tokens] the response (0..n*G-1) of each token


def pack(prompt: Tensor, prompt_length: Tensor, response: Tensor, length: Tensor, group: int) -> PackedBatch:
    """Pack right-padded prompts [n, P] with lengths [n] and responses [n*group, T] with lengths
    [n*group] (at least 1).
    """
    prompt = prompt[:, : int(prompt_length.max())]
    response = response[:, : int(length.max())]
    prompt_valid = torch.arange(prompt.shape[1]) < prompt_length[:, None]
    target_valid = torch.arange(response.shape[1]) < length[:, None]
    response_valid = target_valid[:, 1:]  # the input at j is there when a token j+1 is to be predicted
    n_prompt_tokens = int(prompt_length.sum())

    prompt_slot = torch.zeros_like(prompt)
    prompt_slot[prompt_valid] = torch.arange(n_prompt_tokens)
    response_slot = torch.zeros_like(response[:, 1:])
    response_slot[response_valid] = torch.arange(int(response_valid.sum())) + n_prompt_tokens
    last_prompt_slot = (prompt_length.cumsum(0) - 1).repeat_interleave(group)
    predictor = torch.cat([last_prompt_slot[:, None], response_slot], dim=1)[target_valid]

    start = prompt_length.repeat_interleave(group)[:, None]
    width = response_slot.shape[1]
    position = torch.cat(
        [
            torch.arange(prompt.shape[1]).expand_as(prompt)[prompt_valid],
            (start + torch.arange(width))[response_valid],
        ]
    )
    # a response token sees its prompt and the response up to itself
    own = torch.ones(width, width, dtype=torch.bool).tril().expand(len(response), -1, -1)
    over_prompt = prompt_valid.repeat_interleave(group, 0)[:, None, :].expand(-1, width, -1)
    allowed = torch.cat([over_prompt, own], dim=2)[:, None]
    return PackedBatch(
        token=torch.cat([prompt[prompt_valid], response[:, :-1][response_valid]]),
        position=position,
        prompt_slot=prompt_slot,
        prompt_valid=prompt_valid,
        response_slot=response_slot,
        response_valid=response_valid,
        bias=torch.zeros(allowed.shape).masked_fill_(~allowed, float("-inf")),
        predictor=predictor,
        target=response[target_valid],
        row=torch.arange(len(response))[:, None].expand_as(target_valid)[target_valid],
    )


def _attend(query: Tensor, key: Tensor, value: Tensor, scaling: float, **mask: Any) -> Tensor:
    grouped = query.shape[1] != key.shape[1]
    return F.scaled_dot_product_attention(query, key, value, scale=scaling, enable_gqa=grouped, **mask)


def _packed_attention(query: Tensor, key: Tensor, value: Tensor, scaling: float, packed: PackedBatch) -> Tensor:
    """Attention of a packed row [1, heads, N, dim] -> [1, N, heads, dim]."""
    query, key, value = (x[0].transpose(0, 1) for x in (query, key, value))  # [N, heads, dim]
    out = torch.empty_like(query)

    def at(x: Tensor, slot: Tensor) -> Tensor:  # -> [rows, heads, width, dim]
        return x.index_select(0, slot.flatten()).view(*slot.shape, *x.shape[1:]).transpose(1, 2)

    prompt_key, prompt_value = at(key, packed.prompt_slot), at(value, packed.prompt_slot)
    over_prompt = _attend(at(query, packed.prompt_slot), prompt_key, prompt_value, scaling, is_causal=True)
    pieces = [over_prompt.transpose(1, 2)[packed.prompt_valid]]
    if packed.response_slot.shape[1]:
        group = len(packed.response_slot) // len(packed.prompt_slot)
        own_key, own_value = at(key, packed.response_slot), at(value, packed.response_slot)
        over_both = _attend(
            at(query, packed.response_slot),
            torch.cat([prompt_key.repeat_interleave(group, 0), own_key], dim=2),
            torch.cat([prompt_value.repeat_interleave(group, 0), own_value], dim=2),
            scaling,
            attn_mask=packed.bias.to(query.dtype),
        )
        pieces.append(over_both.transpose(1, 2)[packed.response_valid])
    out = torch.cat(pieces)
    return out[None]


class DecodeCache:
    """Static key-value cache of a sampling loop: a prompt's keys are written once, then one column a step."""

    def __init__(self, rows: int, prompt_width: int, steps: int) -> None:
        self.rows, self.prompt_width, self.width = rows, prompt_width, prompt_width + steps
        self.group = 1  # rows a prompt, while the prompts are read
        self.filled = 0  # columns in use
        self.bias: Tensor | None = None  # [rows, 1, 1, width]; hides padded prompt columns
        self._layers: dict[int, tuple[Tensor, Tensor]] = {}

    def update(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Write new columns [rows or prompts, heads, columns, dim]; return the filled part of the cache."""
        if layer not in self._layers:
            shape = (self.rows, key.shape[1], self.width, key.shape[3])
            self._layers[layer] = (key.new_empty(shape), value.new_empty(shape))
        end = self.filled + key.shape[2]
        for cache, new in zip(self._layers[layer], (key, value), strict=True):
            cache[:, :, self.filled : end] = new.repeat_interleave(self.group, 0) if self.group > 1 else new
        keys, values = self._layers[layer]
        return keys[:, :, :end], values[:, :, :end]

    def keep(self, rows: Tensor) -> None:
        """Drop all rows but these."""
        self._layers = {layer: (k[rows], v[rows]) for layer, (k, v) in self._layers.items()}
        self.rows = len(rows)
        if self.bias is not None:
            self.bias = self.bias[rows]


def _decode_attention(
    query: Tensor, key: Tensor, value: Tensor, scaling: float, layer: int, cache: DecodeCache
) -> Tensor:
    """Attention of new tokens [rows, heads, columns, dim] over the cache -> [rows, columns, heads, dim]."""
    reading_prompts = cache.filled == 0
    keys, values = cache.update(layer, key, value)
    if reading_prompts:
        return _attend(query, key, value, scaling, is_causal=True).transpose(1, 2)
    bias = None if cache.bias is None else cache.bias[..., : keys.shape[2]]
    return _attend(query, keys, values, scaling, attn_mask=bias).transpose(1, 2)


def _attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    packed: PackedBatch | None = None,
    cache: DecodeCache | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    if packed is not None:
        return _packed_attention(query, key, value, scaling, packed), None
    if cache is not None:
        return _decode_attention(query, key, value, scaling, module.layer_idx, cache), None
    out = _attend(query, key, value, scaling, is_causal=query.shape[2] > 1)
    return out.transpose(1, 2), None


AttentionInterface.register(ATTENTION, _attention)
AttentionMaskInterface.register(ATTENTION, lambda *_, **__: None)
# transformers builds no mask when it is handed one of four dimensions; this one is never read
_NO_MASK = torch.zeros(1, 1, 1, 1)


def hidden_states(model: PreTrainedModel, token: Tensor, position: Tensor, **kwargs: Any) -> Tensor:
    """Last hidden states [rows, columns, hidden] of tokens [rows, columns] at the given positions."""
    out = model.base_model(input_ids=token, position_ids=position, attention_mask=_NO_MASK, use_cache=False, **kwargs)
    return out.last_hidden_state


def token_logprobs(model: PreTrainedModel, packed: PackedBatch, temperature: float = 1.0) -> tuple[Tensor, Tensor]:
    """Log-probability of every response token, and the whole log-distribution there.

    Returns [tokens] and [tokens, vocabulary], nats, in the order of `packed.target`.
    """
    hidden = hidden_states(model, packed.token[None], packed.position[None], packed=packed)[0]
    logits = model.get_output_embeddings()(hidden.index_select(0, packed.predictor)).float()
    distribution = F.log_softmax(logits if temperature == 1.0 else logits / temperature, dim=-1)
    return distribution.gather(1, packed.target[:, None])[:, 0], distribution
