"""What a learner learns from: the rollouts of one snapshot, drawn for all updates of its cycle at once.

The prompts and random numbers of update t depend on the seed and t alone, so that every cell of a
seed sees the same data in the same order.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from collapse_laws.attention import PackedBatch, pack, token_logprobs
from collapse_laws.rollout import Rollouts, sample
from collapse_laws.seeding import generator
from collapse_laws.study import Cell
from collapse_laws.tasks import Batch, Task

PACKED_AT_ONCE = 1024  # responses of one forward pass without gradient


@dataclass(frozen=True, slots=True)
class Experience:
    """One learner batch: `n` prompts with `group` responses each."""

    rollouts: Rollouts  # [n*group, T]
    reward: Tensor  # [n, group]
    packed: PackedBatch
    reference: Tensor  # [tokens] log-probabilities under the reference, nats

    @property
    def behaviour(self) -> Tensor:
        """[tokens] log-probabilities under the policy that sampled, nats."""
        sampled = torch.arange(self.rollouts.tokens.shape[1]) < self.rollouts.lengths[:, None]
        return self.rollouts.logprobs[sampled]

    @property
    def tokens(self) -> int:
        return int(self.rollouts.lengths.sum())

    @property
    def mean_entropy(self) -> float:
        """Nats a token, of the policy that sampled."""
        return self.rollouts.entropies.sum().item() / self.tokens


@dataclass(frozen=True, slots=True)
class _Prompts:
    prompt: Tensor
    prompt_length: Tensor


class Sampler:
    """Draws experience from a policy for one cell."""

    def __init__(
        self,
        cell: Cell,
        task: Task,
        model: PreTrainedModel,
        reference: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
    ) -> None:
        self._seed, self._settings, self._device = cell.seed, cell.settings, cell.device
        self._task, self._model, self._reference = task, model, reference
        self._eos, self._pad = tokenizer.eos_token_id, tokenizer.pad_token_id
        with torch.device("cpu"):
            held_out = generator("validation", 0)
            self._validation = task.problems(self._settings["validation_prompts"], held_out)

    def draw(self, first: int, updates: int) -> list[Experience]:
        """Experience for updates first ... first+updates-1 from the model's present parameters."""
        n, group = self._settings["prompts_per_step"], self._settings["group_size"]
        problems, uniforms = [], []
        with torch.device("cpu"):
            for t in range(first, first + updates):
                problems.append(self._task.problems(n, generator("data", self._seed, t)))
                noise = generator("rollout", self._seed, t)
                shape = (n * group, self._task.max_response_tokens)
                uniforms.append(torch.rand(shape, generator=noise))
        together = _Prompts(
            torch.cat([batch.prompt for batch in problems]),
            torch.cat([batch.prompt_length for batch in problems]),
        )
        rollouts = self._sample(together, group, self._settings["temperature"], torch.cat(uniforms))
        reference = self._reference_logprobs(together, rollouts)
        return [
            self._experience(batch, rollouts.rows(i * n * group, (i + 1) * n * group), logprobs)
            for i, (batch, logprobs) in enumerate(zip(problems, reference, strict=True))
        ]

    @torch.no_grad()
    def validate(self) -> float:
        """Greedy reward on the frozen held-out prompts, the same in all cells of a study."""
        rollouts = self._sample(self._validation, 1, 0.0, None)
        return self._task.reward(self._validation, rollouts.tokens, 1).mean().item()

    def _experience(self, batch: Batch, rollouts: Rollouts, reference: Tensor) -> Experience:
        group = self._settings["group_size"]
        reward = self._task.reward(batch, rollouts.tokens, group).view(-1, group)
        prompt, length = batch.prompt.to(self._device), batch.prompt_length.to(self._device)
        packed = pack(prompt, length, rollouts.tokens, rollouts.lengths, group)
        return Experience(rollouts, reward.to(self._device), packed, reference)

    def _sample(self, batch: Batch | _Prompts, samples: int, temperature: float, uniform: Tensor | None) -> Rollouts:
        return sample(
            self._model,
            batch.prompt.to(self._device),
            batch.prompt_length.to(self._device),
            samples=samples,
            max_new_tokens=self._task.max_response_tokens,
            eos_token_id=self._eos,
            pad_token_id=self._pad,
            temperature=temperature,
            uniform=None if uniform is None else uniform.to(self._device),
        )

    @torch.no_grad()
    def _reference_logprobs(self, together: _Prompts, rollouts: Rollouts) -> list[Tensor]:
        """Log-probabilities under the reference in few large passes, split by learner batch."""
        n, group = self._settings["prompts_per_step"], self._settings["group_size"]
        step = max(1, PACKED_AT_ONCE // group)
        pieces = []
        for i in range(0, len(together.prompt), step):
            packed = pack(
                together.prompt[i : i + step].to(self._device),
                together.prompt_length[i : i + step].to(self._device),
                rollouts.tokens[i * group : (i + step) * group],
                rollouts.lengths[i * group : (i + step) * group],
                group,
            )
            temperature = self._settings["temperature"]
            pieces.append(token_logprobs(self._reference, packed, temperature)[0])
        tokens = rollouts.lengths.view(-1, n * group).sum(1).tolist()
        return list(torch.cat(pieces).split(tokens))


def degenerate_fraction(reward: Tensor) -> float:
    """Fraction of groups [n, group] whose rewards are all equal: they teach nothing."""
    return (reward == reward[:, :1]).all(1).float().mean().item()
