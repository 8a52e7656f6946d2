from __future__ import annotations

from dataclasses import replace

import pytest

from memsched.formats.capabilities import Stages
from memsched.formats.known import capability
from memsched.formats.module import Module
from memsched.formats.segment import Segment
from memsched.formats.segments import check_segments
from memsched.graph.model import Graph, Op, Tensor
from tests.failures import fails
from tests.formats.tflite_builder import branches, build
from tests.segment_cuts import load


def module() -> Module:
    """x -> a -> b, (a, b) -> y; v is a variable that op 1 uses."""
    graph = Graph(
        name="main",
        tensors=tuple(Tensor(name, 4, (1,), "float32") for name in ("x", "a", "b", "y", "v")),
        ops=(
            Op("a", "Relu", (0,), (1,)),
            Op("b", "Neg", (1, 4), (2,)),
            Op("y", "Add", (1, 2), (3,)),
        ),
        inputs=(0,),
        outputs=(3, 0),
        variables=(4,),
    )
    return Module("-", "onnx", "", (graph,), (), 0, 0, (), None)


FIRST = Segment((0,), ("x",), ("a",))
SECOND = Segment((1, 2), ("a",), ("y",))


def test_a_whole_is_accepted() -> None:
    check_segments(module(), [FIRST, SECOND])
    check_segments(module(), [Segment((0, 1, 2), ("x",), ("y", "x"))])
    # What is passed through, and outputs that are constants, are handed out as well.
    check_segments(module(), [FIRST, Segment((), ("a",), ("a",)), replace(SECOND, outputs=("y", "constant"))])


@pytest.mark.parametrize(
    ("segments", "expected"),
    [
        ([FIRST], ("op-missing", "'b'")),
        ([FIRST, FIRST, SECOND], ("op-twice", "'a'")),
        ([SECOND, FIRST], ("not-given", "'a'")),
        ([replace(FIRST, outputs=()), SECOND], ("not-given", "'a'")),
        ([FIRST, replace(SECOND, inputs=())], ("read-before-made", "'b'", "'a'")),
        ([FIRST, replace(SECOND, ops=(2, 1))], ("read-before-made", "'y'", "'b'")),
        ([FIRST, replace(SECOND, outputs=("b",))], ("output-missing", "'y'")),
        ([replace(FIRST, outputs=("a", "b")), SECOND], ("not-held", "'b'")),
        ([FIRST, replace(SECOND, ops=(1, 2, 3))], ("no-such-op", "op 3")),
        ([FIRST, replace(SECOND, ops=(1, -1, 2))], ("no-such-op", "op -1")),
        ([FIRST, replace(SECOND, ops=(1, 2, 2))], ("segment-name-twice",)),
        ([replace(FIRST, inputs=("x", "x")), SECOND], ("segment-name-twice",)),
    ],
)
def test_what_is_no_whole_is_refused(segments: list[Segment], expected: tuple[str, ...]) -> None:
    with fails(*expected):
        check_segments(module(), segments)


def test_an_order_that_no_tensor_states_is_checked() -> None:
    given = module()
    graph = replace(given.graph, ops=(*given.graph.ops, Op("late", "Relu", (0,), ())), dependencies=((3, 1),))
    stated = replace(given, graphs=(graph,))
    with fails("dependency", "'b'", "'late'"):
        check_segments(stated, [FIRST, SECOND, Segment((3,), ("x",), ())])
    check_segments(stated, [Segment((3, 0), ("x",), ("a",)), SECOND])


def test_formats_say_what_only_they_know() -> None:
    tflite = load(build(branches()))
    assert capability(tflite, Stages).segment_options(tflite, Segment((0,), ("x",), ("wide0",))).input_shapes == {}
    assert (capability(tflite, Stages).together(tflite), capability(module(), Stages).together(module())) == ((), ())
    assert capability(tflite, Stages).annotate_stages(tflite, [0] * len(tflite.graph.ops)) is None
