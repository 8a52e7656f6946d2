"""Groups in pieces: written to files, run in the real runtimes, equal to the whole; and what is refused."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import onnxruntime
import pytest
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from memsched.check.rewrite import check_rewrite, check_written
from memsched.formats.files import load_module
from memsched.formats.module import LoadOptions, Module
from memsched.formats.onnx import rewriter as onnx_rewriter
from memsched.formats.tflite import rewriter as tflite_rewriter
from memsched.graph.model import Graph
from memsched.ops.geometry import describe
from memsched.ops.rules import Refusal
from memsched.rewrites.tile.local import halo_tensors
from memsched.rewrites.tile.pieces import Pieces, TilingGroup, plan_pieces
from memsched.rewrites.tile.rewrite import rewrite
from tests.failures import check_refusal, fails
from tests.formats.tflite_builder import MODELS
from tests.rewrites.tile.random_nets import onnx_net, tflite_net, u_net

ONNX_SEEDS = (*range(40), 164)
TFLITE_SEEDS = range(40)


def run_onnx(data: bytes) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    shape = session.get_inputs()[0].shape
    values = np.random.default_rng(3).normal(size=shape).astype(np.float32)
    result: np.ndarray = session.run(None, {"x": values})[0]
    return result


def run_tflite(data: bytes) -> np.ndarray:
    interpreter = Interpreter(
        model_content=data, experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    )
    interpreter.allocate_tensors()
    given = interpreter.get_input_details()[0]
    values = np.random.default_rng(3)
    if given["dtype"] == np.int8:
        interpreter.set_tensor(given["index"], values.integers(-128, 128, given["shape"], np.int8))
    else:
        interpreter.set_tensor(given["index"], values.normal(size=given["shape"]).astype(np.float32))
    interpreter.invoke()
    result: np.ndarray = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
    return result


def some_group(graph: Graph, seed: int, axes: tuple[tuple[int, ...], ...]) -> TilingGroup:
    """A random run of ops, cut along some axes with some halos kept."""
    pick = random.Random(seed)
    count = len(graph.ops)
    first = pick.randrange(count)
    last = pick.randrange(first, count)
    ops = tuple(range(first, last + 1))
    along = pick.choice(axes)
    counts = tuple(pick.randint(2, 4) for _ in along)
    geometries = {op: describe(graph, op) for op in ops}
    halos = halo_tensors(graph, geometries, ops)
    kept = tuple(sorted(tensor for tensor in halos if pick.random() < 0.4)) if len(along) == 1 else ()
    return TilingGroup(ops, along, counts, kept, tuple(op for op in ops if pick.random() < 0.5))


def tiled(module: Module, group: TilingGroup, format_: Any) -> tuple[Graph, bytes] | Refusal:
    graph = module.graphs[0]
    pieces = plan_pieces(graph, group, format_.dialect(module))
    if isinstance(pieces, Refusal):
        return pieces
    result = rewrite(graph, [pieces], format_.dialect(module)).graph
    check_rewrite(graph, result)
    order = range(len(result.ops))
    data = (
        format_.serialize(module, result, order)
        if format_ is tflite_rewriter
        else format_.serialize(module, result, order, {})
    )
    found = load_module(data, "written", LoadOptions()).graphs[0]
    check_written(result, order, found, named=format_ is onnx_rewriter)
    return result, data


def test_random_onnx_networks_in_pieces_compute_the_same() -> None:
    cut = 0
    for seed in ONNX_SEEDS:
        data = onnx_net(seed)
        module = load_module(data, "given.onnx", LoadOptions())
        for variant in range(2):
            group = some_group(module.graphs[0], 100 * variant + seed, ((2,), (3,), (1,), (2, 3)))
            found = tiled(module, group, onnx_rewriter)
            if isinstance(found, Refusal):
                continue
            cut += 1
            np.testing.assert_allclose(run_onnx(found[1]), run_onnx(data), rtol=1e-5, atol=1e-5, err_msg=str(group))
    assert cut >= len(ONNX_SEEDS)


@pytest.mark.parametrize("seed", range(4))
def test_networks_with_skips_over_upsampling_keep_halos_past_pieces_without_use_for_them(seed: int) -> None:
    """Deep rows serve several pieces: some need nothing new of them, a later one does."""
    data = u_net()
    module = load_module(data, "given.onnx", LoadOptions())
    graph = module.graphs[0]
    pick = random.Random(seed)
    ops = tuple(range(len(graph.ops)))
    halos = halo_tensors(graph, {op: describe(graph, op) for op in ops}, ops)
    kept = halos if not seed else [tensor for tensor in halos if pick.random() < 0.7]
    found = tiled(module, TilingGroup(ops, (2,), (16,), tuple(sorted(kept))), onnx_rewriter)
    assert not isinstance(found, Refusal)
    np.testing.assert_allclose(run_onnx(found[1]), run_onnx(data), rtol=1e-5, atol=1e-5)


def test_random_tflite_networks_in_pieces_compute_the_same() -> None:
    cut = 0
    for seed in TFLITE_SEEDS:
        data = tflite_net(seed)
        module = load_module(data, "given.tflite", LoadOptions())
        for variant in range(2):
            group = some_group(module.graphs[0], 100 * variant + seed, ((1,), (2,), (3,), (1, 2)))
            found = tiled(module, group, tflite_rewriter)
            if isinstance(found, Refusal):
                continue
            cut += 1
            np.testing.assert_allclose(
                run_tflite(found[1]), run_tflite(data), rtol=1e-5, atol=1e-5, err_msg=f"{seed} {group}"
            )
    assert cut >= len(TFLITE_SEEDS)


@pytest.mark.parametrize(
    ("axes", "counts", "kept_ops", "padded"),
    [
        ((1,), (4,), (), ()),
        ((1,), (12,), (0, 2), (1, 4)),
        ((1, 2), (6, 2), (), (1,)),
        ((1,), (24,), (0, 1, 2, 3), (1, 4)),
    ],
)
def test_the_head_of_mobilenet_is_bit_equal(
    axes: tuple[int, ...], counts: tuple[int, ...], kept_ops: tuple[int, ...], padded: tuple[int, ...]
) -> None:
    data = (MODELS / "mobilenetv2_035_96_int8.tflite").read_bytes()
    module = load_module(data, "mobilenet", LoadOptions())
    kept = tuple(module.graphs[0].ops[op].outputs[0] for op in kept_ops)
    found = tiled(module, TilingGroup(tuple(range(6)), axes, counts, kept, padded), tflite_rewriter)
    assert not isinstance(found, Refusal)
    assert np.array_equal(run_tflite(found[1]), run_tflite(data))


def test_kept_halos_are_not_computed_again() -> None:
    """A 3x3 convolution over rows: two extra rows per inner edge when computed again, none when kept."""
    data = (MODELS / "mobilenetv2_035_96_int8.tflite").read_bytes()
    module = load_module(data, "mobilenet", LoadOptions())
    graph, dialect = module.graphs[0], tflite_rewriter.dialect(module)
    first = graph.ops[0].outputs[0]
    ops = (0, 1)
    again = plan_pieces(graph, TilingGroup(ops, (1,), (4,), (), (0, 1)), dialect)
    kept = plan_pieces(graph, TilingGroup(ops, (1,), (4,), (first,), (0, 1)), dialect)
    assert isinstance(again, Pieces)
    assert isinstance(kept, Pieces)
    given = sum(graph.ops[op].macs for op in ops)
    # Three inner edges, two rows of 48 of the first convolution each.
    assert again.macs - given == graph.ops[0].macs * 6 // 48
    assert kept.macs == given


def test_groups_that_overlap_or_have_too_few_rows_are_refused() -> None:
    data = (MODELS / "mobilenetv2_035_96_int8.tflite").read_bytes()
    module = load_module(data, "mobilenet", LoadOptions())
    graph, dialect = module.graphs[0], tflite_rewriter.dialect(module)
    one = plan_pieces(graph, TilingGroup((0, 1), (1,), (2,)), dialect)
    two = plan_pieces(graph, TilingGroup((1, 2), (1,), (2,)), dialect)
    assert isinstance(one, Pieces)
    assert isinstance(two, Pieces)
    with fails("groups-overlap"):
        rewrite(graph, [one, two], dialect)
    too_many = plan_pieces(graph, TilingGroup((0, 1), (1,), (49,)), dialect)
    check_refusal(too_many, "many-pieces", "49", "axis 1")
    tied = plan_pieces(replace(graph, dependencies=((0, 1),)), TilingGroup((0, 1), (1,), (2,)), dialect)
    check_refusal(tied, "state")
