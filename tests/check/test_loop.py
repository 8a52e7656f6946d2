"""The check of rewritten graphs with loops refuses loops that leave something out or read past their input."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from memsched.check.rewrite import check_rewrite
from memsched.formats.module import LoadOptions
from memsched.formats.tflite import reader
from memsched.formats.tflite.rewriter import dialect
from memsched.graph.loop import Loop, LoopPart
from memsched.graph.model import Graph, Op
from memsched.ops.rules import Refusal
from memsched.rewrites.tile.loop import LoopGroup, plan_loop
from memsched.rewrites.tile.loop_rewrite import with_loops
from tests.failures import fails
from tests.formats.tflite_builder import MODELS
from tests.rewrites.tile.small_nets import SmallNet


@cache
def _given() -> tuple[Graph, Graph]:
    """Return the graph of a model, and the same with its first four layers in a loop."""
    module = reader.read((MODELS / "person_detect.tflite").read_bytes(), "person_detect.tflite", LoadOptions())
    words = dialect(module)
    found = plan_loop(module.graphs[0], LoopGroup((0, 1, 2, 3), (1, 2), (6, 8), 23), words)
    assert not isinstance(found, Refusal)
    return module.graphs[0], with_loops(module.graphs[0], [found], words)


def _changed(**changes: object) -> Graph:
    graph = _given()[1]
    ops = [
        replace(op, loop=replace(op.loop, **changes)) if op.loop is not None else op  # type: ignore[arg-type]
        for op in graph.ops
    ]
    return replace(graph, ops=tuple(ops))


@cache
def _tiled() -> Graph:
    """Return the same model with an op for each tile of these layers."""
    module = reader.read((MODELS / "person_detect.tflite").read_bytes(), "person_detect.tflite", LoadOptions())
    words = dialect(module)
    assert words.loop is not None
    words = replace(words, most_joined=10, loop=replace(words.loop, unrolled=True))
    found = plan_loop(module.graphs[0], LoopGroup((0, 1, 2, 3), (1, 2), (7, 9)), words)
    assert not isinstance(found, Refusal)
    return with_loops(module.graphs[0], [found], words)


def test_tiles_by_an_op_each_are_taken() -> None:
    tiles = [op for op in _tiled().ops if op.loop is not None]
    assert len(tiles) == 12
    assert {op.type for op in tiles} == {"IF"}
    check_rewrite(_given()[0], _tiled())


def test_a_tile_that_is_computed_twice_is_refused() -> None:
    ops = [
        replace(op, loop=replace(op.loop, tile=3)) if op.loop is not None and op.loop.tile == 4 else op
        for op in _tiled().ops
    ]
    with fails("tile-count"):
        check_rewrite(_given()[0], replace(_tiled(), ops=tuple(ops)))


def test_tiles_of_different_loops_are_refused() -> None:
    ops = [
        replace(op, loop=replace(op.loop, masked=())) if op.loop is not None and op.loop.tile == 11 else op
        for op in _tiled().ops
    ]
    with fails("loops-differ"):
        check_rewrite(_given()[0], replace(_tiled(), ops=tuple(ops)))


def test_a_tile_of_another_shape_is_refused() -> None:
    tile = next(op.outputs[0] for op in _tiled().ops if op.loop is not None)
    tensors = [
        replace(one, shape=(1, 9, 7, 16)) if number == tile else one for number, one in enumerate(_tiled().tensors)
    ]
    with fails("tile-shape"):
        check_rewrite(_given()[0], replace(_tiled(), tensors=tuple(tensors)))


def test_a_tile_of_another_input_is_refused() -> None:
    graph = _tiled()
    number, tile = next((at, op) for at, op in enumerate(graph.ops) if op.loop is not None and op.loop.tile == 2)
    # Of the same shape, so that nothing else is wrong.
    tensors = (*graph.tensors, replace(graph.tensors[tile.inputs[0]], name="other"))
    maker = next(op for op in graph.ops if tile.inputs[0] in op.outputs)
    other = replace(maker, name="other", outputs=(len(graph.tensors),))
    ops = [replace(op, inputs=other.outputs) if at == number else op for at, op in enumerate(graph.ops)]
    with fails("loop-inputs"):
        check_rewrite(_given()[0], replace(graph, tensors=tensors, ops=(other, *ops)))


def _loop() -> Loop:
    return next(op.loop for op in _given()[1].ops if op.loop is not None)


def test_a_loop_is_taken() -> None:
    check_rewrite(*_given())


def test_tiles_that_leave_rows_out_are_refused() -> None:
    rows, columns = _loop().tiles
    with fails("not-covered"):
        check_rewrite(_given()[0], _changed(tiles=(rows[1:], columns)))


def test_a_part_past_the_padded_input_is_refused() -> None:
    loop = _loop()
    part = loop.parts[loop.input]
    wide = LoopPart(part.strides, part.offsets, tuple(size + 40 for size in part.sizes))
    with fails("tile-outside"):
        check_rewrite(_given()[0], _changed(parts={**loop.parts, loop.input: wide}))


@cache
def _padding_inside() -> Graph:
    """Return the same model with the layers in a loop whose body pads what it takes of the input."""
    module = reader.read((MODELS / "person_detect.tflite").read_bytes(), "person_detect.tflite", LoadOptions())
    words = dialect(module)
    found = plan_loop(module.graphs[0], LoopGroup((0, 1, 2, 3), (1, 2), (6, 8), 23, pads_inside=True), words)
    assert not isinstance(found, Refusal)
    return with_loops(module.graphs[0], [found], words)


def test_padding_in_the_body_is_taken() -> None:
    loop = next(op.loop for op in _padding_inside().ops if op.loop is not None)
    assert loop.inner_pads == _loop().outside(_loop().input)
    assert loop.pads == ((23, 0), (0, 0))
    check_rewrite(_given()[0], _padding_inside())


@pytest.mark.parametrize("pads", [((0, 9), (9, 9)), ((9, 9), (9, 0))])
def test_too_little_padding_in_the_body_is_refused(pads: tuple[tuple[int, int], ...]) -> None:
    ops = [
        replace(op, loop=replace(op.loop, inner_pads=pads)) if op.loop is not None else op
        for op in _padding_inside().ops
    ]
    with fails("window"):
        check_rewrite(_given()[0], replace(_padding_inside(), ops=tuple(ops)))


def test_a_layer_twice_is_refused() -> None:
    steps = _loop().steps
    with fails("loop-ops"):
        check_rewrite(_given()[0], _changed(steps=(*steps, steps[-1])))


def test_other_work_is_refused() -> None:
    steps = _loop().steps
    changed = (*steps[:-1], replace(steps[-1], macs=steps[-1].macs + 1))
    with fails("work-differs"):
        check_rewrite(_given()[0], _changed(steps=changed))


def test_an_output_that_nothing_makes_is_refused() -> None:
    loop = _loop()
    with fails("not-made"):
        check_rewrite(_given()[0], _changed(names={**loop.names, loop.output: "nothing"}))


# Loops that read and make several tensors ---------------------------------------------------------------------------


@cache
def _several(*, unrolled: bool = False) -> tuple[Graph, Graph]:
    """Return a graph, and the same with a loop that reads three tensors; where it is a WHILE, it makes three, too."""
    net = SmallNet()
    x = net.value(1, 8, 9, 4)
    before = [net.conv(x, 1) for _ in range(3)]
    inner = net.conv(before[0])
    further = net.add(inner, before[1])
    last = net.add(further, before[2])
    module = net.module([x], [net.relu(last) if unrolled else net.add(net.add(last, inner), further)])
    words = dialect(module)
    assert words.loop is not None
    words = replace(words, most_joined=10, loop=replace(words.loop, unrolled=unrolled))
    found = plan_loop(module.graphs[0], LoopGroup((3, 4, 5), (1, 2), (3, 3)), words)
    assert isinstance(found, Loop)
    assert len(found.side_inputs) == 2
    assert len(found.side_outputs) == (0 if unrolled else 2)
    return module.graphs[0], with_loops(module.graphs[0], [found], words)


def _of_several(op: dict[str, object] | None = None, **changes: object) -> Graph:
    """Return the graph with the loop, with changes to its op and to the loop."""
    graph = _several()[1]
    ops = [
        replace(one, **(op or {}), loop=replace(one.loop, **changes)) if one.loop is not None else one  # type: ignore[arg-type]
        for one in graph.ops
    ]
    return replace(graph, ops=tuple(ops))


def _loop_of_several() -> tuple[Op, Loop]:
    return next((op, op.loop) for op in _several()[1].ops if op.loop is not None)


@pytest.mark.parametrize("unrolled", [False, True])
def test_loops_over_several_tensors_are_taken(unrolled: bool) -> None:
    check_rewrite(*_several(unrolled=unrolled))


def test_a_second_output_that_nothing_makes_is_refused() -> None:
    _, loop = _loop_of_several()
    with fails("not-made"):
        check_rewrite(_several()[0], _of_several(names={**loop.names, loop.side_outputs[1]: "nothing"}))


def test_outputs_in_another_order_are_refused() -> None:
    op, _ = _loop_of_several()
    count, first, second, third, *left = op.outputs
    with fails("not-made"):
        check_rewrite(_several()[0], _of_several({"outputs": (count, first, third, second, *left)}))


def test_a_second_output_that_no_op_of_the_body_makes_is_refused() -> None:
    _, loop = _loop_of_several()
    steps = loop.steps[:1] + loop.steps[2:]
    kept = tuple(replace(step, reads=step.reads[1:]) if step is steps[-1] else step for step in steps)
    with fails("loop-output-unmade"):
        check_rewrite(_several()[0], _of_several(steps=kept))


@pytest.mark.parametrize("change", ["offsets", "sizes"])
def test_tiles_that_leave_out_some_of_a_second_output_are_refused(change: str) -> None:
    _, loop = _loop_of_several()
    tensor = loop.side_outputs[1]
    part = replace(loop.parts[tensor], **{change: (1, 1)})
    with fails("not-covered"):
        check_rewrite(_several()[0], _of_several(parts={**loop.parts, tensor: part}))


def test_a_part_past_a_second_input_is_refused() -> None:
    _, loop = _loop_of_several()
    for tensor in loop.side_inputs:
        for offsets in ((-1, 0), (0, 1)):
            part = replace(loop.parts[tensor], offsets=offsets)
            with fails("tile-outside"):
                check_rewrite(_several()[0], _of_several(parts={**loop.parts, tensor: part}))


def test_other_tensors_than_a_loop_reads_are_refused() -> None:
    op, loop = _loop_of_several()
    *others, first, second = op.inputs
    for inputs in ((*others, second, first), (*others, first, first), (*others[1:], first, second)):
        with fails("side-inputs"):
            check_rewrite(_several()[0], _of_several({"inputs": inputs}))
    with fails("read-unmade"):
        check_rewrite(_several()[0], _of_several(side_inputs=loop.side_inputs[1:]))


def test_a_tile_of_another_second_input_is_refused() -> None:
    before, graph = _several(unrolled=True)
    ops = [replace(op, inputs=(*op.inputs[:-1], op.inputs[-2])) if op.loop is not None else op for op in graph.ops]
    with fails("side-inputs"):
        check_rewrite(before, replace(graph, ops=tuple(ops)))
