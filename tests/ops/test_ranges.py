"""Shape deduction: the formulas of "Deep Fusion" and figures, tightness, what is refused and why."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memsched.graph.model import AttributeValue, Graph, Op, Region, Tensor
from memsched.ops.geometry import described
from memsched.ops.ranges import PieceNeeds, WeightSlice, backward, deduce, whole
from memsched.ops.rules import Geometry, Refusal
from memsched.ops.windows import same_padding
from tests.failures import check_refusal
from tests.rewrites.tile.graphs import one, region


def needed(graph: Graph, part: Region) -> PieceNeeds:
    """Return what a part needs, whatever values it gives."""
    geometry = described(graph, 0)
    assert isinstance(geometry, Geometry), geometry
    found = deduce(geometry, graph.ops[0], part)
    assert isinstance(found, PieceNeeds), found
    return found


def check_refused(graph: Graph, part: Region, code: str, *about: str) -> None:
    check_refusal(backward(graph, 0, part), code, *about)


# The paper --------------------------------------------------------------------------------------------------------

FIGURE_5 = one(
    "Conv", [(1, 3, 8, 64)], (1, 16, 3, 31), constant_shape_1=(16, 3, 4, 4), strides=(2, 2), kernel_shape=(4, 4)
)


def test_convolutions_follow_the_formula_of_section_3_1() -> None:
    """[b, e) needs [b * stride, (e - 1) * stride + kernel), within the paper's [b * stride, e * stride + kernel)."""
    for start in range(3):
        for stop in range(start + 1, 4):
            rows = needed(FIGURE_5, region((0, 1), (0, 16), (start, stop), (0, 31))).inputs[0].region
            assert rows == region((0, 1), (0, 3), (2 * start, 2 * (stop - 1) + 4), (0, 64))


def test_figure_5_reuses_the_inputs_memory() -> None:
    """With the output at byte 0 the input begins at 2096: no output element lies behind the first input it needs."""
    start = 0
    for row in range(3):
        for column in range(31):
            part = region((0, 1), (0, 16), (row, row + 1), (column, column + 1))
            read = needed(FIGURE_5, part).inputs[0].region
            assert read is not None
            first = 4 * 3 * (read.ranges[2][0] * 64 + read.ranges[3][0])
            start = max(start, 4 * 16 * (row * 31 + column) - first)
    assert (start, start + 4 * 8 * 64 * 3, 4 * 3 * 31 * 16) == (2096, 8240, 5952)
    assert pytest.approx(0.31, abs=0.01) == 1 - 8240 / (6144 + 5952)


def test_pads_follow_the_formula_of_section_3_1() -> None:
    graph = one("Pad", [(10,)], (15,), pads=(3, 2))
    for start in range(15):
        for stop in range(start + 1, 16):
            low, high = (min(max(end - 3, 0), 10) for end in (start, stop))
            found = backward(graph, 0, region((start, stop)))
            if low == high:
                assert isinstance(found, Refusal)
            else:
                assert isinstance(found, PieceNeeds)
                assert found.inputs[0].region == region((low, high))
                assert found.inputs[0].pads == ((max(0, 3 - start), max(0, stop - 13)),)


@pytest.mark.parametrize("kind", ["BatchNormalization", "Relu", "LOGISTIC"])
def test_elementwise_layers_need_what_they_make(kind: str) -> None:
    graph = one(kind, [(2, 3, 4)], (2, 3, 4))
    part = region((1, 2), (0, 2), (2, 3))
    assert needed(graph, part).inputs[0].region == part


# Windows ----------------------------------------------------------------------------------------------------------


@given(
    st.integers(1, 20), st.integers(1, 5), st.integers(1, 4), st.integers(1, 3), st.integers(0, 4), st.integers(0, 4),
    st.data(),
)  # fmt: skip
def test_a_window_needs_its_elements_and_no_others(
    length: int, kernel: int, stride: int, dilation: int, before: int, after: int, data: st.DataObject
) -> None:
    outputs = (length + before + after - (kernel - 1) * dilation - 1) // stride + 1
    if outputs < 1:
        return
    graph = one(
        "Conv", [(1, 1, length)], (1, 1, outputs), macs=kernel * outputs, constant_shape_1=(1, 1, kernel),
        strides=(stride,), dilations=(dilation,), pads=(before, after),
    )  # fmt: skip
    start = data.draw(st.integers(0, outputs - 1))
    stop = data.draw(st.integers(start + 1, outputs))
    if (start, stop) == (0, outputs):
        return
    read = [i * stride - before + k * dilation for i in range(start, stop) for k in range(kernel)]
    found = backward(graph, 0, region((0, 1), (0, 1), (start, stop)))
    low, high = max(min(read), 0), min(max(read) + 1, length)
    if low >= high:
        assert isinstance(found, Refusal)
        return
    assert isinstance(found, PieceNeeds)
    assert found.inputs[0].region == region((0, 1), (0, 1), (low, high))
    assert found.inputs[0].pads[2] == (low - min(read), max(read) + 1 - high)
    assert found.macs == kernel * (stop - start)


