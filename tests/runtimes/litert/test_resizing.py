"""TFLite models at other shapes of inputs than their files state."""

from __future__ import annotations

from typing import Any

import pytest

import memsched
from memsched.report.values.optimize import OptimizeReport
from tests.failures import fails
from tests.formats.tflite_builder import O, Sub, T, build, int32s, options

CONV: Any = {"padding": 0, "strideH": 1, "strideW": 1, "dilationHFactor": 1, "dilationWFactor": 1}


def features(*, whole: bool = False) -> bytes:
    """Return a model stored for one step of a signal; ``whole``: a reshape states the number of steps."""
    tensors = [
        T("x", (1, 1, 8, 2), signature=(1, -1, 8, 2)),
        T("w", (4, 3, 3, 2), data=bytes(4 * 72)),
        T("b", (4,), data=bytes(16)),
        T("a", (1, 1, 8, 4), signature=(1, -1, 8, 4)),
        T("y", (1, 1, 8, 4), signature=(1, -1, 8, 4)),
        T("shape", (2,), "INT32", data=int32s(1, 32)),
        T("flat", (1, 32)),
    ]
    ops = [O("CONV_2D", [0, 1, 2], [3], options("Conv2DOptions", **CONV)), O("RELU", [3], [4])]
    if whole:
        ops.append(O("RESHAPE", [4, 5], [6], options("ReshapeOptions", newShape=[1, 32])))
    return build(Sub(tensors if whole else tensors[:5], ops, [0], [6 if whole else 4]))


def test_the_shapes_that_follow_are_asked_of_the_runtime() -> None:
    graph = memsched.load(features(), input_shapes={"x": (1, 64, 8, 2)}).graph
    shapes = {tensor.name: tensor.shape for tensor in graph.tensors}
    assert shapes["a"] == shapes["y"] == (1, 64, 8, 4)


def test_the_file_that_is_written_states_them_and_runs() -> None:
    result = memsched.optimize(features(), input_shapes={"x": (1, 64, 8, 2)}, effort=0.5, target="litert")
    report: OptimizeReport = result.report.values
    assert report.sections.requirement is not None
    assert report.sections.requirement.given_bytes > 64 * 8 * 2 * 4
    assert report.output is not None
    assert not report.output.unchanged
    assert report.sections.verification is not None
    assert report.sections.verification.outputs_equal
    written = {tensor.name: tensor.shape for tensor in memsched.load(result.model).graph.tensors}
    assert written["x"] == (1, 64, 8, 2)


def test_the_stored_shapes_leave_the_file_as_it_is() -> None:
    data = features()
    result = memsched.optimize(data, input_shapes={"x": (1, 1, 8, 2)}, effort=0.1, verify=False)
    assert result.model == data
    assert result.report.values.output is not None
    assert result.report.values.output.unchanged


@pytest.mark.parametrize(
    ("shape", "whole", "about"),
    [
        ((1, 64, 8, 2), True, ("not-resizable", "--shape x", "LiteRT")),
        ((1, 64), False, ("other-rank", "--shape x", "4")),
    ],
)
def test_what_cannot_be_resized_is_refused(shape: tuple[int, ...], whole: bool, about: tuple[str, ...]) -> None:
    with fails(*about):
        memsched.load(features(whole=whole), input_shapes={"x": shape})
