"""Sequences with repetitions as graphs: who reads which copy, what is left out, and files that run."""

from __future__ import annotations

from dataclasses import replace

import onnx
from onnx import helper

from memsched.check.rewrite import check_rewrite, check_written
from memsched.formats.files import load_module
from memsched.formats.module import LoadOptions
from memsched.formats.onnx import rewriter as onnx_rewriter
from memsched.formats.tflite import rewriter as tflite_rewriter
from memsched.graph.effects import UNKNOWN, Effects
from memsched.graph.model import Graph, Op, Tensor
from memsched.rewrites.recompute.rewrite import rematerialise, repeatable
from memsched.runtimes.litert.verification import verify
from memsched.runtimes.onnxruntime.verification import compare_models
from tests.failures import fails
from tests.formats.tflite_builder import O, Sub, T, build, options
from tests.rewrites.recompute.tiny_graphs import PLAIN
from tests.small_models import floats, model_of


def example() -> Graph:
    """Return the patent's Figure 1: 103 -> 105 -> 107 -> 109, 105 -> 109, 103 -> 111, 109 -> 111."""
    names = ["103", "105", "107", "109", "111"]
    tensors = tuple(Tensor(f"t{name}", 1, (1,), "int8") for name in names)
    reads = {0: (), 1: (0,), 2: (1,), 3: (2, 1), 4: (3, 0)}
    ops = tuple(Op(name, "F", reads[i], (i,), positions=tuple(range(len(reads[i])))) for i, name in enumerate(names))
    return Graph("figure 1", tensors, ops, (), (4,))


def test_each_reader_takes_the_value_computed_last() -> None:
    found = rematerialise(example(), [0, 1, 2, 3, 0, 4], PLAIN)
    graph = found.graph
    assert [op.name for op in graph.ops] == ["103", "105", "107", "109", "103#again1", "111"]
    copy = graph.ops[4]
    assert (copy.origin, graph.ops[5].inputs) == ("103", (3, copy.outputs[0]))
    assert (found.extra_macs, found.extra_bytes) == (0, 1)
    check_rewrite(example(), graph)


def test_what_nobody_reads_again_is_left_out() -> None:
    assert rematerialise(example(), [0, 1, 0, 2, 1, 1, 3, 4, 2], PLAIN).sequence == (0, 1, 0, 2, 1, 3, 4)
    assert rematerialise(example(), [0, 1, 2, 3, 4], PLAIN).graph == example()


def test_a_first_execution_that_nobody_reads_is_left_out() -> None:
    found = rematerialise(example(), [0, 1, 2, 1, 0, 1, 3, 0, 4], PLAIN)
    assert found.sequence == (0, 1, 2, 0, 1, 3, 0, 4)
    # 103 and 105 are first read when they were computed twice: the second execution is the first that is left.
    found = rematerialise(example(), [0, 1, 0, 1, 2, 3, 4], PLAIN)
    assert (found.graph, found.extra_macs, found.extra_bytes) == (example(), 0, 0)


def test_a_rewritten_graph_computes_nothing_for_nobody() -> None:
    graph = example()
    copy = replace(graph.ops[1], name="105#again1", outputs=(5,), origin="105")
    unread = replace(graph, tensors=(*graph.tensors, replace(graph.tensors[1], name="t105#again1")))
    with fails("not-read", "'105#again1'"):
        check_rewrite(graph, replace(unread, ops=(*graph.ops, copy)))
    # What the model itself computes for nobody stays.
    aside = replace(unread, ops=(*graph.ops, replace(copy, name="aside", origin=None)))
    check_rewrite(aside, aside)


def test_copies_share_bytes_as_their_originals_do() -> None:
    graph = example()
    ops = (graph.ops[0], replace(graph.ops[1], views=((1, 0),)), *graph.ops[2:4])
    shared = replace(graph, ops=(*ops, replace(graph.ops[4], in_place=((4, 0),))))
    found = rematerialise(shared, [0, 1, 2, 0, 1, 3, 0, 4], PLAIN).graph
    again = {op.name: op for op in found.ops}
    first, second = again["103#again1"].outputs[0], again["105#again1"].outputs[0]
    assert again["105"].views == ((1, 0),)
    assert again["105#again1"].views == ((second, first),)
    assert again["111"].in_place == ((4, again["103#again2"].outputs[0]),)


def test_wrong_sequences_are_refused() -> None:
    with fails("order"):
        rematerialise(example(), [1, 0, 2, 3, 4], PLAIN)
    with fails("op-missing"):
        rematerialise(example(), [0, 1, 2, 3], PLAIN)


def test_what_may_not_be_repeated() -> None:
    graph = example()
    assert repeatable(graph) == (True, True, True, True, False)  # the graph's output is made once
    for op in (
        replace(graph.ops[1], effects=Effects(random=True)),
        replace(graph.ops[1], effects=Effects(stateful=True)),
        replace(graph.ops[1], effects=Effects(captures=True)),
        replace(graph.ops[1], effects=UNKNOWN),
    ):
        assert not repeatable(replace(graph, ops=(graph.ops[0], op, *graph.ops[2:])))[1]
    assert repeatable(replace(graph, dependencies=((0, 2),)))[:3] == (False, True, False)
    assert repeatable(replace(graph, variables=(1,)))[1:4] == (False, False, False)


def test_onnx_files_with_copies_are_bit_equal() -> None:
    nodes = [
        helper.make_node("Exp", ["x"], ["a"], "a"),
        helper.make_node("Neg", ["a"], ["b"], "b"),
        helper.make_node("Sin", ["b"], ["c"], "c"),
        helper.make_node("Add", ["c", "a"], ["y"], "y"),
    ]
    data = model_of(nodes, [floats("x", [2, 3])], [floats("y", [2, 3])])
    module = load_module(data, "given.onnx", LoadOptions())
    graph = rematerialise(module.graphs[0], [0, 1, 2, 0, 3], onnx_rewriter.dialect(module)).graph
    written = onnx_rewriter.serialize(module, graph, range(5), {})
    check_written(graph, range(5), load_module(written, "written.onnx", LoadOptions()).graphs[0])
    assert compare_models(data, written).verification.outputs_equal
    assert [node.input[:] for node in onnx.ModelProto.FromString(written).graph.node][-1] == ["c", "a#again1"]


def test_tflite_files_with_copies_are_bit_equal() -> None:
    tensors = [T(name) for name in ("x", "a", "b", "c", "y")]
    ops = [O("EXP", [0], [1]), O("NEG", [1], [2]), O("SIN", [2], [3]), O("ADD", [3, 1], [4], options("AddOptions"))]
    data = build(Sub(tensors, ops, outputs=[4]))
    module = load_module(data, "given.tflite", LoadOptions())
    graph = rematerialise(module.graphs[0], [0, 1, 2, 0, 3], tflite_rewriter.dialect(module)).graph
    written = tflite_rewriter.serialize(module, graph, range(5))
    check_written(graph, range(5), load_module(written, "w", LoadOptions()).graphs[0], named=False)
    assert verify(data, written).outputs_equal
