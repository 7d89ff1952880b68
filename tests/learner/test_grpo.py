"""The objective against verl's own functions, and its closed forms."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

from collapse_laws import grpo


def random_batch(seed: int, groups: int = 6, group: int = 8, width: int = 11):
    g = torch.Generator().manual_seed(seed)
    rows = groups * group
    logprob = -torch.rand(rows, width, generator=g) * 3
    old = logprob + torch.randn(rows, width, generator=g)
    advantage = torch.randn(rows, generator=g)
    length = torch.randint(1, width + 1, (rows,), generator=g)
    mask = torch.arange(width) < length[:, None]
    return logprob, old, advantage, mask


@pytest.fixture(scope="module")
def core_algos():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # verl's imports warn of their own dependencies
        return pytest.importorskip("verl.trainer.ppo.core_algos", reason="verl is not installed")


@pytest.mark.parametrize("seed", range(3))
def test_advantage_is_verls(core_algos, seed):
    g = torch.Generator().manual_seed(seed)
    reward = torch.randint(0, 2, (6, 8), generator=g).float()
    mask = torch.ones(48, 5)
    token_rewards = torch.zeros(48, 5)
    token_rewards[:, -1] = reward.flatten()
    index = np.repeat(np.arange(6), 8)
    theirs, _ = core_algos.compute_grpo_outcome_advantage(token_rewards, mask, index)
    torch.testing.assert_close(grpo.group_advantage(reward).flatten(), theirs[:, 0], atol=1e-6, rtol=0)


@pytest.mark.parametrize(("low", "high", "dual"), [(0.2, 0.2, 3.0), (0.1, 0.3, 1.5), (1.0, 1.0, 3.0)])
@pytest.mark.parametrize("seed", range(3))
def test_surrogate_is_verls(core_algos, seed, low, high, dual):
    from verl.workers.config import FSDPActorConfig

    config = FSDPActorConfig(
        clip_ratio=0.2,
        clip_ratio_low=low,
        clip_ratio_high=high,
        clip_ratio_c=dual,
        rollout_n=8,
        ppo_micro_batch_size_per_gpu=1,
        strategy="fsdp",
    )
    logprob, old, advantage, mask = random_batch(seed)
    theirs, metrics = core_algos.compute_policy_loss_vanilla(
        old, logprob, advantage[:, None].expand_as(logprob), mask.float(), "token-mean", config
    )
    terms = grpo.surrogate(
        logprob[mask],
        old[mask],
        advantage[:, None].expand_as(logprob)[mask],
        low,
        high,
        dual,
    )
    assert grpo.token_mean(terms.loss).item() == pytest.approx(theirs.item(), abs=1e-6)
    clipped, bounded = terms.clipped.float().mean(), terms.dual_clipped.float().mean()
    assert clipped.item() == pytest.approx(metrics["actor/pg_clipfrac"], abs=1e-6)
    assert bounded.item() == pytest.approx(metrics["actor/pg_clipfrac_lower"], abs=1e-6)


def test_kl_is_verls(core_algos):
    logprob, reference, _, mask = random_batch(5)
    theirs = core_algos.kl_penalty_forward(logprob * 9, reference, "low_var_kl")
    ours = grpo.kl_k3(logprob * 9, reference)
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-6)
    total = core_algos.agg_loss(theirs, mask.float(), "token-mean")
    assert grpo.token_mean(ours[mask]).item() == pytest.approx(total.item(), rel=1e-6)


def test_degenerate_group_has_no_advantage():
    reward = torch.tensor([[1.0] * 4, [0.0] * 4, [1.0, 0.0, 0.0, 0.0]])
    advantage = grpo.group_advantage(reward)
    assert torch.equal(advantage[:2], torch.zeros(2, 4))
    assert advantage[2, 0] > 0 > advantage[2, 1]


@pytest.mark.parametrize(("ddof", "expected"), [(0, 2**0.5), (1, 3**0.5 * 2 / 3)])
def test_ddof(ddof, expected):
    reward = torch.tensor([[1.0, 0.0, 0.0]])
    largest = grpo.group_advantage(reward, ddof=ddof, eps=0.0)[0, 0].item()
    assert largest == pytest.approx(expected, rel=1e-6)


def test_lower_clip_alone_stops_pushing_down():
    """A negative sample whose ratio has fallen below the lower clip has no gradient; without it, it has."""
    for low, pushes in ((0.2, False), (1.0, True)):
        logprob = torch.tensor([-3.0], requires_grad=True)
        terms = grpo.surrogate(logprob, torch.tensor([-1.0]), torch.tensor([-1.0]), low, 1.0, 3.0)
        terms.loss.sum().backward()
        assert (logprob.grad.abs().item() > 0) == pushes
