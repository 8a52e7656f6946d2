"""The check of rewritten graphs with loops refuses loops that leave something out or read past their input."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from memsched.check.rewrite import check_rewrite
from memsched.errors import InternalError
from memsched.formats.module import LoadOptions
from memsched.formats.tflite import reader
from memsched.formats.tflite.rewriter import dialect
from memsched.graph.loop import Loop, LoopPart
from memsched.graph.model import Graph
from memsched.regions.rules import Refusal
from memsched.tiling.loop import LoopGroup, plan_loop
from memsched.tiling.loop_rewrite import with_loops
from tests.formats.tflite_builder import MODELS


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
    with pytest.raises(InternalError, match="not computed once each"):
        check_rewrite(_given()[0], replace(_tiled(), ops=tuple(ops)))


def test_tiles_of_different_loops_are_refused() -> None:
    ops = [
        replace(op, loop=replace(op.loop, masked=())) if op.loop is not None and op.loop.tile == 11 else op
        for op in _tiled().ops
    ]
    with pytest.raises(InternalError, match="different loops"):
        check_rewrite(_given()[0], replace(_tiled(), ops=tuple(ops)))


def test_a_tile_of_another_shape_is_refused() -> None:
    tile = next(op.outputs[0] for op in _tiled().ops if op.loop is not None)
    tensors = [
        replace(one, shape=(1, 9, 7, 16)) if number == tile else one for number, one in enumerate(_tiled().tensors)
    ]
    with pytest.raises(InternalError, match="does not make a tile"):
        check_rewrite(_given()[0], replace(_tiled(), tensors=tuple(tensors)))


def test_a_tile_of_another_input_is_refused() -> None:
    graph = _tiled()
    number, tile = next((at, op) for at, op in enumerate(graph.ops) if op.loop is not None and op.loop.tile == 2)
    # Of the same shape, so that nothing else is wrong.
    tensors = (*graph.tensors, replace(graph.tensors[tile.inputs[0]], name="other"))
    maker = next(op for op in graph.ops if tile.inputs[0] in op.outputs)
    other = replace(maker, name="other", outputs=(len(graph.tensors),))
    ops = [replace(op, inputs=other.outputs) if at == number else op for at, op in enumerate(graph.ops)]
    with pytest.raises(InternalError, match="different inputs"):
        check_rewrite(_given()[0], replace(graph, tensors=tensors, ops=(other, *ops)))


def _loop() -> Loop:
    return next(op.loop for op in _given()[1].ops if op.loop is not None)


def test_a_loop_is_taken() -> None:
    check_rewrite(*_given())


def test_tiles_that_leave_rows_out_are_refused() -> None:
    rows, columns = _loop().tiles
    with pytest.raises(InternalError, match="do not cover"):
        check_rewrite(_given()[0], _changed(tiles=(rows[1:], columns)))


def test_a_part_past_the_padded_input_is_refused() -> None:
    loop = _loop()
    part = loop.parts[loop.input]
    wide = LoopPart(part.strides, part.offsets, tuple(size + 40 for size in part.sizes))
    with pytest.raises(InternalError, match="reads past its padded input"):
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
    with pytest.raises(InternalError, match="does not hold what it needs"):
        check_rewrite(_given()[0], replace(_padding_inside(), ops=tuple(ops)))


def test_a_layer_twice_is_refused() -> None:
    steps = _loop().steps
    with pytest.raises(InternalError, match="runs one twice"):
        check_rewrite(_given()[0], _changed(steps=(*steps, steps[-1])))


def test_other_work_is_refused() -> None:
    steps = _loop().steps
    changed = (*steps[:-1], replace(steps[-1], macs=steps[-1].macs + 1))
    with pytest.raises(InternalError, match="multiply-accumulates"):
        check_rewrite(_given()[0], _changed(steps=changed))


def test_an_output_that_nothing_makes_is_refused() -> None:
    loop = _loop()
    with pytest.raises(InternalError, match="does not make"):
        check_rewrite(_given()[0], _changed(names={**loop.names, loop.output: "nothing"}))
