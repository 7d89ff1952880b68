"""The proxy task against a plain evaluator, and its tokenizer and checkpoints as others load them."""

from __future__ import annotations

import json

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from collapse_laws.errors import UserError
from collapse_laws.policy import load_policy
from collapse_laws.seeding import generator
from collapse_laws.tasks import make_task
from collapse_laws.tasks.arithmetic import EOS_ID, PAD_ID, ChainArithmetic, character_tokenizer


def worked_answer(prompt: str, modulus: int) -> str:
    """The rewarded response to a prompt, worked out one character at a time."""
    result, text = int(prompt[0]), ""
    for operator, digit in zip(prompt[1:-1:2], prompt[2:-1:2], strict=True):
        x = int(digit)
        result = {"+": result + x, "-": result - x, "*": result * x}[operator] % modulus
        text += f"{digit}{result}"
    return f"{text}#{result}<eos>"


@pytest.mark.parametrize(("low", "high", "modulus"), [(3, 6, 10), (2, 3, 5), (2, 2, 7)])
def test_answers(low, high, modulus):
    task = ChainArithmetic(low, high, "+-*", modulus)
    tokenizer = character_tokenizer()
    problems = task.problems(300, generator("data", 0))
    seen_terms = set()
    for row in range(300):
        prompt = tokenizer.decode(problems.prompt[row, : problems.prompt_length[row]])
        answer = tokenizer.decode(problems.answer[row][problems.answer[row] != PAD_ID])
        assert answer == worked_answer(prompt, modulus)
        seen_terms.add(int(problems.terms[row]))
    assert seen_terms == set(range(low, high + 1))


def test_reward_wants_the_whole_response():
    task = ChainArithmetic()
    problems = task.problems(50, generator("data", 1))
    right = problems.answer
    assert task.reward(problems, right, 1).tolist() == [1.0] * 50
    for column in range(6):
        wrong = right.clone()
        wrong[:, column] = (wrong[:, column] + 1) % 10
        assert task.reward(problems, wrong, 1).sum() == 0
    unfinished = torch.where(right == EOS_ID, PAD_ID, right)
    assert task.reward(problems, unfinished, 1).sum() == 0


def test_demonstrations_have_the_faults_asked_for():
    task = ChainArithmetic()
    clean, response, length = task.demonstrations(500, generator("demonstrations", 0), 0.0, 0.0)
    assert torch.equal(response, clean.answer)
    assert torch.equal(length, (clean.answer != PAD_ID).sum(1))
    noisy, response, _ = task.demonstrations(20_000, generator("demonstrations", 0), 0.0, 0.3)
    faulty = (response != noisy.answer).any(1).float().mean().item()
    # a random last digit may be right, and a step skipped past the end of a chain is no fault
    assert 0.2 < faulty < 0.3
    noisy, response, _ = task.demonstrations(20_000, generator("demonstrations", 1), 0.2, 0.0)
    right = (response == noisy.answer).all(1).float().mean().item()
    steps = (noisy.terms - 1).double()
    assert right == pytest.approx((0.82**steps).mean().item(), abs=0.02)


def test_tokenizer_round_trip(tmp_path):
    tokenizer = character_tokenizer()
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert len(loaded) == 17
    ids = loaded("7+3-8*1=").input_ids
    assert loaded.decode(ids) == "7+3-8*1="
    assert (loaded.eos_token_id, loaded.pad_token_id) == (EOS_ID, PAD_ID)


def test_start_is_a_hugging_face_checkpoint(start):
    model = AutoModelForCausalLM.from_pretrained(start)
    assert model.config.vocab_size == len(AutoTokenizer.from_pretrained(start))
    scores = json.loads((start / "warmstart.json").read_text())
    assert 0.15 < scores["sampled_reward"] < 0.7
    ours, _ = load_policy(start)
    for mine, theirs in zip(ours.parameters(), model.parameters(), strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize(
    "settings",
    [
        {"name": "sorting"},
        {"name": "chain_arithmetic", "max_terms": 1},
        {"name": "chain_arithmetic", "depth": 3},
    ],
)
def test_bad_task_settings(settings):
    with pytest.raises(UserError, match=r"settings\.task"):
        make_task(settings, character_tokenizer())


def test_generators_are_independent():
    draws = {
        (purpose, seed, index): torch.rand(1, generator=generator(purpose, seed, index)).item()
        for purpose in ("data", "rollout")
        for seed in range(3)
        for index in range(3)
    }
    assert len(set(draws.values())) == len(draws)
    with pytest.raises(ValueError, match="purpose"):
        generator("luck", 0)
