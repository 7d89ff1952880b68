"""A tiny real GRPO training with the callback, run by the TRL environment's Python: argv = folder for its files."""

import sys
from pathlib import Path

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer

from collapse_laws.integrations.trl import CollapseCallback

folder = Path(sys.argv[1])
torch.manual_seed(0)
vocabulary = {mark: i for i, mark in enumerate(["<pad>", "<eos>", "<unk>", *"0123456789+-= "])}
core = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
core.pre_tokenizer = pre_tokenizers.Split("", "isolated")
tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", padding_side="left")
model = LlamaForCausalLM(LlamaConfig(
    vocab_size=len(vocabulary), hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
    pad_token_id=0, eos_token_id=1, bos_token_id=1))
calls = 0


def reward(completions, **_):
    """Full marks at first, none from the ninth batch on: a collapse that the callback must see."""
    global calls
    calls += 1
    return [(1.0 if i % 4 else 0.5) if calls <= 8 else 0.0 for i, _ in enumerate(completions)]


trainer = GRPOTrainer(
    model=model,
    processing_class=tokenizer,
    reward_funcs=reward,
    train_dataset=Dataset.from_dict({"prompt": [f"{a}+{b}=" for a in range(8) for b in range(8)]}),
    args=GRPOConfig(
        output_dir=str(folder / "out"), max_steps=40, per_device_train_batch_size=4, num_generations=4, max_completion_length=4,
        logging_steps=1, save_strategy="no", report_to="tensorboard", learning_rate=1e-4, use_cpu=True, steps_per_generation=2,
        gradient_accumulation_steps=1),
    callbacks=[CollapseCallback(folder / "record")],
)
trainer.train()
trainer.state.save_to_json(str(folder / "trainer_state.json"))
