"""Policies: a Hugging Face causal language model, its parameters in one flat vector, its checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging as transformers_logging

from collapse_laws.attention import ATTENTION
from collapse_laws.errors import UserError
from collapse_laws.seeding import generator

transformers_logging.disable_progress_bar()  # its bars for one small file hide the run's own


class FlatParameters:
    """A model's parameters and gradients as two flat vectors that the model itself computes with."""

    def __init__(self, model: PreTrainedModel) -> None:
        parameters = list(model.parameters())
        total = sum(p.numel() for p in parameters)
        first = parameters[0]
        self.value = torch.nn.Parameter(torch.empty(total, dtype=first.dtype, device=first.device))
        self.value.grad = torch.zeros_like(self.value)
        start = 0
        for p in parameters:
            end = start + p.numel()
            self.value.data[start:end] = p.data.flatten()
            p.data = self.value.data[start:end].view_as(p)
            p.grad = self.value.grad[start:end].view_as(p)
            start = end

    @property
    def grad(self) -> Tensor:
        """[d] the gradient, in place."""
        return self.value.grad

    def now(self) -> Tensor:
        """[d] a copy of the parameters."""
        return self.value.detach().clone()

    def set(self, value: Tensor) -> None:
        """Overwrite the parameters with [d] numbers."""
        self.value.data.copy_(value)


def tiny_llama(settings: dict[str, Any], tokenizer: PreTrainedTokenizerBase, seed: int) -> LlamaForCausalLM:
    """A freshly initialised Llama of a few thousand parameters; normal weights of standard deviation fan_in^-1/2."""
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=settings["hidden_size"],
        intermediate_size=settings["intermediate_size"],
        num_hidden_layers=settings["layers"],
        num_attention_heads=settings["heads"],
        num_key_value_heads=settings["heads"],
        max_position_embeddings=64,
        rope_parameters={"rope_type": "default", "rope_theta": settings["rope_theta"]},
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = LlamaForCausalLM(config)
    noise = generator("init", seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.dim() == 2:
                std = p.shape[1] ** -0.5
                if name.endswith(("o_proj.weight", "down_proj.weight")):
                    std /= (2 * config.num_hidden_layers) ** 0.5  # keeps the residual stream's scale
                p.copy_(torch.randn(p.shape, generator=noise) * std)
    return prepared(model)


def prepared(model: PreTrainedModel) -> PreTrainedModel:
    """The model with this module's attention, in evaluation mode (no dropout)."""
    model.set_attn_implementation(ATTENTION)
    return model.eval()


def load_policy(
    path: Path | str, dtype: str = "float32", device: str = "cpu"
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A checkpoint in Hugging Face format, ready to sample and to learn; UserError where it cannot be read."""
    path = Path(path)
    if not (path / "config.json").exists():
        raise UserError(f"{path} is no checkpoint in Hugging Face format: config.json is missing.")
    try:
        model = AutoModelForCausalLM.from_pretrained(path, dtype=getattr(torch, dtype))
        tokenizer = AutoTokenizer.from_pretrained(path)
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        raise UserError(f"the checkpoint {path} cannot be read: {' '.join(str(error).split())[:300]}.") from None
    return prepared(model.to(device)), tokenizer


def save_policy(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, path: Path | str) -> None:
    """Write a checkpoint that transformers, vLLM and verl load."""
    model.save_pretrained(path, safe_serialization=True)
    tokenizer.save_pretrained(path)
