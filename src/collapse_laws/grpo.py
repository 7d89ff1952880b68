"""GRPO's objective as pure functions on tensors: advantage, clipped and dual-clipped surrogate, k3 KL, token mean.

Section 2.1 of the paper [stated: clipped ratio, group-normalised advantage, KL penalty]; the forms
and constants below are verl 0.9.1's vanilla loss [default], with the lower and the upper clip as
separate settings. Where the ratio's denominator comes from, the behaviour snapshot or the learner
itself, is the caller's choice.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

LOG_RATIO_LIMIT = 20.0  # log-ratios are clamped to +-20 before the exponential [default]
KL_LIMIT = 10.0  # k3 estimates are clamped to +-10 [default]


class Surrogate(NamedTuple):
    """Per-token loss and what the clips did to it; every field has the shape of the log-probabilities."""

    loss: Tensor  # to be minimised
    ratio: Tensor
    clipped: Tensor  # bool: the clipped branch is the active one
    dual_clipped: Tensor  # bool: the dual clip bounds the loss of a negative advantage


def group_advantage(reward: Tensor, ddof: int = 1, eps: float = 1e-6) -> Tensor:
    """(r - mean) / (std + eps) within each group.

    reward: [prompts, group]; the same shape comes back. A group whose rewards are all equal has
    advantage 0.
    """
    centred = reward - reward.mean(dim=1, keepdim=True)
    std = reward.std(dim=1, keepdim=True, correction=ddof)
    return centred / (std + eps)


def surrogate(
    logprob: Tensor,
    old_logprob: Tensor,
    advantage: Tensor,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None,
) -> Surrogate:
    """The clipped, dual-clipped policy-gradient loss of each token.

    logprob (with gradient), old_logprob, advantage: one shape. The ratio is clipped to [1 -
    clip_low, 1 + clip_high]; for a negative advantage A the loss is at most -A * dual_clip (None:
    no such bound).
    """
    ratio = (logprob - old_logprob).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()
    free = -advantage * ratio
    held = -advantage * ratio.clamp(1 - clip_low, 1 + clip_high)
    loss = torch.maximum(free, held)
    clipped = held > free
    if dual_clip is None:
        return Surrogate(loss, ratio, clipped, torch.zeros_like(clipped))
    bound = -advantage * dual_clip
    negative = advantage < 0
    dual_clipped = negative & (loss > bound)
    return Surrogate(torch.where(negative, torch.minimum(loss, bound), loss), ratio, clipped, dual_clipped)


def kl_k3(logprob: Tensor, reference_logprob: Tensor) -> Tensor:
    """Schulman's k3 estimate of KL(policy || reference) at each sampled token, nats; any one shape."""
    difference = (reference_logprob - logprob).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    return (difference.exp() - difference - 1).clamp(-KL_LIMIT, KL_LIMIT)


def token_mean(values: Tensor) -> Tensor:
    """The mean over all response tokens of a batch (`token-mean`); values: [tokens]."""
    return values.mean()
