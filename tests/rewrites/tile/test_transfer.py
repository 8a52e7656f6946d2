"""Shape transfer: chains worked by hand, and random branching groups computed piece by piece in ONNX Runtime."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from memsched.formats.module import LoadOptions
from memsched.formats.onnx import reader
from memsched.graph.model import Graph, Region
from memsched.ops.rules import Refusal
from tests.failures import check_refusal
from tests.rewrites.tile import transfer
from tests.rewrites.tile.graphs import chain, conv, region
from tests.rewrites.tile.onnx_layer import Layer, whole_numbers
from tests.rewrites.tile.onnx_pieces import Model, piece_of
from tests.rewrites.tile.transfer import Halo, PieceTrace, TransferGroup, TransferPieces, cuts, tile, trace

Array = Any
HALOS: tuple[Halo, ...] = ("recompute", "keep")


def rows(low: int, high: int) -> Region:
    return region((0, 1), (0, 1), (low, high), (0, 1))


def tiled(
    graph: Graph, ops: Sequence[int], pieces: Sequence[Mapping[int, Region]], halo: Halo = "recompute"
) -> TransferPieces:
    found = tile(graph, ops, pieces, halo)
    assert isinstance(found, TransferPieces), found
    return found


# By hand ----------------------------------------------------------------------------------------------------------

SHAPE = (1, 1, 16, 1)
TWO = chain(SHAPE, [("Conv", [0], SHAPE, conv()), ("Conv", [1], SHAPE, conv())])
RESIDUAL = chain(
    SHAPE,
    [
        ("Conv", [0], SHAPE, conv()),
        ("Conv", [1], SHAPE, conv(5, 2)),
        ("Relu", [2], SHAPE, {}),
        ("Add", [3, 1], SHAPE, {}),
        ("MaxPool", [4], (1, 1, 8, 1), {"kernel_shape": (2, 1), "strides": (2, 1)}),
    ],
)


def test_halos_grow_from_the_last_op_to_the_first() -> None:
    found = trace(TWO, [1, 0], {2: rows(4, 8)})
    assert isinstance(found, PieceTrace)
    assert found.regions == {0: rows(2, 10), 1: rows(3, 9), 2: rows(4, 8)}
    assert found.computed == {1: rows(3, 9), 2: rows(4, 8)}
    assert found.kept == {}
    assert found.macs == 6 + 4


def test_a_tensor_with_several_readers_is_needed_in_the_box_of_their_regions() -> None:
    found = trace(RESIDUAL, range(5), {5: rows(2, 5)})
    assert isinstance(found, PieceTrace)
    assert found.regions == {
        0: rows(1, 13),
        1: rows(2, 12),
        2: rows(4, 10),
        3: rows(4, 10),
        4: rows(4, 10),
        5: rows(2, 5),
    }


def test_recomputed_halos_cost_multiplications() -> None:
    found = tiled(TWO, [0, 1], [{2: part} for part in cuts(SHAPE, 2, [8])])
    assert [piece.regions[1] for piece in found.pieces] == [rows(0, 9), rows(7, 16)]
    assert found.extra_macs == {0: 2, 1: 0}


def test_kept_halos_cost_none() -> None:
    found = tiled(TWO, [0, 1], [{2: part} for part in cuts(SHAPE, 2, [4, 8])], "keep")
    assert found.extra_macs == {0: 0, 1: 0}
    first, second, third = found.pieces
    assert first.kept == {}
    assert first.regions == {0: rows(0, 6), 1: rows(0, 5), 2: rows(0, 4)}
    assert second.computed == {1: rows(5, 9), 2: rows(4, 8)}
    # Of tensor 1 rows 3 and 4 are there already; rows 5 to 8 of it need rows 4 to 9 of the input.
    assert second.regions == {0: rows(4, 10), 1: rows(3, 9), 2: rows(4, 8)}
    assert second.kept == {0: rows(4, 6), 1: rows(3, 5)}
    assert third.computed == {1: rows(9, 16), 2: rows(8, 16)}


def test_pieces_may_run_backwards_and_leave_rows_out() -> None:
    parts = cuts(SHAPE, 2, [4, 8])
    found = tiled(TWO, [0, 1], [{2: part} for part in reversed(parts)], "keep")
    assert found.extra_macs == {0: 0, 1: 0}
    assert found.pieces[1].computed[1] == rows(3, 7)
    apart = tiled(TWO, [0, 1], [{2: rows(0, 2)}, {2: rows(9, 11)}], "keep")
    assert apart.pieces[1].kept == {}
    assert apart.pieces[1].computed == {1: rows(8, 12), 2: rows(9, 11)}


def test_a_group_knows_its_inputs_and_outputs() -> None:
    assert (TransferGroup(RESIDUAL, [1, 2, 3]).inputs, TransferGroup(RESIDUAL, [1, 2, 3]).outputs) == ((1,), (4,))
    assert (TransferGroup(RESIDUAL, [0, 1]).inputs, TransferGroup(RESIDUAL, [0, 1]).outputs) == ((0,), (1, 2))


def test_several_outputs_are_traced_together() -> None:
    found = trace(RESIDUAL, [0, 1], {1: rows(0, 4), 2: rows(0, 4)})
    assert isinstance(found, PieceTrace)
    assert found.regions == {0: rows(0, 7), 1: rows(0, 6), 2: rows(0, 4)}


def test_choices_say_where_a_group_can_be_cut_and_why_not() -> None:
    shapes = [(1, 4, 4, 4), (1, 1, 8, 8), (1, 1, 8, 8), (1, 1, 8, 8)]
    steps: list[Any] = [
        ("DepthToSpace", [0], shapes[1], {"blocksize": 2}),
        ("Relu", [1], shapes[2], {}),
        ("Softmax", [2], shapes[3], {"axis": 3}),
    ]
    choices = transfer.axes(chain(shapes[0], steps), range(3), 3)
    assert [choice.axis for choice in choices] == [0, 1, 2, 3]
    batch, _, height, width = choices
    assert (height.positions, height.natural, height.refusal) == (tuple(range(1, 8)), (2, 4, 6), None)
    check_refusal(batch.refusal, "refused", "axis 0 ", " 1")
    assert width.positions == ()
    check_refusal(width.refusal, "fixed-axis", "'op2' (Softmax)", "axis 3")
    assert TransferGroup(chain(shapes[0], steps), range(3)).choices(3, [4, 5, 99])[2].positions == (4, 5)


def test_an_op_without_a_rule_refuses_the_group() -> None:
    graph = chain((4,), [("Relu", [0], (4,), {}), ("NonZero", [1], (4,), {})])
    found = tile(graph, [0, 1], [{2: region((0, 2))}])
    check_refusal(found, "no-rule", "'op1' (NonZero)")
    assert isinstance(trace(graph, [0, 1], {2: region((0, 2))}), Refusal)


# In ONNX Runtime --------------------------------------------------------------------------------------------------


def random_group(r: random.Random) -> tuple[Model, list[Layer]]:
    """A DAG over one input: tensor i + 1 is made by layer i, whose inputs name the tensors that it reads."""
    channels = r.randint(1, 3)
    shape = (1, channels, r.randint(9, 14), r.randint(5, 8))
    model = Model(19)
    layers: list[Layer] = []
    same = [0]
    for _ in range(r.randint(3, 7)):
        kind = r.choice(["Conv", "Conv", "Depthwise", "MaxPool", "Relu", "Add", "Concat"])
        read = [r.choice(same[-3:])] if kind not in {"Add", "Concat"} else [same[-1], r.choice(same)]
        layer = Layer(kind)
        if kind in {"Conv", "Depthwise"}:
            kernel, dilation = r.choice([(1, 1), (3, 1), (3, 1), (3, 2), (5, 1)])
            groups = channels if kind == "Depthwise" else 1
            layer = Layer("Conv", attributes={"group": groups, "dilations": [dilation] * 2})
            layer.attributes["pads"] = [(kernel - 1) * dilation // 2] * 4
            weights = whole_numbers(r, (channels, channels // groups, kernel, kernel), -1, 1)
            add(model, layers, layer, read, [weights])
        elif kind == "MaxPool":
            layer.attributes.update(kernel_shape=[3, 3], pads=[1, 1, 1, 1])
            add(model, layers, layer, read)
        elif kind == "Concat":
            layer.attributes["axis"] = 1
            add(model, layers, layer, read)
            add(model, layers, Layer("Conv"), [len(layers)], [whole_numbers(r, (channels, 2 * channels, 1, 1), -1, 1)])
        else:
            add(model, layers, layer, read)
        same.append(len(layers))
    last = r.choice(["Conv", "DepthToSpace", "Resize", "Relu"])
    if last == "Conv":
        weights = whole_numbers(r, (4, channels, 3, 3), -1, 1)
        stride = {"strides": [2, 1], "pads": [r.randint(0, 2), 1, r.randint(0, 2), 1]}
        add(model, layers, Layer("Conv", attributes=stride), [same[-1]], [weights])
        add(model, layers, Layer("DepthToSpace", attributes={"blocksize": 2}), [len(layers)])
    elif last == "Resize":
        layer = Layer("Resize", attributes={"mode": "linear"})
        add(model, layers, layer, [same[-1]], [np.array([1, 1, 2, 2], np.float32)])
    else:
        add(model, layers, Layer("Relu"), [same[-1]])
    model.give("t0", whole_numbers(r, shape, -2, 2))
    return model, layers


def add(model: Model, layers: list[Layer], layer: Layer, read: Sequence[int], constants: Sequence[Array] = ()) -> None:
    number = len(layers)
    layer.inputs = [f"t{tensor}" for tensor in read] + ([""] if layer.kind == "Resize" else [])
    for place, array in enumerate(constants):
        layer.inputs.append(f"c{number}_{place}")
        layer.constants[layer.inputs[-1]] = array
    layers.append(layer)
    model.link(layer, f"t{number + 1}")


@pytest.mark.parametrize("seed", range(30))
def test_random_groups_computed_in_pieces(seed: int) -> None:
    r = random.Random(seed)
    model, layers = random_group(r)
    values = model.run() | model.feeds
    graph = reader.read(model.bytes(), "group.onnx", LoadOptions()).graphs[0]
    tensor_of = {tensor.name: index for index, tensor in enumerate(graph.tensors)}
    last = tensor_of[f"t{len(layers)}"]
    shape = values[f"t{len(layers)}"].shape
    first = r.randrange(2)
    group = TransferGroup(graph, range(first, len(layers)))
    axis = r.choice([2, 2, 2, 3])
    if any(op.type == "MaxPool" for op in graph.ops):
        axis = 2  # parts of rows lose NaN otherwise than the whole
    ends = sorted(r.sample(range(1, shape[axis]), min(shape[axis] - 1, r.randint(1, 3))))
    # Other outputs of the group are whole in every piece: what is not asked for is not computed.
    pieces = [{last: part} for part in cuts(shape, axis, ends)]
    extra: dict[str, int] = {}
    for halo in HALOS:
        found = group.tile(pieces, halo)
        assert isinstance(found, TransferPieces), found
        before: dict[str, Array] = {}
        for piece, wanted in zip(found.pieces, pieces, strict=True):
            before = execute(group, layers, values, piece, before)
            place = tuple(slice(*pair) for pair in wanted[last].ranges)
            assert np.array_equal(before[f"t{len(layers)}"][place], values[f"t{len(layers)}"][place])
        extra[halo] = sum(found.extra_macs.values())
    assert extra["keep"] <= extra["recompute"]


def execute(
    group: TransferGroup,
    layers: Sequence[Layer],
    values: Mapping[str, Array],
    piece: PieceTrace,
    before: Mapping[str, Array],
) -> dict[str, Array]:
    """Compute a piece on tensors that hold nothing but what it says is there; NaN is everywhere else."""
    graph = group.graph
    held: dict[str, Array] = {}
    for tensor, needed in piece.regions.items():
        name = graph.tensors[tensor].name
        held[name] = np.full(values[name].shape, np.nan, np.float32)
        if tensor in group.inputs:
            place = tuple(slice(*pair) for pair in needed.ranges)
            held[name][place] = values[name][place]
        elif tensor in piece.kept:
            place = tuple(slice(*pair) for pair in piece.kept[tensor].ranges)
            held[name][place] = before[name][place]
    for op, needed_by in piece.needed.items():
        tensor = graph.ops[op].outputs[0]
        name, layer, part = graph.tensors[tensor].name, layers[op], piece.computed[tensor]
        data = {read: held[read] for read in layer.inputs if read in held}
        whole = Layer(layer.kind, list(layer.inputs), layer.attributes, data, layer.constants)
        small = piece_of(whole, graph.ops[op], needed_by, part)
        assert all(not np.isnan(array).any() for array in small.data.values()), "a piece reads what is not there"
        one = Model(19)
        one.add(small, "p_")
        result = one.run()["p_y"]
        ends = zip(result.shape, needed_by.crop, strict=True)
        place = tuple(slice(*pair) for pair in part.ranges)
        held[name][place] = result[tuple(slice(low, size - high) for size, (low, high) in ends)]
    return held
