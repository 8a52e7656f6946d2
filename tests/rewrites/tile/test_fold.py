"""Pads folded into convolutions: equal results in the real runtimes, and only where they are equal."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from onnx import helper, numpy_helper

from memsched.check.rewrite import check_rewrite, check_written
from memsched.formats.files import load_module
from memsched.formats.module import LoadOptions
from memsched.formats.onnx import rewriter as onnx_rewriter
from memsched.formats.tflite import rewriter as tflite_rewriter
from memsched.rewrites.tile.fold import fold_pads
from tests.formats.tflite_builder import O, Sub, T, build, int32s, options
from tests.rewrites.tile.test_rewrite import run_onnx, run_tflite
from tests.small_models import floats, model_of

RNG = np.random.default_rng(2)


def padded_onnx(value: float = 0.0) -> bytes:
    weights = [
        numpy_helper.from_array(RNG.normal(size=(4, 3, 3, 3)).astype(np.float32), "w"),
        numpy_helper.from_array(np.array([0, 0, 1, 0, 0, 0, 2, 1]), "pads"),
        numpy_helper.from_array(np.array(value, np.float32), "value"),
    ]
    nodes = [
        helper.make_node("Pad", ["x", "pads", "value"], ["p"], "p"),
        helper.make_node("Conv", ["p", "w"], ["y"], "y", kernel_shape=[3, 3], pads=[0, 1, 0, 0]),
    ]
    return model_of(nodes, [floats("x", [1, 3, 8, 8])], [floats("y", [1, 4, 9, 8])], weights)


def padded_tflite(after: int) -> bytes:
    """A pad of (0, after) rows and columns before a 3x3 convolution of stride 2 without padding."""
    size = (8 + after - 3) // 2 + 1
    weights = RNG.normal(size=(4, 3, 3, 3)).astype("<f4").tobytes()
    tensors = [
        T("x", (1, 8, 8, 3)),
        T("pads", (4, 2), "INT32", int32s(0, 0, 0, after, 0, after, 0, 0)),
        T("p", (1, 8 + after, 8 + after, 3)),
        T("w", (4, 3, 3, 3), data=weights),
        T("b", (4,), data=bytes(16)),
        T("y", (1, size, size, 4)),
    ]
    table = options("Conv2DOptions", padding=1, strideH=2, strideW=2, dilationHFactor=1, dilationWFactor=1)
    ops = [O("PAD", [0, 1], [2], options("PadOptions")), O("CONV_2D", [2, 3, 4], [5], table)]
    return build(Sub(tensors, ops, outputs=[5]))


def test_a_pad_of_zeros_becomes_a_convolutions_own() -> None:
    data = padded_onnx()
    module = load_module(data, "padded.onnx", LoadOptions())
    graph = fold_pads(module.graphs[0], onnx_rewriter.dialect(module))
    assert [(op.type, op.origin, op.attributes.get("pads")) for op in graph.ops] == [("Conv", "y", (1, 1, 2, 1))]
    check_rewrite(module.graphs[0], graph)
    written = onnx_rewriter.serialize(module, graph, [0], {})
    check_written(graph, [0], load_module(written, "w.onnx", LoadOptions()).graphs[0])
    np.testing.assert_allclose(run_onnx(written), run_onnx(data), rtol=1e-5, atol=1e-5)


def test_other_values_and_shared_pads_stay() -> None:
    module = load_module(padded_onnx(1.0), "padded.onnx", LoadOptions())
    dialect = onnx_rewriter.dialect(module)
    assert fold_pads(module.graphs[0], dialect) == module.graphs[0]
    module = load_module(padded_onnx(), "padded.onnx", LoadOptions())
    shared = replace(module.graphs[0], outputs=(*module.graphs[0].outputs, module.graphs[0].ops[0].outputs[0]))
    assert fold_pads(shared, dialect) == shared


def test_tflite_pads_become_same_where_they_are_just_that() -> None:
    data = padded_tflite(1)
    module = load_module(data, "padded.tflite", LoadOptions())
    graph = fold_pads(module.graphs[0], tflite_rewriter.dialect(module))
    assert [(op.type, op.attributes["padding"]) for op in graph.ops] == [("CONV_2D", "SAME")]
    written = tflite_rewriter.serialize(module, graph, [0])
    check_written(graph, [0], load_module(written, "w", LoadOptions()).graphs[0], named=False)
    np.testing.assert_allclose(run_tflite(written), run_tflite(data), rtol=1e-5, atol=1e-5)
    other = load_module(padded_tflite(3), "padded.tflite", LoadOptions())
    assert fold_pads(other.graphs[0], tflite_rewriter.dialect(other)) == other.graphs[0]
