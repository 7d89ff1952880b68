"""Updates a second of TRL's GRPOTrainer on the proxy task, for comparison: run with the interpreter of `make env-trl`.

usage: trl_grpo.py START_CHECKPOINT PROMPTS.JSON UPDATES -> one JSON line on the last line of stdout
"""

from __future__ import annotations

import json
import sys
import tempfile
import time

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer


class Clock(TrainerCallback):
    """Times every step but the first, which warms up."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def on_step_end(self, *_, **__) -> None:
        self.times.append(time.perf_counter())


def main(start: str, problems_file: str, updates: int) -> None:
    torch.set_num_threads(1)
    with open(problems_file) as file:
        problems = json.load(file)
    answers = {row["prompt"]: row["answer"] for row in problems}
    tokenizer = AutoTokenizer.from_pretrained(start, padding_side="left")
    lengths: list[int] = []

    def reward(prompts, completions, completion_ids, **_):
        lengths.extend(len(ids) for ids in completion_ids)
        return [float(text == answers[p]) for p, text in zip(prompts, completions, strict=True)]

    with tempfile.TemporaryDirectory() as folder:
        config = GRPOConfig(
            output_dir=folder,
            per_device_train_batch_size=256,
            num_generations=8,
            max_completion_length=17,
            max_steps=updates,
            learning_rate=4e-4,
            lr_scheduler_type="constant",
            beta=0.001,
            loss_type="dapo",  # token mean
            temperature=1.0,
            gradient_checkpointing=False,
            use_cpu=True,
            bf16=False,
            logging_steps=1000,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            dataloader_pin_memory=False,
        )
        clock = Clock()
        trainer = GRPOTrainer(
            model=AutoModelForCausalLM.from_pretrained(start, dtype=torch.float32),
            reward_funcs=reward,
            args=config,
            train_dataset=Dataset.from_list([{"prompt": row["prompt"]} for row in problems]),
            processing_class=tokenizer,
            callbacks=[clock],
        )
        trainer.train()
    seconds = (clock.times[-1] - clock.times[0]) / (len(clock.times) - 1)
    print(json.dumps({"seconds_per_update": seconds, "response_length": sum(lengths) / len(lengths)}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
