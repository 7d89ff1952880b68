"""A verl study for a machine without GPUs: the proxy's task and model, trained by the real trainer
through the CPU plugin."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch

from collapse_laws.runrecord import write_json
from collapse_laws.study import Cell, load_study
from collapse_laws.tasks.arithmetic import EOS_ID, PAD_ID, ChainArithmetic, character_tokenizer

HERE = Path(__file__).resolve().parent
SOURCE = "chain-arithmetic"
CHAT_TEMPLATE = "{% for m in messages %}{{ m['content'] }}{% endfor %}"  # the prompt and nothing else

CPU_OVERRIDES = [
    "+actor_rollout_ref.model.override_config.attn_implementation=sdpa",
    "actor_rollout_ref.model.use_remove_padding=false",
    "actor_rollout_ref.model.enable_gradient_checkpointing=false",
    "actor_rollout_ref.actor.use_torch_compile=false",
    "actor_rollout_ref.actor.fsdp_config.use_torch_compile=false",
    "actor_rollout_ref.ref.fsdp_config.use_torch_compile=false",
    "actor_rollout_ref.actor.use_dynamic_bsz=false",
    "actor_rollout_ref.rollout.agent.num_workers=1",
    "reward.num_workers=1",
    "data.dataloader_num_workers=0",
    "+ray_kwargs.ray_init.num_gpus=3",
]


def verl_settings(settings: dict[str, Any], micro_batch: int, training_ranks: int) -> dict[str, Any]:
    """Settings of a local study as a verl study on the CPU needs them; micro_batch in sequences a rank."""
    micro = [
        f"actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu={micro_batch}",
        f"actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu={micro_batch}",
        f"actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu={micro_batch}",
    ]
    return {
        **settings,
        "top_p": 1.0,
        "top_k": -1,
        "kl_estimator": "low_var_kl",
        "lr_schedule": "constant",
        "system": {
            "training_gpus": training_ranks,
            "rollout_gpus": 1,
            "rollout_engine": "hfcpu",
            "weight_sync": "cpufile",
            "tensor_parallel": 1,
            "gpu_memory_utilization": 0.5,
            "max_tokens_per_gpu": 16384,
            "framework_overrides": CPU_OVERRIDES + micro,
        },
    }


def write_model(start: Path, out: Path) -> None:
    """The starting checkpoint with the one thing that verl asks of a tokenizer beyond it: a chat template."""
    shutil.copytree(start, out)
    tokenizer = character_tokenizer()
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.save_pretrained(out)


def write_data(task: ChainArithmetic, folder: Path, training_prompts: int, validation_prompts: int, seed: int) -> None:
    """Prompts of the task as verl's parquet files, with the report that the launcher reads."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {}
    for number, (name, count) in enumerate((("chains", training_prompts), ("heldout", validation_prompts))):
        problems = task.problems(count, torch.Generator().manual_seed(seed + number))
        rows = []
        for i in range(count):
            prompt = problems.prompt[i, : problems.prompt_length[i]].tolist()
            answer = [token for token in problems.answer[i].tolist() if token not in (PAD_ID, EOS_ID)]
            rows.append(
                {
                    "data_source": SOURCE,
                    "prompt": [{"role": "user", "content": character_tokenizer().decode(prompt)}],
                    "ability": "arithmetic",
                    "reward_model": {
                        "style": "rule",
                        "ground_truth": character_tokenizer().decode(answer),
                    },
                    "extra_info": {"split": name, "index": i},
                }
            )
        pq.write_table(pa.Table.from_pylist(rows), folder / f"{name}.parquet")
        files[name] = {"rows": count, "data_source": SOURCE, "sha256": ""}
    write_json(folder / "prepare.json", {"files": files})


def plugin_environment(gradients: Path | None = None) -> dict[str, str]:
    """The variables under which verl's processes load the plugin."""
    if gradients is not None:
        gradients.mkdir(parents=True, exist_ok=True)
    return {
        "VERL_USE_EXTERNAL_MODULES": "verl_cpu_plugin",
        "PYTHONPATH": os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "VERL_CPU_GRADIENTS": str(gradients) if gradients else "",
        "OMP_NUM_THREADS": "1",
    }


def cpu_params(task: dict[str, Any], warmstart_steps: int = 600, **settings: Any) -> dict[str, Any]:
    """A params mapping with the study `cpu`: one tiny model, S=4, two learner ranks."""
    base = {
        "task": {"name": "chain_arithmetic", **task},
        "prompts_per_step": 4,
        "group_size": 4,
        "temperature": 1.0,
        "advantage_ddof": 1,
        "advantage_eps": 1e-6,
        "loss_aggregation": "token_mean",
        "entropy_coef": 0.0,
        "adam_beta1": 0.9,
        "adam_beta2": 0.999,
        "adam_eps": 1e-8,
        "weight_decay": 0.01,
        "grad_clip": 1.0,
        "dtype": "float32",
        "horizon_updates": 16,
        "stop_patience_snapshots": 1000,
        "stop_patience_lr_budget": 0.0,
        "validation_prompts": 64,
        "validation_every_updates": 8,
        "checkpoint_every_updates": 4,
        **settings,
    }
    model = {
        "kind": "tiny_llama",
        "hidden_size": 16,
        "layers": 1,
        "heads": 2,
        "intermediate_size": 40,
        "rope_theta": 1000.0,
        "warmstart": {
            "steps": warmstart_steps,
            "batch_size": 64,
            "peak_lr": 1e-2,
            "adam_beta2": 0.99,
            "wrong_result_rate": 0.17,
            "format_fault_rate": 0.12,
            "seed": 0,
        },
        "dataset": "chains",
        "validation": ["heldout"],
        "max_prompt_tokens": 2 * task["max_terms"],
        "max_response_tokens": ChainArithmetic(**task).max_response_tokens,
    }
    arm = {
        "title": "as the paper",
        "ratio": "behaviour",
        "clip_low": 0.2,
        "clip_high": 0.2,
        "dual_clip": 3.0,
        "kl_coef": 0.001,
    }
    study = {
        "title": "verl on a CPU",
        "scale": "smoke",
        "trainer": "verl",
        "device": "cpu",
        "settings": verl_settings(base, micro_batch=4, training_ranks=2),
        "models": {"tiny": model},
        "arms": {"vanilla": arm},
        "blocks": {
            "one": {
                "extent": "core",
                "arm": "vanilla",
                "model": "tiny",
                "sync_interval": 4,
                "lr": "2e-3",
                "seed": 11,
            }
        },
    }
    return {"study": "cpu", "studies": {"cpu": study}}


SMALL_CHAINS = {"min_terms": 2, "max_terms": 3, "operators": "+-*", "modulus": 10}


def cpu_cell(**settings: Any) -> Cell:
    """The study's one cell."""
    (cell,) = load_study(cpu_params(SMALL_CHAINS, **settings), "cpu").cells
    return cell


def prepared_folder(folder: Path) -> None:
    """What the launcher needs to find, without any content."""
    folder.mkdir(parents=True)
    entry = {"rows": 8, "data_source": SOURCE, "sha256": ""}
    for name in ("chains", "heldout"):
        (folder / f"{name}.parquet").touch()
    write_json(folder / "prepare.json", {"files": {"chains": entry, "heldout": entry}})
