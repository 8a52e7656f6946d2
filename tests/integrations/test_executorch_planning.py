"""Memory planning in ExecuTorch itself: never above its greedy suite, and programs compute the same."""

from __future__ import annotations

import importlib
import sys
import warnings
from importlib.util import find_spec
from typing import Any

import pytest

REASON = "executorch is not installed: pip install executorch"


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "executorch", None)
    monkeypatch.delitem(sys.modules, "memsched.integrations.executorch_planning", raising=False)
    with pytest.raises(ModuleNotFoundError, match=r"pip install executorch"):
        importlib.import_module("memsched.integrations.executorch_planning")


@pytest.fixture(scope="module")
def torch() -> Any:
    # Only where it is not there at all: an installation that lacks what it imports is no reason to skip.
    if find_spec("executorch") is None:
        pytest.skip(REASON)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch
    return torch


def networks(torch: Any) -> dict[str, tuple[Any, tuple[Any, ...]]]:
    nn = torch.nn

    class Inception(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(3, 8, 3, padding=1)
            self.ways = nn.ModuleList(nn.Conv2d(8, 4 + 3 * k, 2 * k + 1, padding=k) for k in range(4))
            self.join = nn.Conv2d(34, 6, 1)

        def forward(self, x: Any) -> Any:
            x = torch.relu(self.stem(x))
            found = self.join(torch.cat([torch.relu(way(x)) for way in self.ways], 1))
            return nn.functional.max_pool2d(found, 2), found.mean((2, 3))

    class Pyramid(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.down = nn.ModuleList(nn.Conv2d(2 + k, 3 + k, 3, stride=2, padding=1) for k in range(4))
            self.up = nn.ModuleList(nn.Conv2d(3 + k, 3, 1) for k in range(4))

        def forward(self, x: Any) -> Any:
            levels = []
            for layer in self.down:
                x = torch.relu(layer(x))
                levels.append(x)
            size = levels[0].shape[2:]
            return sum(nn.functional.interpolate(up(one), size) for up, one in zip(self.up, levels, strict=True))

    class Attention(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.q, self.k, self.v, self.out = (nn.Linear(24, 24) for _ in range(4))

        def forward(self, x: Any) -> Any:
            q, k, v = (layer(x).view(1, -1, 3, 8).transpose(1, 2) for layer in (self.q, self.k, self.v))
            found = torch.softmax(q @ k.transpose(-1, -2), -1) @ v
            return x + self.out(found.transpose(1, 2).reshape(1, -1, 24))

    torch.manual_seed(0)
    return {
        "inception": (Inception().eval(), (torch.rand(1, 3, 20, 20),)),
        "pyramid": (Pyramid().eval(), (torch.rand(1, 2, 34, 34),)),
        "attention": (Attention().eval(), (torch.rand(1, 10, 24),)),
    }


def planned(torch: Any, module: Any, inputs: tuple[Any, ...], algorithm: Any, **settings: Any) -> tuple[list[int], Any]:
    """Return the sizes of the memories, and the program."""
    from executorch.exir import ExecutorchBackendConfig, to_edge
    from executorch.exir.passes import MemoryPlanningPass

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plan = MemoryPlanningPass(memory_planning_algo=algorithm, **settings)
        program = to_edge(torch.export.export(module, inputs)).to_executorch(
            ExecutorchBackendConfig(memory_planning_pass=plan)
        )
    return list(program.executorch_program.execution_plan[0].non_const_buffer_sizes), program


def verified(program: Any) -> int:
    """Return the pairs of tensors that share bytes, as ExecuTorch's own verifier counts them."""
    from executorch.exir.memory_planning import Verifier

    exported = program.exported_program()
    verifier = Verifier(exported.graph_module, True, True, True, exported.graph_signature)
    return int(verifier.verify_storage_reuse())


@pytest.mark.parametrize("name", ["inception", "pyramid", "attention"])
def test_never_above_the_greedy_suite(torch: Any, name: str) -> None:
    from executorch.exir.memory_planning import MemoryPlanningAlgorithmSuite

    from memsched.integrations.executorch_planning import least_memory, memory_planner

    module, inputs = networks(torch)[name]
    given, _ = planned(torch, module, inputs, MemoryPlanningAlgorithmSuite())
    best, program = planned(torch, module, inputs, memory_planner(effort=1))
    alone, own = planned(torch, module, inputs, MemoryPlanningAlgorithmSuite([least_memory]))
    assert len(given) == len(best) == len(alone)
    assert sum(alone) <= sum(best) <= sum(given)
    for one in (program, own):
        assert verified(one) > 0
        runtime = pytest.importorskip("executorch.extension.pybindings.portable_lib", reason="no runtime in the wheel")
        found = runtime._load_for_executorch_from_buffer(one.buffer).forward(inputs)
        expected = module(*inputs)
        for other, result in zip(expected if isinstance(expected, tuple) else (expected,), found, strict=True):
            assert torch.allclose(other, result, atol=1e-5)


def spec_of(torch: Any, size: int, begin: int, end: int) -> Any:
    from executorch.exir.tensor import TensorSpec

    one = TensorSpec(torch.float32, torch.Size([size // 4]))
    one.lifetime = [begin, end]
    return one


def test_below_it_where_the_largest_first_is_wrong(torch: Any) -> None:
    from executorch.exir.memory_planning import MemoryPlanningAlgorithmSuite

    from memsched.integrations.executorch_planning import memory_planner

    rows = ((128, 0, 2), (64, 1, 4), (128, 5, 6), (80, 3, 6), (64, 2, 4))
    found = [
        suite(16, [spec_of(torch, *row) for row in rows], torch.nn.Module(), None, 0)
        for suite in (MemoryPlanningAlgorithmSuite(), memory_planner(effort=0.1))
    ]
    assert found == [[0, 336], [0, 256]]


def test_what_lies_in_another_tensor_and_what_is_reserved(torch: Any) -> None:
    from memsched.integrations.executorch_planning import least_memory

    whole, other, later = spec_of(torch, 256, 0, 2), spec_of(torch, 64, 2, 4), spec_of(torch, 128, 5, 6)
    part = spec_of(torch, 128, 1, 3)
    part.storage_base, part.storage_base_offset = whole, 128
    module = torch.nn.Module()
    module.input_mem_buffer_sizes = [0, 320]
    found = least_memory(16, [part, whole, other, later], module, None, 64)
    at = {one: place.mem_offset for one, place in found.spec_dict.items()}
    assert at[part] == at[whole] + 128
    assert min(at.values()) >= 320
    assert at[other] + 64 <= at[whole] or at[other] >= at[whole] + 256
    assert found.bufsizes == [0, 320 + 320 + 64]
    assert least_memory(16, [], module, None).bufsizes == [0, 0]
