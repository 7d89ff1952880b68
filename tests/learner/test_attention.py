"""Packed learning and cached sampling against the plain model of transformers."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from collapse_laws import rollout
from collapse_laws.attention import pack, token_logprobs
from collapse_laws.policy import FlatParameters, load_policy, prepared
from collapse_laws.rollout import sample
from collapse_laws.seeding import generator
from collapse_laws.tasks.arithmetic import EOS_ID, PAD_ID, ChainArithmetic

TASK = ChainArithmetic()
ENDS = {"eos_token_id": EOS_ID, "pad_token_id": PAD_ID}


def models(kv_heads: int) -> tuple[LlamaForCausalLM, LlamaForCausalLM]:
    """The same random model twice: with our attention, and as transformers has it."""
    config = LlamaConfig(
        vocab_size=17,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=kv_heads,
        bos_token_id=None,
        **ENDS,
    )
    torch.manual_seed(0)
    plain = LlamaForCausalLM(config).eval()
    ours = LlamaForCausalLM(config)
    ours.load_state_dict(plain.state_dict())
    return prepared(ours), plain


def plain_logprobs(model, problems, responses, lengths, group):
    """Log-probabilities of each response's tokens, one unpadded sequence at a time."""
    out = []
    for row, length in enumerate(lengths.tolist()):
        prompt = problems.prompt[row // group, : problems.prompt_length[row // group]]
        ids = torch.cat([prompt, responses[row, :length]])
        logits = model(ids[None]).logits[0, len(prompt) - 1 : -1]
        logprobs = logits.log_softmax(-1)
        out.append(logprobs.gather(1, responses[row, :length, None])[:, 0])
    return torch.cat(out)


def some_responses(n_rows: int):
    g = torch.Generator().manual_seed(1)
    lengths = torch.randint(1, 9, (n_rows,), generator=g)
    tokens = torch.randint(0, 15, (n_rows, 8), generator=g)
    tokens[torch.arange(8) >= lengths[:, None]] = PAD_ID
    return tokens, lengths


@pytest.mark.parametrize("kv_heads", [4, 2])
def test_packed_values_and_gradients(kv_heads):
    ours, plain = models(kv_heads)
    problems = TASK.problems(5, generator("data", 0))
    responses, lengths = some_responses(15)
    packed = pack(problems.prompt, problems.prompt_length, responses, lengths, 3)
    logprob, distribution = token_logprobs(ours, packed)
    expected = plain_logprobs(plain, problems, responses, lengths, 3)
    torch.testing.assert_close(logprob, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(distribution.exp().sum(1), torch.ones(len(logprob)))
    (logprob**2).sum().backward()
    (expected**2).sum().backward()
    for mine, theirs in zip(ours.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, atol=2e-4, rtol=1e-4)


def test_no_padding_is_computed():
    problems = TASK.problems(5, generator("data", 0))
    responses, lengths = some_responses(15)
    packed = pack(problems.prompt, problems.prompt_length, responses, lengths, 3)
    assert len(packed.token) == problems.prompt_length.sum() + (lengths - 1).sum()
    assert len(packed.target) == lengths.sum()


@pytest.mark.parametrize("kv_heads", [4, 2])
def test_sampled_logprobs_are_the_models(kv_heads):
    ours, plain = models(kv_heads)
    problems = TASK.problems(6, generator("data", 1))
    uniform = torch.rand(24, 17, generator=generator("rollout", 1))
    out = sample(
        ours,
        problems.prompt,
        problems.prompt_length,
        samples=4,
        max_new_tokens=17,
        uniform=uniform,
        **ENDS,
    )
    expected = plain_logprobs(plain, problems, out.tokens, out.lengths, 4)
    sampled = torch.arange(17) < out.lengths[:, None]
    torch.testing.assert_close(out.logprobs[sampled], expected, atol=1e-5, rtol=1e-5)
    assert (out.entropies[sampled] > 0).all()
    assert (out.tokens[~sampled] == PAD_ID).all()
    ends = out.tokens[torch.arange(24), out.lengths - 1] == EOS_ID
    assert torch.equal(out.finished, ends)


def test_sampling_does_not_depend_on_batching(monkeypatch):
    ours, _ = models(4)
    problems = TASK.problems(40, generator("data", 2))
    uniform = torch.rand(80, 17, generator=generator("rollout", 2))

    def tokens():
        return sample(
            ours,
            problems.prompt,
            problems.prompt_length,
            samples=2,
            max_new_tokens=17,
            uniform=uniform,
            **ENDS,
        ).tokens

    together = tokens()
    monkeypatch.setattr(rollout, "ROWS_AT_ONCE", 6)
    assert torch.equal(together, tokens())


def test_sampling_frequencies():
    """The first token over 20,000 samples: a chi-square test against the model's distribution."""
    ours, plain = models(4)
    problems = TASK.problems(1, generator("data", 3))
    n = 20_000
    out = sample(
        ours,
        problems.prompt,
        problems.prompt_length,
        samples=n,
        max_new_tokens=1,
        temperature=0.7,
        uniform=torch.rand(n, 1, generator=generator("rollout", 3)),
        **ENDS,
    )
    with torch.no_grad():
        logits = plain(problems.prompt[:, : problems.prompt_length[0]]).logits[0, -1]
    expected = (logits / 0.7).softmax(-1) * n
    counts = torch.bincount(out.tokens[:, 0], minlength=17)
    assert ((counts - expected) ** 2 / expected).sum() < 40.8  # 99.9 % point, 16 degrees of freedom


def test_greedy_is_transformers_generate(start):
    ours, _ = load_policy(start)
    plain = AutoModelForCausalLM.from_pretrained(start).eval()
    task = ChainArithmetic(2, 3, "+-", 5)
    problems = task.problems(30, generator("data", 4))
    out = sample(
        ours,
        problems.prompt,
        problems.prompt_length,
        samples=1,
        max_new_tokens=9,
        temperature=0,
        **ENDS,
    )
    for row in range(30):
        prompt = problems.prompt[row : row + 1, : problems.prompt_length[row]]
        theirs = plain.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=9, do_sample=False)[
            0, prompt.shape[1] :
        ]
        assert theirs.tolist() == out.tokens[row, : out.lengths[row]].tolist()


def test_flat_parameters_are_the_models():
    ours, _ = models(4)
    flat = FlatParameters(ours)
    assert flat.value.numel() == sum(p.numel() for p in ours.parameters())
    flat.set(torch.zeros_like(flat.now()))
    assert all((p == 0).all() for p in ours.parameters())
    with pytest.raises(ValueError, match="uniform"):
        sample(
            ours,
            torch.zeros(1, 1, dtype=torch.long),
            torch.ones(1, dtype=torch.long),
            samples=1,
            max_new_tokens=1,
            **ENDS,
        )
