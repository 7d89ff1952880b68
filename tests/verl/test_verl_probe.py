"""The gradient probe on one rank: sums, cosines where they are defined, and the size of updates."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator

import pytest

pytest.importorskip("verl", reason="needs the extra `verl`")

import torch
import torch.distributed as dist
from torch.nn import Parameter


@pytest.fixture(scope="module")
def probe_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path_factory.mktemp('group')}/file", rank=0, world_size=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # verl's, about engines that are not installed
        from collapse_laws.verl import probe

    yield probe
    dist.destroy_process_group()


def parameters(*values: list[float]) -> list[Parameter]:
    made = []
    for value in values:
        parameter = Parameter(torch.zeros(len(value)))
        parameter.grad = torch.tensor(value)
        made.append(parameter)
    return made


def test_the_first_comparison_is_left_out_and_the_second_right(probe_module) -> None:
    probe = probe_module.Probe()
    params = parameters([3.0, 0.0], [4.0])
    probe.compare(params, None)
    assert probe.values == {"grad_norm_probe": pytest.approx(5.0)}
    params[0].grad, params[1].grad = torch.tensor([0.0, 2.0]), torch.tensor([1.0])
    probe.compare(params, None)
    assert probe.values["grad_cos"] == pytest.approx(4 / (5 * math.sqrt(5)))


def test_the_kept_gradient_is_a_copy(probe_module) -> None:
    probe = probe_module.Probe()
    params = parameters([1.0, 2.0])
    probe.compare(params, None)
    params[0].grad.mul_(0.1)  # as clipping does in place
    probe.compare(params, None)
    assert probe.values["grad_cos"] == pytest.approx(1.0)
    assert probe.values["grad_norm_probe"] == pytest.approx(0.1 * math.sqrt(5))


@pytest.mark.parametrize("bad", [[0.0, 0.0], [math.nan, 1.0], [math.inf, 1.0]])
def test_a_zero_or_non_finite_gradient_gives_no_cosine_twice(probe_module, bad: list[float]) -> None:
    probe = probe_module.Probe()
    params = parameters([1.0, 0.0])
    probe.compare(params, None)
    for gradient, has_cosine in ((bad, False), ([1.0, 0.0], False), ([1.0, 0.0], True)):
        params[0].grad = torch.tensor(gradient)
        probe.compare(params, None)
        assert ("grad_cos" in probe.values) is has_cosine


def test_a_parameter_without_gradient_counts_as_zero(probe_module) -> None:
    probe = probe_module.Probe()
    params = parameters([3.0], [4.0])
    probe.compare(params, None)
    params[1].grad = None
    probe.compare(params, None)
    assert probe.values["grad_cos"] == pytest.approx(3 / 5)


def test_update_and_displacement_are_root_mean_squares_a_coordinate(probe_module) -> None:
    probe = probe_module.Probe()
    params = parameters([0.0, 0.0], [0.0, 0.0])
    probe.keep_start(params)
    with torch.no_grad():
        params[0].add_(1.0)
    before = [p.detach().clone() for p in params]
    with torch.no_grad():
        params[1].add_(torch.tensor([0.3, 0.4]))
    probe.measure(params, before, 0.1, None)
    assert probe.values["update_rms"] == pytest.approx(math.sqrt(0.25 / 4) / 0.1)
    assert probe.values["displacement_rms"] == pytest.approx(math.sqrt(2.25 / 4))


def test_sums_are_made_in_double_precision(probe_module) -> None:
    values = torch.full((1 << 20,), 1e-4)
    assert float(probe_module.dot(values, values)) == pytest.approx(float(values[0]) ** 2 * (1 << 20), rel=1e-7)


def test_replicated_shards_are_refused(probe_module) -> None:
    class Engine:
        class engine_config:
            fsdp_size = 2

        @staticmethod
        def get_data_parallel_group():
            return dist.group.WORLD

    with pytest.raises(RuntimeError, match="fsdp_size=-1"):
        probe_module.shard_group(Engine())
