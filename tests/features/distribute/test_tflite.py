"""TFLite models shared out to devices: whatever the plan, LiteRT computes what it computes of the whole."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memsched.features.distribute.distribute import distribute, run_plan
from memsched.features.distribute.execute import DistributedRun
from memsched.features.distribute.expressed import inexpressible
from memsched.features.distribute.follow import follow
from memsched.features.distribute.report import save_distributed
from memsched.features.distribute.step_models import given_sends, program_of, step_model
from memsched.formats.files import load_module
from memsched.formats.module import LoadOptions, Module
from memsched.formats.tflite.dialect import dialect
from memsched.formats.tflite.parts import TflitePartsWriter
from memsched.runtimes.litert.parts import LiteRtParts
from tests.distributed_nets import cluster_of, play, random_plan
from tests.failures import fails
from tests.formats.tflite_builder import O, Sub, T, build, int32s, options
from tests.rewrites.tile import tflite_layers
from tests.rewrites.tile.random_nets import tflite_net

if TYPE_CHECKING:
    from memsched.runtimes.devices.measured import ClusterRun

MODELS = Path(__file__).resolve().parents[3] / "models"
LITERT = LiteRtParts()


def feeds_of(module: Module) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    tensors = [module.graph.tensors[tensor] for tensor in module.graph.inputs]
    return {
        one.name: np.zeros(one.shape or ()).astype(one.dtype)
        if np.dtype(one.dtype).kind in "iub"
        else rng.standard_normal(one.shape).astype(one.dtype)
        for one in tensors
    }


def check(data: bytes, seed: int) -> int:
    """Execute a random plan in this process and compare; return how many parts it has."""
    module = load_module(data, "net.tflite", LoadOptions())
    words, writer, graph = dialect(module), TflitePartsWriter(module), module.graph
    plan = random_plan(graph, seed, writer.constant_bytes(), inexpressible(graph, words, writer.constant_bytes()))
    followed, steps = follow(graph, plan, words), range(len(plan.steps))
    models = [[step_model(followed, device, step, words) for step in steps] for device in range(plan.devices)]
    parts: list[int] = []

    def part(device: int, step: int) -> bytes:
        found = models[device][step]
        assert found is not None
        written = writer.write(found.graph, found.parts, {"device": str(device)})
        read = load_module(written.data, "part.tflite", LoadOptions())
        assert len(read.graph.ops) == len(found.graph.ops)
        parts.append(written.weights)
        return written.data

    def opened(model: bytes) -> Any:
        return LITERT.open(model, 0, {})

    programs = [program_of(followed, device, models[device]) for device in range(plan.devices)]
    feeds = feeds_of(module)
    found, _ = play(programs, given_sends(followed), part, feeds, opened)
    names = dict(zip(module.native.mappings[0].tensors, (tensor.name for tensor in graph.tensors), strict=True))
    wanted = LITERT.open(data, 0, names).run(list(found), feeds)
    for name, value in zip(found, wanted, strict=True):
        assert np.allclose(found[name], value, 1e-5, 1e-5), name
    return len(parts)


@given(st.integers(0, 1 << 30))
@settings(max_examples=4)
def test_random_plans_of_random_networks_compute_the_same(seed: int) -> None:
    assert check(tflite_net(seed), seed)


@given(st.integers(0, 1 << 30))
@settings(max_examples=30)
def test_layers_of_every_kind_are_divided(seed: int) -> None:
    r = random.Random(seed)
    makers, weights = zip(*tflite_layers.KINDS, strict=True)
    check(tflite_layers.model_of_layers([r.choices(makers, weights)[0](r)]), seed)


@pytest.mark.parametrize(("name", "count"), [("micro_speech_quantized", 3), ("hello_world_int8", 2)])
def test_processes_compute_and_show_what_is_printed(name: str, count: int, tmp_path: Path) -> None:
    found = run_plan(distribute(MODELS / f"{name}.tflite", cluster=cluster_of(count), method="even", effort=1.0))
    assert found.executed is not None
    assert found.executed.equal
    shown = save_distributed(found, str(tmp_path / "out")).data["devices"]
    for printed, device in zip(found.memory, shown, strict=True):
        assert device["measured"]["weights_and_activations_bytes"] == pytest.approx(printed, rel=0.02, abs=128)
    assert {one.suffix for one in (tmp_path / "out").iterdir()} == {".json", ".tflite"}


def test_operators_that_nobody_measures_calibrate_nothing() -> None:
    found = distribute(MODELS / "hello_world_int8.tflite", cluster=cluster_of(2), method="even", effort=1.0)
    with fails("no-operator-times", "--calibrate", "litert"):
        run_plan(found, throttled="cores")


def transposed() -> bytes:
    """An int8 TRANSPOSE_CONV, a scale per channel: LiteRT rounds its parts otherwise than the whole."""
    rng = np.random.default_rng(0)
    weights = rng.integers(-127, 128, (8, 3, 3, 8), np.int8).tobytes()
    scales = tuple(float(one) for one in rng.uniform(0.006, 0.017, 8))
    tensors = [
        T("x", (1, 24, 10, 8), "INT8", scales=(0.1,), zero_point=3),
        T("size", (4,), "INT32", int32s(1, 48, 20, 8)),
        T("w", (8, 3, 3, 8), "INT8", weights, scales=scales),
        T("y", (1, 48, 20, 8), "INT8", scales=(0.1,), zero_point=3),
    ]
    stated = options("TransposeConvOptions", padding=0, strideH=2, strideW=2)
    return build(Sub(tensors, [O("TRANSPOSE_CONV", [1, 2, 0], [3], stated)], [0], [3]))


def test_what_runtimes_round_otherwise_in_parts_is_not_divided(tmp_path: Path) -> None:
    path = tmp_path / "transposed.tflite"
    path.write_bytes(transposed())
    found = run_plan(distribute(path, cluster=cluster_of(2), method="even", effort=1.0))
    assert found.executed is not None
    assert found.executed.equal


@pytest.mark.parametrize(
    ("absolute", "relative", "about"),
    [
        (1.0, math.inf, " 1,"),
        (0.5, 0.25, "0.25"),
        (math.inf, math.inf, "NaN"),
    ],
)
def test_how_far_outputs_differ_is_said_as_it_is(
    absolute: float, relative: float, about: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Integers have no share of a largest magnitude: they are equal, or they differ."""
    path = tmp_path / "transposed.tflite"
    path.write_bytes(transposed())
    found = distribute(path, cluster=cluster_of(2), method="even", effort=1.0)
    run = DistributedRun(cast("ClusterRun", None), False, absolute, relative, None)
    monkeypatch.setattr("memsched.features.distribute.distribute.execute", lambda *_, **__: run)
    with fails("outputs-differ", about) as caught:
        run_plan(found)
    assert "inf " not in str(caught.value)
