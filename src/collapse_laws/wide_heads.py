"""The same Llama with wider attention heads, for engines that have no kernel for narrow ones.

vLLM's attention needs heads of at least 32 dimensions; the proxy models have 16. A head of d
dimensions is put into one of w = m*d so that every attention score and output stays what it was
[derived]: rotary pair i of d turns at theta^(-2i/d), which is the frequency of pair m*i of w, so
pair i moves there and the others stay zero; queries grow by sqrt(m), since scores are divided by
sqrt(w) instead of sqrt(d); values and the columns that read them are padded with zeros. Only
rounding differs.
"""

from __future__ import annotations

import math
import shutil
from pathlib import Path

from collapse_laws.errors import UserError

NARROWEST = 32  # dimensions of a head that vLLM has kernels for
_WEIGHTS = (".safetensors", ".bin")


def head_dim(config: dict[str, object]) -> int:
    """Dimensions of an attention head, from a config.json."""
    return int(
        config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]  # type: ignore[operator]
    )


def write_with_wide_heads(checkpoint: Path, out: Path, wide: int = NARROWEST) -> None:
    """Write the checkpoint with heads of `wide` dimensions to `out`, other files copied.

    UserError where the model is not a Llama without biases, or `wide` is no multiple of its head's
    dimensions.
    """
    import torch
    from transformers import AutoModelForCausalLM, LlamaForCausalLM

    model = AutoModelForCausalLM.from_pretrained(checkpoint)
    narrow = model.config.head_dim
    rope = getattr(model.config, "rope_parameters", None) or {}
    plain = isinstance(model, LlamaForCausalLM) and not model.config.attention_bias
    if not plain or wide % narrow or rope.get("rope_type", "default") != "default":
        raise UserError(
            f"{checkpoint}: vLLM has no kernel for heads of {narrow} dimensions, and they can be widened to {wide} "
            "only for a Llama without biases and with plain rotary positions."
        )
    factor = wide // narrow
    # rotary pairs are (i, i + d/2); pair i of the narrow head is pair factor*i of the wide one
    pairs = torch.arange(narrow // 2) * factor
    rotary = torch.cat([pairs, pairs + wide // 2])
    value = torch.arange(narrow)

    def spread(weight: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        """Rows [heads*narrow, hidden] -> [heads*wide, hidden] with zeros between."""
        heads = weight.shape[0] // narrow
        out_weight = weight.new_zeros(heads, wide, weight.shape[1])
        out_weight[:, place] = weight.view(heads, narrow, -1)
        return out_weight.view(heads * wide, -1)

    state = model.state_dict()
    for name, weight in list(state.items()):
        if name.endswith("q_proj.weight"):
            state[name] = spread(weight, rotary) * math.sqrt(factor)
        elif name.endswith("k_proj.weight"):
            state[name] = spread(weight, rotary)
        elif name.endswith("v_proj.weight"):
            state[name] = spread(weight, value)
        elif name.endswith("o_proj.weight"):
            state[name] = spread(weight.T.contiguous(), value).T.contiguous()
    config = model.config
    config.head_dim = wide
    widened = LlamaForCausalLM(config)
    widened.load_state_dict(state)
    out.mkdir(parents=True, exist_ok=True)
    widened.to(model.dtype).save_pretrained(out, safe_serialization=True)
    for path in checkpoint.iterdir():
        if path.is_file() and path.suffix not in _WEIGHTS and not (out / path.name).exists():
            shutil.copy(path, out / path.name)
