"""Networks on images beside the same in loops over rows."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime
from onnx import AttributeProto, ModelProto, TensorProto, checker, numpy_helper
from onnx.reference import ReferenceEvaluator

from memsched.formats.blocks import Range
from memsched.formats.onnx.blocks.probes import probe
from memsched.formats.onnx.blocks.rows.field import RowField
from memsched.formats.onnx.blocks.rows.plan import LoopWorks, RowPlan, arrange
from memsched.formats.onnx.blocks.rows.points import row_field
from memsched.formats.onnx.blocks.rows.write import write_rows
from memsched.formats.onnx.light import lighten
from tests.formats.onnx.blocks.rows.images import random_network

__all__ = ["RANGES", "compare", "differences", "distances", "field_of", "in_doubles", "random_plan"]

RANGES = {
    "batch": Range(1, 4),
    "height": Range(12, 240, 12, named=True),
    "width": Range(12, 240, 12, named=True),
}


def field_of(model: ModelProto, ranges: dict[str, Range] = RANGES) -> RowField:
    """Return what of a model can be computed by rows."""
    light = ModelProto()
    light.CopyFrom(model)
    lighten(light, Path())
    return row_field(model, probe(light, ranges))


def random_plan(field: RowField, seed: int) -> RowPlan:
    """Return loops for any of the images to be kept."""
    numbers = random.Random(seed)
    part = numbers.random()
    kept = frozenset(name for name in sorted(field.heavy) if numbers.random() < part)
    return arrange(LoopWorks(field, 1), kept, numbers.choice([0, 0, field.largest // 8]))


def differences(model: ModelProto, written: ModelProto, sizes: Sequence[tuple[int, int, int]]) -> list[float]:
    """Return the largest difference of an output at every size, relative to its largest element."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    sessions = [onnxruntime.InferenceSession(one.SerializeToString(), options) for one in (model, written)]
    found = []
    for batch, height, width in sizes:
        shape = (batch, model.graph.input[0].type.tensor_type.shape.dim[1].dim_value, height, width)
        x = np.random.default_rng(height * width).standard_normal(shape).astype(np.float32)
        expected, outputs = (session.run(None, {"x": x}) for session in sessions)
        assert [one.shape for one in outputs] == [one.shape for one in expected], (batch, height, width)
        pairs = zip(outputs, expected, strict=True)
        found.append(max(float(np.abs(one - other).max() / max(np.abs(other).max(), 1e-3)) for one, other in pairs))
    return found


def in_doubles(model: ModelProto) -> ModelProto:
    """Return a model that computes in double precision."""
    found = ModelProto()
    found.CopyFrom(model)
    constants = [one.t for node in found.graph.node for one in node.attribute if one.type == AttributeProto.TENSOR]
    for tensor in (*found.graph.initializer, *constants):
        if tensor.data_type == TensorProto.FLOAT:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name))
    for value in (*found.graph.input, *found.graph.output, *found.graph.value_info):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = TensorProto.DOUBLE
    return found


def distances(model: ModelProto, written: ModelProto, size: tuple[int, int, int]) -> tuple[float, float]:
    """Return how far the outputs of both are from those in double precision."""
    batch, height, width = size
    shape = (batch, model.graph.input[0].type.tensor_type.shape.dim[1].dim_value, height, width)
    x = np.random.default_rng(height * width).standard_normal(shape).astype(np.float32)
    exact = ReferenceEvaluator(in_doubles(model)).run(None, {"x": x.astype(np.float64)})
    far = []
    for one in (model, written):
        outputs = onnxruntime.InferenceSession(one.SerializeToString()).run(None, {"x": x})
        pairs = zip(outputs, exact, strict=True)
        far.append(max(float(np.abs(found - best).max() / max(np.abs(best).max(), 1e-3)) for found, best in pairs))
    return far[0], far[1]


def compare(seed: int, sizes: Sequence[tuple[int, int, int]]) -> int:
    """Check that loops compute what a random network does at every size, or better; return their number."""
    model = random_network(seed)
    field = field_of(model)
    plan = random_plan(field, seed)
    written = write_rows(model, field, plan, random.Random(seed).choice([1, 2000, 20_000, 4 << 20]))
    checker.check_model(written)
    for size, apart in zip(sizes, differences(model, written, sizes), strict=True):
        if apart > 1e-5:
            # Both round: what counts then is which of them is further from what is exact.
            given, found = distances(model, written, size)
            assert found <= given, (seed, size, apart)
    return len(plan.loops)
