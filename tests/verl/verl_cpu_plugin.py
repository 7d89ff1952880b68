"""What verl lacks for a machine without GPUs, for tests only: loaded in its processes before the product's own hooks.

Six registries of verl are filled: a platform, the training engine and the process-group back end
for the CPU, a weight exchange over files, and a rollout server that samples with Transformers.
Ray's GPUs are faked. verl itself is not changed.
"""

from __future__ import annotations

import asyncio
import os
import types
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from verl.plugin.platform import PlatformBase, PlatformRegistry, set_platform

# One folder an attempt: a file of an earlier run under the same version would be taken for one of
# this run. (The supervisor imports verl too, without a log; it exchanges nothing.)
EXCHANGE = Path(os.environ.get("COLLAPSE_LAWS_VERL_LOG", ".")).parent / "exchange"
GRADIENTS = os.environ.get("VERL_CPU_GRADIENTS")  # folder of raw gradients, for the cosine's test


def _device_module() -> types.SimpleNamespace:
    module = types.SimpleNamespace()
    for name in (
        "memory_allocated",
        "memory_reserved",
        "max_memory_allocated",
        "max_memory_reserved",
    ):
        setattr(module, name, lambda *a, **k: 0)
    for name in (
        "empty_cache",
        "set_device",
        "synchronize",
        "reset_peak_memory_stats",
        "ipc_collect",
        "manual_seed",
        "manual_seed_all",
    ):
        setattr(module, name, lambda *a, **k: None)
    module.mem_get_info = lambda *a, **k: (1 << 34, 1 << 34)
    module.is_available = lambda: False
    module.device_count = lambda: 1
    module.current_device = lambda: "cpu"
    module.get_device_name = lambda *a, **k: "CPU"
    module.get_rng_state, module.set_rng_state = torch.get_rng_state, torch.set_rng_state
    return module


_MODULE = _device_module()


@PlatformRegistry.register(platform="cpu")
class PlatformCPU(PlatformBase):
    device_name = property(lambda self: "cpu")
    vendor_name = property(lambda self: "cpu")
    device_module = property(lambda self: _MODULE)

    def is_available(self) -> bool:
        return True

    def is_platform_available(self, use_smi_check: bool = False) -> bool:
        return True

    def current_device(self) -> str:
        return "cpu"

    def device_count(self) -> int:
        return 1

    def set_device(self, index: int) -> None: ...

    def synchronize(self, index: int | None = None) -> None: ...

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def set_allocator_settings(self, settings: str) -> None: ...

    def empty_cache(self) -> None: ...

    def get_device_capability(self, index: int = 0) -> tuple[None, None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, message: str) -> Iterator[None]:
        yield

    def profiler_start(self) -> None: ...

    def profiler_stop(self) -> None: ...

    def ray_resource_name(self) -> str:
        return "GPU"  # faked ones, given to ray.init

    def ray_noset_envvars(self) -> list[str]:
        return ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"]

    def is_ipc_supported(self) -> bool:
        return False

    def cudart(self) -> None: ...


set_platform(PlatformCPU())

import verl.utils.distributed as verl_distributed  # noqa: E402  (after the platform is set)
import verl.utils.fsdp_utils as fsdp_utils  # noqa: E402

_initialize_group = verl_distributed.initialize_global_process_group_ray
verl_distributed.initialize_global_process_group_ray = lambda timeout_second=None, backend=None: _initialize_group(
    timeout_second=timeout_second, backend="cpu:gloo"
)

_save_to_cpu = fsdp_utils.fsdp2_sharded_save_to_cpu


def _save_copies(model: Any) -> Any:
    state, spec = _save_to_cpu(model)  # on a CPU these alias the live shards
    return {key: (tensor.clone(), other) for key, (tensor, other) in state.items()}, spec


fsdp_utils.fsdp2_sharded_save_to_cpu = _save_copies

import ray  # noqa: E402
from torch.distributed.fsdp import CPUOffloadPolicy  # noqa: E402
from verl.checkpoint_engine.base import CheckpointEngine, CheckpointEngineRegistry  # noqa: E402
from verl.workers.engine.base import EngineRegistry  # noqa: E402
from verl.workers.engine.fsdp import transformer_impl  # noqa: E402
from verl.workers.engine.fsdp.transformer_impl import FSDPEngine, FSDPEngineWithLMHead  # noqa: E402
from verl.workers.rollout.base import _ROLLOUT_REGISTRY, BaseRollout  # noqa: E402
from verl.workers.rollout.replica import (  # noqa: E402
    RolloutReplica,
    RolloutReplicaRegistry,
    TokenOutput,
)

# the reference policy is offloaded to pinned host memory, which a machine without an accelerator
# cannot pin
transformer_impl.CPUOffloadPolicy = lambda pin_memory=True: CPUOffloadPolicy(pin_memory=False)


@EngineRegistry.register(model_type="language_model", backend=["fsdp2"], device=["cpu"])
class CPUFSDPEngine(FSDPEngineWithLMHead):
    """The same engine under the CPU's name."""


if GRADIENTS:
    _optimizer_step = FSDPEngine.optimizer_step

    def _saving_step(self: Any) -> float:
        # called below the product's probe, so before clipping as well
        full = [p.grad.full_tensor().flatten().double() for p in self.module.parameters() if p.grad is not None]
        if torch.distributed.get_rank() == 0:
            count = len(list(Path(GRADIENTS).glob("*.pt")))
            torch.save(torch.cat(full), Path(GRADIENTS) / f"{count:05d}.pt")
        return _optimizer_step(self)

    FSDPEngine.optimizer_step = _saving_step