def test_whole_axes_keep_the_operators_padding_and_read_all() -> None:
    graph = one("MaxPool", [(1, 1, 8, 8)], (1, 1, 4, 4), kernel_shape=(3, 3), strides=(2, 2), pads=(1, 1, 0, 0))
    found = needed(graph, region((0, 1), (0, 1), (2, 3), (0, 4))).inputs[0]
    assert found.region == region((0, 1), (0, 1), (3, 6), (0, 8))
    assert found.pads == ((0, 0), (0, 0), (0, 0), (1, 0))


@pytest.mark.parametrize(
    ("upper", "pads"), [(True, ((0, 0), (0, 0), (0, 0), (1, 2))), (False, ((0, 0), (0, 0), (0, 0), (2, 1)))]
)
def test_automatic_padding_is_resolved(upper: bool, pads: tuple[tuple[int, int], ...]) -> None:
    graph = one(
        "Conv", [(1, 1, 9, 8)], (1, 1, 9, 8), constant_shape_1=(1, 1, 1, 4),
        auto_pad="SAME_UPPER" if upper else "SAME_LOWER",
    )  # fmt: skip
    assert needed(graph, region((0, 1), (0, 1), (0, 3), (0, 8))).inputs[0].pads == pads


def test_a_dilated_pool_whose_padding_the_runtime_chooses_stays_whole() -> None:
    part = region((0, 1), (0, 1), (0, 4), (0, 8))
    plain = one("MaxPool", [(1, 1, 8, 8)], (1, 1, 8, 8), auto_pad="SAME_UPPER", dilations=(1, 1), kernel_shape=(3, 3))
    assert needed(plain, part).inputs[0].pads[2] == (1, 0)
    dilated = one("MaxPool", [(1, 1, 8, 8)], (1, 1, 8, 8), auto_pad="SAME_UPPER", dilations=(3, 3), kernel_shape=(3, 3))
    check_refused(dilated, part, "auto-pad", "auto_pad")


def test_same_padding() -> None:
    assert [same_padding(length, 3, 2) for length in (4, 5, 6)] == [(0, 1), (1, 1), (0, 1)]
    assert same_padding(4, 3, 2, upper=False) == (1, 0)
    assert same_padding(7, 1, 3) == (0, 0)
    assert same_padding(10, 3, 1, 2) == (2, 2)


# Channels and constants -------------------------------------------------------------------------------------------


def test_output_channels_take_their_part_of_the_weights() -> None:
    graph = one("Conv", [(1, 6, 4)], (1, 8, 4), macs=8 * 4 * 6, constant_shape_1=(8, 6, 1), constant_shape_2=(8,))
    found = needed(graph, region((0, 1), (2, 5), (0, 4)))
    assert found.inputs[0].region == region((0, 1), (0, 6), (0, 4))
    assert found.weights == (WeightSlice(1, 0, 2, 5), WeightSlice(2, 0, 2, 5))
    assert found.macs == 3 * 4 * 6


@pytest.mark.parametrize(
    ("channels", "read", "groups"), [((0, 4), (0, 2), 1), ((4, 12), (2, 6), 2), ((5, 7), (2, 4), 1)]
)
def test_groups_read_their_own_channels(channels: tuple[int, int], read: tuple[int, int], groups: int) -> None:
    graph = one("Conv", [(1, 6, 4)], (1, 12, 4), constant_shape_1=(12, 2, 1), group=3)
    found = needed(graph, region((0, 1), channels, (0, 4)))
    assert found.inputs[0].region == region((0, 1), read, (0, 4))
    assert found.attributes["group"] == groups
    assert found.weights == (WeightSlice(1, 0, *channels),)


def test_groups_are_not_cut_across() -> None:
    graph = one("Conv", [(1, 6, 4)], (1, 12, 4), constant_shape_1=(12, 2, 1), group=3)
    check_refused(graph, region((0, 1), (2, 6), (0, 4)), "cuts-groups", "[2, 6)", "4")


