"""Layers in pieces through TFLite's RESHAPE, which is told the shape of what it makes: pieces have their own."""

from __future__ import annotations

import numpy as np
import pytest

import memsched
from memsched.plan.rewrite import dialect_of
from memsched.rewrites.tile.pieces import Pieces, TilingGroup, plan_pieces
from memsched.targets.load import load_target
from tests.failures import check_refusal
from tests.formats.tflite_builder import O, Sub, T, build, int32s, options

SIDE = 48


def network(*, stated: bool, dead: bool = False) -> bytes:
    """Return a network that reshapes a map of features to rows of channels and back.

    Args:
        stated: By a constant input; otherwise in the options.
        dead: Nothing reads its second convolution's output, instead of what reshapes give.
    """
    generator = np.random.default_rng(5)
    tensors = [T("x", (1, SIDE, SIDE, 3))]
    ops: list[O] = []

    def add(kind: str, reads: list[int], shape: tuple[int, ...], table: object = None) -> int:
        tensors.append(T(f"t{len(tensors)}", shape))
        ops.append(O(kind, reads, [len(tensors) - 1], table))
        return len(tensors) - 1

    def constant(shape: tuple[int, ...]) -> int:
        tensors.append(T(f"t{len(tensors)}", shape, data=generator.standard_normal(shape).astype("f").tobytes()))
        return len(tensors) - 1

    def convolution(read: int, given: int, made: int, stride: int) -> int:
        side = SIDE // stride
        reads = [read, constant((made, 3, 3, given)), constant((made,))]
        table = options("Conv2DOptions", padding=0, strideH=stride, strideW=stride)
        return add("CONV_2D", reads, (1, side, side, made), table)

    def reshape(read: int, shape: tuple[int, ...]) -> int:
        reads = [read]
        if stated:
            tensors.append(T(f"t{len(tensors)}", (len(shape),), "INT32", int32s(*shape)))
            reads.append(len(tensors) - 1)
        return add("RESHAPE", reads, shape, options("ReshapeOptions", newShape=list(shape)))

    wide = convolution(0, 3, 16, 1)
    rows = add("RELU", [reshape(wide, (1, SIDE * SIDE, 16))], (1, SIDE * SIDE, 16))
    image = reshape(rows, (1, SIDE, SIDE, 16))
    last = convolution(image, 16, 4, 4)
    if dead:
        convolution(image, 16, 9, 2)
    return build(Sub(tensors, ops, [0], [last]))


@pytest.mark.parametrize("target", ["litert-reference", "tflm"])
@pytest.mark.parametrize("stated", [True, False])
def test_pieces_of_a_reshape_have_a_shape_of_their_own(target: str, stated: bool) -> None:
    """LiteRT used to refuse them: RESHAPE num_input_elements != num_output_elements (2304 != 2295), for example."""
    result = memsched.optimize(network(stated=stated), target=target, level=2, time_limit=None, effort=0.15)
    tiling, verification = result.report["sections"]["tile"], result.report["sections"]["verification"]
    kinds = {op.name: op.type for op in memsched.load(network(stated=stated)).graphs[0].ops}
    assert "RESHAPE" in {kinds[name] for group in tiling["groups"] for name in group["ops"]}
    assert not any(one["found"] for one in tiling["refusals"])
    assert verification["outputs_equal"]


def test_what_nothing_reads_may_be_in_pieces_too() -> None:
    """What joins its pieces is read by nobody, as the layer was by nobody before."""
    report = memsched.optimize(
        network(stated=True, dead=True),
        target="litert-reference",
        level=2,
        max_extra_macs=200,
        time_limit=None,
        effort=0.15,
    ).report
    assert report["sections"]["tile"]["applied"]
    assert not any(one["found"] for one in report["sections"]["tile"]["refusals"])


def test_a_squeeze_that_is_not_told_what_to_drop_is_not_cut_into_single_rows() -> None:
    """It would drop the rows' axis as well: LiteRT made 32 numbers of what is 8 x 4."""

    def planned(dims: list[int], count: int) -> object:
        tensors = [T("x", (1, 8, 4)), T("a", (1, 8, 4)), T("b", (8, 4))]
        ops = [O("EXP", [0], [1]), O("SQUEEZE", [1], [2], options("SqueezeOptions", squeezeDims=dims))]
        module = memsched.load(build(Sub(tensors, ops, [0], [2])))
        group = TilingGroup((0, 1), (0,), (count,))
        return plan_pieces(module.graphs[0], group, dialect_of(module, load_target("litert")))

    assert isinstance(planned([0], 8), Pieces)
    assert isinstance(planned([], 4), Pieces)
    check_refusal(planned([], 8), "drops-axis", "(SQUEEZE)")


def test_a_tensor_without_the_axis_is_not_kept_but_computed_again() -> None:
    tensors = [T("x", (8, 6)), T("a", (8, 6)), T("b", (1, 8, 6)), T("c", (1, 8, 6))]
    ops = [O("EXP", [0], [1]), O("EXPAND_DIMS", [1, 4], [2]), O("EXP", [2], [3])]
    module = memsched.load(build(Sub([*tensors, T("axis", (), "INT32", int32s(0))], ops, [0], [3])))
    group = TilingGroup((0, 1, 2), (2,), (3,), kept=(1,))
    pieces = plan_pieces(module.graphs[0], group, dialect_of(module, load_target("litert")))
    assert isinstance(pieces, Pieces)
    assert [piece.kept for piece in pieces.pieces] == [{}, {}, {}]