@CheckpointEngineRegistry.register("cpufile")
class FileCheckpointEngine(CheckpointEngine):
    """Learner to rollout over a file a version."""

    def __init__(self, bucket_size: int, is_master: bool = False, **_: Any) -> None:
        self.is_master = is_master
        EXCHANGE.mkdir(parents=True, exist_ok=True)

    def prepare(self) -> dict[str, Any]:
        return {}

    @classmethod
    def build_topology(cls, actors: int, rollouts: int, metadata: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        return {"x": list(range(actors))}, {"x": list(range(rollouts))}

    def init_process_group(self, x: Any = None, **_: Any) -> None: ...

    def finalize(self) -> None: ...

    async def send_weights(self, weights: Any, global_steps: int | None = None) -> dict[str, Any]:
        state = {key: value.detach().clone() for key, value in weights}
        if self.is_master:
            path = EXCHANGE / f"{global_steps}.pt"
            torch.save(state, path.with_suffix(".tmp"))
            os.replace(path.with_suffix(".tmp"), path)
        return {}

    async def receive_weights(self, global_steps: int | None = None) -> AsyncIterator[tuple[str, torch.Tensor]]:
        path = EXCHANGE / f"{global_steps}.pt"
        while not path.exists():
            await asyncio.sleep(0.05)
        for item in torch.load(path).items():
            yield item


class Sampler:
    """A rollout server: samples from a Transformers model, one request at a time, and says which version it used."""

    def __init__(self, model_config: Any, config: Any, replica_rank: int) -> None:
        from transformers import AutoConfig, AutoModelForCausalLM

        torch.set_num_threads(1)
        hf_config = AutoConfig.from_pretrained(model_config.path)
        self.model = AutoModelForCausalLM.from_config(hf_config).float().eval()  # weights come with the first exchange
        self.eos, self.config, self.version = hf_config.eos_token_id, config, None
        self.generator = torch.Generator().manual_seed(config.seed + replica_rank)

    async def address(self) -> str:
        return "sampler"

    async def load_weights(self, state: dict[str, Any], version: int) -> None:
        self.model.load_state_dict({key: torch.from_numpy(value) for key, value in state.items()}, strict=False)
        self.version = version

    async def set_global_steps(self, version: int) -> None:
        self.version = version

    async def _nothing(self, *args: Any, **kwargs: Any) -> None: ...

    abort_all_requests = resume_generation = clear_kv_cache = release_kv_cache = resume_kv_cache = _nothing
    wake_up = sleep = start_profile = stop_profile = _nothing

    @torch.no_grad()
    def sample(self, prompt_ids: list[int], temperature: float, limit: int) -> tuple[list[int], list[float]]:
        """Tokens up to the end token and their log-probabilities."""
        tokens, log_probs, past, step = [], [], None, torch.tensor([list(prompt_ids)])
        while len(tokens) < limit and self.eos not in tokens[-1:]:
            output = self.model(step, past_key_values=past, use_cache=True)
            past = output.past_key_values
            log_p = torch.log_softmax(output.logits[0, -1].float() / (temperature or 1.0), -1)
            token = int(
                log_p.argmax() if temperature == 0 else torch.multinomial(log_p.exp(), 1, generator=self.generator)
            )
            tokens.append(token)
            log_probs.append(float(log_p[token]))
            step = torch.tensor([[token]])
        return tokens, log_probs

    async def generate(
        self, prompt_ids: list[int], sampling_params: dict[str, Any], request_id: str, **_: Any
    ) -> TokenOutput:
        version, limit = (
            self.version,
            sampling_params.get("max_tokens") or self.config.response_length,
        )
        tokens, log_probs = self.sample(prompt_ids, sampling_params.get("temperature", 1.0), limit)
        await asyncio.sleep(0)
        extra = {"global_steps": version, "num_cached_tokens": 0}
        return TokenOutput(token_ids=tokens, log_probs=log_probs, stop_reason="completed", extra_fields=extra)


class SamplerReplica(RolloutReplica):
    async def launch_servers(self) -> None:
        name = f"sampler_{self.replica_rank}"
        actor = ray.remote(Sampler).options(name=name, max_concurrency=64, num_cpus=0)
        self._server_handle = actor.remote(self.model_config, self.config, self.replica_rank)
        self._server_address = await self._server_handle.address.remote()
        self.servers = [self._server_handle]


class SamplerAdapter(BaseRollout):
    """The rollout worker's side of the exchange."""

    def __init__(self, config: Any, model_config: Any, device_mesh: Any, replica_rank: int = -1, **_: Any) -> None:
        super().__init__(config, model_config, device_mesh)
        self.replica_rank = int(os.environ["RANK"]) if replica_rank == -1 else replica_rank
        self.is_leader_rank = True

    async def resume(self, tags: Any) -> None: ...

    async def release(self) -> None: ...

    async def update_weights(self, weights: Any, global_steps: int | None = None, **_: Any) -> None:
        state = {key: value.float().numpy() async for key, value in weights}
        await ray.get_actor(f"sampler_{self.replica_rank}").load_weights.remote(state, global_steps)


RolloutReplicaRegistry.register("hfcpu", lambda: SamplerReplica)
_ROLLOUT_REGISTRY[("hfcpu", "async")] = "verl_cpu_plugin.SamplerAdapter"
