"""Models as C: compiled without a warning, equal to their runtimes, and moving what was planned, byte by byte."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from onnx import helper, numpy_helper

from tests.codegen.harness import (
    COMPILER,
    by_the_plan,
    chip,
    compiled,
    differences,
    emitted,
    executed,
    in_runtime,
    random_inputs,
)
from tests.codegen.networks import deep_net, quantised_net
from tests.failures import fails
from tests.rewrites.tile.random_nets import onnx_net, tflite_net
from tests.small_models import floats, model_of

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="there is no C compiler")

CASES = [
    ("8 bits", quantised_net(8, 6), 600, True),
    ("ONNX", onnx_net(9, 5), 600, False),
    ("TFLite floats", tflite_net(7, 4), 600, True),
    ("sums over parts of the channels", deep_net(), 2000, True),
    ("channels cut behind a whole layer", deep_net(), 7000, True),
]


@needs_compiler
@pytest.mark.parametrize(("model", "size", "late"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_the_program_computes_and_moves_what_it_should(model: bytes, size: int, late: bool, tmp_path: Path) -> None:
    case = emitted(model, chip(size))
    tiles = [group.tile for group in case.found.groups]
    assert any(tile.planes > 1 or tile.addends > 1 or tile.front for tile in tiles)
    inputs = random_inputs(case, 1)
    found, said = executed(case, compiled(case.files, tmp_path, "-O0"), inputs, late=late)
    wanted = in_runtime(model, case, inputs)
    assert not differences(case, found, wanted)
    assert not differences(case, by_the_plan(case, inputs), wanted)
    assert re.findall(r"\d+", said)[-1] != "0"


@needs_compiler
def test_filters_that_come_one_by_one_take_two_places_in_turn(tmp_path: Path) -> None:
    weights = numpy_helper.from_array(np.random.default_rng(0).standard_normal((6, 20000)).astype(np.float32), "w")
    node = helper.make_node("Gemm", ["x", "w"], ["y"], transB=1)
    model = model_of([node], [floats("x", [1, 20000])], [floats("y", [1, 6])], [weights])
    case = emitted(model, chip(250_000))
    inputs = random_inputs(case, 1)
    found, said = executed(case, compiled(case.files, tmp_path, "-O0"), inputs, late=True)
    assert not differences(case, found, in_runtime(model, case, inputs))
    # All but the first filter of each piece of the channels.
    (group,) = case.found.groups
    assert re.findall(r"\d+", said)[-1] == str((6 - group.tile.channels) * 80_000)


def test_a_tensor_that_is_read_twice() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Concat", ["r", "r"], ["y"], axis=1)]
    model = model_of(nodes, [floats("x", [1, 2, 4, 3])], [floats("y", [1, 4, 4, 3])], [])
    case = emitted(model, chip(1000))
    inputs = random_inputs(case, 2)
    assert not differences(case, by_the_plan(case, inputs), in_runtime(model, case, inputs))


def test_what_no_kernel_computes_is_refused_by_name() -> None:
    with fails("not-emittable", "'t1' (ConvTranspose)"):
        emitted(onnx_net(3), chip(4096))
    with fails("not-emittable", "'"):
        emitted(quantised_net(6), chip(20))


def test_rows_that_stay_are_not_loaded_again() -> None:
    case = emitted(tflite_net(7, 4), chip(600))
    kept = [buffer for group in case.found.groups for buffer in group.buffers if buffer.kept]
    assert kept
    assert all(one[1] > other[0] for buffer in kept for one, other in pairwise(buffer.rows) if one and other)