def test_depthwise_layers_read_the_channels_they_make() -> None:
    graph = one(
        "DEPTHWISE_CONV_2D", [(1, 9, 9, 5)], (1, 9, 9, 5), constant_shape_1=(1, 3, 3, 5), constant_shape_2=(5,),
        padding="SAME", strides=(1, 1), dilations=(1, 1),
    )  # fmt: skip
    found = needed(replace(graph, cut_for="tflm"), region((0, 1), (3, 6), (0, 9), (1, 3)))
    assert found.inputs[0].region == region((0, 1), (2, 7), (0, 9), (1, 3))
    assert found.inputs[0].pads == ((0, 0), (0, 0), (1, 1), (0, 0))
    assert found.weights == (WeightSlice(1, 3, 1, 3), WeightSlice(2, 0, 1, 3))


def test_a_concatenations_part_reads_only_what_it_touches() -> None:
    graph = one("CONCATENATION", [(2, 3), (2, 4), (2, 5)], (2, 12), axis=-1)
    found = needed(graph, region((0, 1), (4, 9)))
    assert [entry.region for entry in found.inputs] == [None, region((0, 1), (1, 4)), region((0, 1), (0, 2))]


def test_operands_of_length_one_are_broadcast() -> None:
    graph = one("Add", [(4, 5), (5,)], (4, 5))
    found = needed(graph, region((1, 2), (3, 5)))
    assert [entry.region for entry in found.inputs] == [region((1, 2), (3, 5)), region((3, 5))]


# Margins ----------------------------------------------------------------------------------------------------------


def test_blocks_are_computed_whole_and_cropped() -> None:
    graph = one("DepthToSpace", [(1, 8, 4, 4)], (1, 2, 8, 8), blocksize=2)
    part = region((0, 1), (0, 2), (3, 6), (2, 4))
    found = needed(graph, part)
    assert found.inputs[0].region == region((0, 1), (0, 8), (1, 3), (1, 2))
    assert found.crop == ((0, 0), (0, 0), (1, 0), (0, 0))
    assert found.computed(part) == region((0, 1), (0, 2), (2, 6), (2, 4))


def test_bilinear_doubling_needs_a_row_on_each_side() -> None:
    graph = one("RESIZE_BILINEAR", [(1, 8, 8, 3)], (1, 16, 16, 3), half_pixel_centers=True, size=(16, 16))
    found = needed(graph, region((0, 1), (4, 8), (0, 16), (0, 3)))
    assert found.inputs[0].region == region((0, 1), (1, 5), (0, 8), (0, 3))
    assert found.crop[1] == (2, 2)


def test_transposed_convolutions_drop_the_ends_of_what_they_compute() -> None:
    graph = one("ConvTranspose", [(1, 2, 8)], (1, 3, 16), macs=8 * 2 * 3 * 4, constant_shape_1=(2, 3, 4), strides=(2,),
                pads=(1, 1), kernel_shape=(4,))  # fmt: skip
    found = needed(graph, region((0, 1), (0, 3), (4, 8)))
    assert found.inputs[0].region == region((0, 1), (0, 2), (1, 5))
    assert found.inputs[0].pads[2] == (3, 3)
    assert found.macs == 4 * 2 * 3 * 4


def test_pieces_of_one_element_keep_their_coordinates() -> None:
    """pytorch_half_pixel puts an output of length 1 at coordinate 0, wherever it was in the whole."""
    graph = one("Resize", [(1, 1, 8, 8)], (1, 1, 4, 8), scales=(1.0, 1.0, 0.5, 1.0), mode="nearest",
                coordinate_transformation_mode="pytorch_half_pixel", nearest_mode="ceil")  # fmt: skip
    for row in range(4):
        part = region((0, 1), (0, 1), (row, row + 1), (0, 8))
        computed = needed(graph, part).computed(part).ranges[2]
        assert computed[1] - computed[0] == 2


MET = [(5, 9), (9, 17), (3, 9), (17, 9), (9, 5), (9, 9), (4, 7), (33, 65)]


