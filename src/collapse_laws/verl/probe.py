"""Loaded inside verl's learner workers through `external_lib`: the gradient cosine and the update's
size on FSDP2 shards.

Appendix B [stated]: c_t is taken between the raw gradients of consecutive learner steps, before the
optimizer state is applied; inner products and norms are accumulated across data-parallel ranks and
the full vector is never materialised. Here: before clipping, over each rank's own shards, one
all-reduce of three double-precision scalars. A first, non-finite or zero-norm comparison is left
out, never 0. The previous gradient stays on the device (one extra float32 shard); the starting
parameters are kept in host memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor


def local(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's own part of a tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def dot(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Inner product with a double-precision sum; the products are rounded once, in the tensors' own precision."""
    return (a * b).sum(dtype=torch.float64)


def cosine(inner: float, square: float, previous_square: float) -> float | None:
    """c_t from the three sums; None where it is not defined."""
    norms = math.sqrt(square) * math.sqrt(previous_square) if min(square, previous_square) > 0 else 0.0
    if not (math.isfinite(inner) and math.isfinite(norms)) or norms == 0.0:
        return None
    return inner / norms


class Probe:
    """State of one learner worker: the previous gradient and the starting parameters, as shards."""

    def __init__(self) -> None:
        self.previous: list[torch.Tensor] | None = None
        self.start: list[torch.Tensor] | None = None
        self.ratio_max = 0.0
        self.values: dict[str, float] = {}

    @torch.no_grad()
    def keep_start(self, parameters: list[torch.nn.Parameter]) -> None:
        """Copy the starting parameters to host memory, before a checkpoint is loaded over them."""
        self.start = [local(p).detach().to("cpu", copy=True) for p in parameters]

    @torch.no_grad()
    def compare(self, parameters: list[torch.nn.Parameter], group: Any) -> None:
        """Norm of the gradient and its cosine to the previous one; then the gradient becomes the previous one."""
        gradients = [local(p.grad).detach() if p.grad is not None else None for p in parameters]
        sums = torch.zeros(3, dtype=torch.float64, device=local(parameters[0]).device)
        first = self.previous is None
        if first:
            self.previous = [torch.zeros_like(local(p)) for p in parameters]
        for gradient, before in zip(gradients, self.previous, strict=True):
            if gradient is not None:
                sums[0] += dot(gradient, before)
                sums[1] += dot(gradient, gradient)
            sums[2] += dot(before, before)
            before.zero_() if gradient is None else before.copy_(gradient)
        dist.all_reduce(sums, group=group)
        inner, square, previous_square = sums.tolist()
        self.values = {}
        if math.isfinite(square):
            self.values["grad_norm_probe"] = math.sqrt(square)
        value = None if first else cosine(inner, square, previous_square)
        if value is not None:
            self.values["grad_cos"] = value

    @torch.no_grad()
    def measure(
        self,
        parameters: list[torch.nn.Parameter],
        before: list[torch.Tensor],
        lr: float,
        group: Any,
    ) -> None:
        """Root mean squares a coordinate: of the update divided by the learning rate, and of the way from the start."""
        sums = torch.zeros(3, dtype=torch.float64, device=before[0].device)
        for index, (parameter, old) in enumerate(zip(parameters, before, strict=True)):
            new = local(parameter).detach()
            change = new - old
            sums[0] += dot(change, change)
            if self.start is not None:
                way = new - self.start[index].to(new.device)
                sums[1] += dot(way, way)
            sums[2] += new.numel()
        dist.all_reduce(sums, group=group)
        change, way, count = sums.tolist()
        self.values["update_rms"] = math.sqrt(change / count) / lr
        if self.start is not None:
            self.values["displacement_rms"] = math.sqrt(way / count)


def trained(engine: Any) -> list[torch.nn.Parameter]:
    """The parameters that the optimizer moves, in a fixed order."""
    return [p for p in engine.module.parameters() if p.requires_grad]


def shard_group(engine: Any) -> Any:
    """The group over which parameters are sharded; RuntimeError where that is not simply every rank."""
    group = engine.get_data_parallel_group()
    world = dist.get_world_size()
    if dist.get_world_size(group) != world or engine.engine_config.fsdp_size not in (-1, world):
        raise RuntimeError(
            "the gradient cosine needs parameters sharded over all ranks: fsdp_config.fsdp_size=-1 and no sequence "
            "parallelism; replicated shards would be counted twice."
        )
    return group


def _tensors(parameters: list[torch.nn.Parameter]) -> Iterator[torch.Tensor]:
    return (local(p).detach() for p in parameters)


def install() -> None:
    """Wrap the FSDP engine and the clipped surrogate of this process."""
    from verl.trainer.ppo import core_algos
    from verl.workers.engine.fsdp.transformer_impl import FSDPEngine

    initialize, optimizer_step, train_batch = (
        FSDPEngine.initialize,
        FSDPEngine.optimizer_step,
        FSDPEngine.train_batch,
    )
    vanilla = core_algos.POLICY_LOSS_REGISTRY["vanilla"]
    current: dict[str, Probe] = {}

    def _initialize(self: Any) -> Any:
        result = initialize(self)
        if not self.engine_config.forward_only:
            self.collapse_laws_probe = Probe()
            self.collapse_laws_probe.keep_start(trained(self))
        return result

    def _optimizer_step(self: Any) -> float:
        probe: Probe = self.collapse_laws_probe
        parameters, group = trained(self), shard_group(self)
        probe.compare(parameters, group)
        before = [tensor.clone() for tensor in _tensors(parameters)]
        norm = optimizer_step(self)
        probe.measure(parameters, before, self.optimizer.param_groups[0]["lr"], group)
        return norm

    def _train_batch(self: Any, data: Any, loss_function: Any) -> Any:
        probe = current["probe"] = self.collapse_laws_probe
        probe.ratio_max = 0.0
        output = train_batch(self, data, loss_function)
        if self.is_mp_src_rank_with_outputs():
            # lists: verl flattens them over ranks, and takes the maximum where the name says max,
            # else the mean
            output["metrics"].update({key: [value] for key, value in probe.values.items()})
            output["metrics"]["ratio_max"] = [probe.ratio_max]
        return output

    def _vanilla(old_log_prob: torch.Tensor, log_prob: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        mask = kwargs.get("response_mask", args[1] if len(args) > 1 else None)  # [sequences, tokens]
        with torch.no_grad():
            ratio = torch.where(mask.bool(), (log_prob - old_log_prob).clamp(-20, 20), -20.0)
            current["probe"].ratio_max = max(current["probe"].ratio_max, float(ratio.max().exp()))
        return vanilla(old_log_prob, log_prob, *args, **kwargs)

    FSDPEngine.initialize, FSDPEngine.optimizer_step, FSDPEngine.train_batch = (
        _initialize,
        _optimizer_step,
        _train_batch,
    )
    core_algos.POLICY_LOSS_REGISTRY["vanilla"] = _vanilla


_installed = False
if not _installed and dist.is_available():
    install()
    _installed = True