@pytest.mark.parametrize(
    ("before", "after", "mode"),
    [(*one, mode) for one in MET for mode in ("linear", "nearest")] + [(5, 7, "nearest"), (4, 10, "nearest")],
)
def test_pieces_between_elements_that_meet_keep_their_coordinates(before: int, after: int, mode: str) -> None:
    """With aligned corners a piece has corners of its own: between them, each element reads where it read before."""
    graph = one("Resize", [(1, 1, before, 2)], (1, 1, after, 2), sizes=(1, 1, after, 2), mode=mode,
                coordinate_transformation_mode="align_corners", nearest_mode="round_prefer_ceil")  # fmt: skip
    step = (after - 1) // math.gcd(before - 1, after - 1)
    for start in range(after):
        for stop in range(start + 1, after + 1):
            part = region((0, 1), (0, 1), (start, stop), (0, 2))
            found = needed(graph, part)
            assert found.inputs[0].region is not None
            first, last = found.inputs[0].region.ranges[2]
            begin, end = found.computed(part).ranges[2]
            # From the last element that meets one before it to the first behind it. Runtimes read the next element
            # for linear weights of 1, too: without it their sums round otherwise.
            further = mode == "linear" and stop < after
            assert (begin, end) == (start // step * step, -(-(stop - 1 + further) // step) * step + 1)
            for index in range(start, stop):
                at = Fraction((before - 1) * index, after - 1)
                if end - begin > 1:
                    assert first + Fraction((last - first - 1) * (index - begin), end - begin - 1) == at
                else:
                    assert first == last - 1 == at
                reads = [math.floor(at), math.ceil(at)] if mode == "linear" else [math.floor(at + Fraction(1, 2))]
                assert all(first <= read < last for read in reads)


def test_nearest_rounds_between_aligned_corners() -> None:
    """Thirds are never halfway."""
    graph = one("RESIZE_NEAREST_NEIGHBOR", [(1, 4, 4, 1)], (1, 10, 4, 1), align_corners=True)
    found = needed(graph, region((0, 1), (1, 4), (0, 4), (0, 1)))
    assert found.inputs[0].region == region((0, 1), (0, 2), (0, 4), (0, 1))


# Refusals ---------------------------------------------------------------------------------------------------------

REFUSED: list[tuple[str, Graph, Region, tuple[str, ...]]] = [
    ("unknown operator", one("NonZero", [(4,)], (4,)), region((0, 2)), ("no-rule", "(NonZero)")),
    ("softmax", one("SOFTMAX", [(2, 4)], (2, 4)), region((0, 2), (0, 2)), ("fixed-axis", "axis 1")),
    (
        "align corners",
        one("RESIZE_BILINEAR", [(1, 4, 4, 1)], (1, 8, 8, 1), align_corners=True),
        region((0, 1), (0, 4), (0, 8), (0, 1)),
        ("fixed-axis", "align_corners"),
    ),
    (
        "align corners of nearest",
        one("RESIZE_NEAREST_NEIGHBOR", [(1, 4, 4, 1)], (1, 8, 8, 1), align_corners=True),
        region((0, 1), (0, 4), (0, 8), (0, 1)),
        ("fixed-axis", "align_corners"),
    ),
    (
        "align corners by scales",
        one(
            "Resize",
            [(1, 1, 5, 5)],
            (1, 1, 9, 5),
            scales=(1.0, 1.0, 1.8, 1.0),
            mode="linear",
            coordinate_transformation_mode="align_corners",
        ),
        region((0, 1), (0, 1), (0, 3), (0, 5)),
        ("fixed-axis", "align_corners"),
    ),
    (
        "align corners of one element",
        one("RESIZE_BILINEAR", [(1, 1, 5, 1)], (1, 9, 5, 1), align_corners=True),
        region((0, 1), (0, 4), (0, 5), (0, 1)),
        ("fixed-axis", "align_corners"),
    ),
    (
        "align corners and centres",
        one("RESIZE_BILINEAR", [(1, 5, 5, 1)], (1, 9, 5, 1), align_corners=True, half_pixel_centers=True),
        region((0, 1), (0, 4), (0, 5), (0, 1)),
        ("fixed-axis", "align_corners"),
    ),
    (
        "linear by three",
        one("Resize", [(1, 1, 4, 4)], (1, 1, 12, 4), scales=(1.0, 1.0, 3.0, 1.0), mode="linear"),
        region((0, 1), (0, 1), (0, 3), (0, 4)),
        ("rounds-otherwise", "3"),
    ),
    (
        "padding in the divisor",
        one("AveragePool", [(1, 1, 8)], (1, 1, 4), kernel_shape=(3,), strides=(2,), ceil_mode=1, count_include_pad=1),
        region((0, 1), (0, 1), (1, 4)),
        ("divisor",),
    ),
    (
        "padding of a dilated pool in ceil mode",
        one(
            "MaxPool", [(1, 1, 8, 2)], (1, 1, 3, 2), kernel_shape=(2, 1), strides=(3, 1), dilations=(3, 1), ceil_mode=1
        ),
        region((0, 1), (0, 1), (1, 3), (0, 2)),
        ("much-padding", "2"),
    ),
    (
        "ranges of whole tensors",
        one(
            "CONV_2D",
            [(1, 4, 4, 1)],
            (1, 4, 4, 1),
            constant_shape_1=(1, 1, 1, 1),
            padding="SAME",
            hybrid=True,
            strides=(1, 1),
        ),
        region((0, 1), (0, 2), (0, 4), (0, 1)),
        ("whole-range",),
    ),
    ("padding alone", one("Pad", [(4,)], (9,), pads=(5, 0)), region((0, 5)), ("padding-alone",)),
    ("unknown pads", one("Pad", [(4,)], (9,)), region((0, 5)), ("not-constant",)),
    (
        "computed scales",
        one("Resize", [(1, 1, 4, 4), (4,)], (1, 1, 8, 8)),
        region((0, 1), (0, 1), (0, 3), (0, 8)),
        ("run-time-input", "input 1"),
    ),
    ("outside", one("Relu", [(4,)], (4,)), region((2, 5)), ("bad-region", "[2, 5)", "axis 0", "4")),
    ("empty", one("Relu", [(4,)], (4,)), region((2, 2)), ("bad-region", "[2, 2)")),
    ("another rank", one("Relu", [(4,)], (4,)), region((0, 1), (0, 1)), ("bad-region", "2 axes")),
    ("reshaped inside", one("Reshape", [(2, 12)], (2, 3, 4)), region((0, 2), (0, 3), (0, 2)), ("fixed-axis", "axis 2")),
    ("reshaped across", one("Reshape", [(4, 6)], (6, 4)), region((0, 3), (0, 4)), ("fixed-axis", "axis 0")),
    (
        "statistics",
        one("BatchNormalization", [(2, 3)], (2, 3), training_mode=1),
        region((0, 1), (0, 3)),
        ("whole-range",),
    ),
    (
        "another length",
        one("Conv", [(1, 1, 8)], (1, 1, 7), constant_shape_1=(1, 1, 3)),
        region((0, 1), (0, 1), (0, 3)),
        ("lengths-differ", "7", "axis 2", "8"),
    ),
    ("contradiction", one("Transpose", [(2, 3)], (3, 2), perm=(0, 0)), region((0, 1), (0, 2)), ("bad-axes",)),
]


@pytest.mark.parametrize(("graph", "part", "about"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_what_is_not_known_is_refused(graph: Graph, part: Region, about: tuple[str, ...]) -> None:
    found = backward(graph, 0, part)
    check_refusal(found, *about, "op 'op' (")
    assert isinstance(found, Refusal)
    assert "\n" not in found.reason


def test_ops_of_several_outputs_and_states_are_refused() -> None:
    tensors = tuple(Tensor(name, 0, (4,)) for name in "abc")
    split = Graph("g", tensors, (Op("op", "Relu", (0,), (1, 2), positions=(0,)),), (0,), (1, 2))
    check_refused(split, region((0, 2)), "output-count", "2")
    state = Graph("g", tensors, (Op("op", "RELU", (0,), (1,), positions=(0,)),), (0,), (1,), variables=(0,))
    check_refused(state, region((0, 2)), "state")


@pytest.mark.parametrize(
    ("kind", "attributes"),
    [
        ("Conv", {"constant_shape_1": (4, 4), "strides": (1,)}),
        ("Conv", {"constant_shape_1": (4, 3, 3, 3), "strides": (1,)}),
        ("Concat", {"axis": 9}),
        ("Slice", {"starts": (0, 1), "ends": (1,), "axes": (0, 1, 2)}),
        ("DepthToSpace", {}),
        ("CONV_2D", {}),
        ("TRANSPOSE_CONV", {}),
        ("Gemm", {}),
        ("Resize", {"scales": (1.0, 0.0, 1.0, 1.0)}),
    ],
)
def test_odd_attributes_are_refused(kind: str, attributes: dict[str, AttributeValue]) -> None:
    graph = one(kind, [(1, 3, 8, 8)], (1, 4, 8, 8), 0, **attributes)
    assert isinstance(backward(graph, 0, region((0, 1), (0, 4), (0, 3), (0, 8))), Refusal)


def test_whole() -> None:
    assert whole((2, 3)) == region((0, 2), (0, 3))
    assert whole(()) == region()
