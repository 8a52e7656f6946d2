"""What a caller can do instead of a TFLite model's first and last operators, and the model's inputs and outputs."""

from __future__ import annotations

import math
from collections.abc import Sequence

from memsched.formats.borders import find_borders
from memsched.formats.module import Module
from memsched.formats.tflite.model import FileModel
from memsched.formats.tflite.quantization import quantization_of
from memsched.formats.tflite.reader import TfliteNative
from memsched.graph.border import Borders, BorderStep, BorderTensor, Interface
from memsched.graph.model import Op

__all__ = ["borders", "interface", "interface_of", "quantisation_of"]

_QUANTISED = frozenset({"int8", "uint8", "int16"})
_FLOATS = frozenset({"float16", "float32", "float64"})
_CASTS = _FLOATS | _QUANTISED | {"int32", "int64", "uint16", "uint32", "uint64"}
"""Types whose values numpy casts as TFLite's kernels do; what becomes of large floats as integers nobody says."""


def borders(module: Module) -> Borders:
    """Return what can be changed at the border of the main graph."""
    native: TfliteNative = module.native
    main, graph = native.model.subgraphs[0], module.graphs[0]
    if len(main.inputs) != len(graph.inputs) or len(main.outputs) != len(graph.outputs):
        names = [graph.tensors[tensor].name for tensor in (*graph.inputs, *graph.outputs)]
        return Borders(refusals=tuple((name, "the model names an input or output twice") for name in names))
    numbers = native.mappings[0].tensors
    scales = {tensor: _scale(native.model, number) for tensor, number in enumerate(numbers)}

    def describe(op: Op) -> BorderStep | str | None:
        (read,), (made,) = op.inputs, op.outputs
        types = graph.tensors[read].dtype, graph.tensors[made].dtype
        if op.type == "TRANSPOSE":
            return _transpose(op, len(graph.tensors[made].shape or ()))
        if op.type == "CAST":
            return _cast(op, *types)
        if op.type in {"QUANTIZE", "DEQUANTIZE"}:
            return _quantise(op, *types, scales[read], scales[made])
        return None

    return find_borders(graph, describe, lambda tensor: scales[tensor])


def _transpose(op: Op, rank: int) -> BorderStep | str:
    order = op.attributes.get("perm")
    if not isinstance(order, tuple) or sorted(int(axis) for axis in order) != list(range(rank)):
        return f"the axes of TRANSPOSE '{op.name}' are no constants"
    return BorderStep(op.name, op.type, "transpose", "", permutation=tuple(int(axis) for axis in order))


def _cast(op: Op, read: str, made: str) -> BorderStep | str:
    if not {read, made} <= _CASTS or (read in _FLOATS and made not in _FLOATS):
        return f"CAST '{op.name}' makes {made} of {read}, of which no formula holds for all values"
    return BorderStep(op.name, op.type, "cast", made)


def _quantise(
    op: Op, read: str, made: str, before: tuple[float, int] | None, after: tuple[float, int] | None
) -> BorderStep | str:
    if read == "float16" and made == "float32" and op.type == "DEQUANTIZE":
        return BorderStep(op.name, op.type, "cast", made)
    if read == "float32" and made in _QUANTISED and after is not None:
        return BorderStep(op.name, op.type, "quantize", made, after[0], after[1])
    if read in _QUANTISED and made == "float32" and before is not None:
        return BorderStep(op.name, op.type, "dequantize", made, before[0], before[1])
    if {read, made} <= _QUANTISED and before is not None and after is not None and before[0] == after[0]:
        return BorderStep(op.name, op.type, "shift", made, after[0], after[1], offset=after[1] - before[1])
    return f"{op.type} '{op.name}' makes {made} of {read} with other scales, of which a caller has no exact formula"


def interface(module: Module) -> Interface:
    """Return the inputs and outputs of the main graph; see `Format.interface`."""
    native: TfliteNative = module.native
    found = interface_of(native.model)
    names = dict(zip(native.mappings[0].tensors, (tensor.name for tensor in module.graphs[0].tensors), strict=True))
    main = native.model.subgraphs[0]

    def named(tensors: Sequence[BorderTensor], numbers: Sequence[int]) -> tuple[BorderTensor, ...]:
        pairs = zip(tensors, numbers, strict=True)
        return tuple(
            BorderTensor(names.get(number, one.name), one.shape, one.dtype, one.size, one.scale, one.zero_point)
            for one, number in pairs
        )

    return Interface(named(found.inputs, main.inputs), named(found.outputs, main.outputs))


def interface_of(model: FileModel) -> Interface:
    """Return the inputs and outputs of a file, by the names in it."""
    main = model.subgraphs[0]

    def tensors(numbers: Sequence[int]) -> tuple[BorderTensor, ...]:
        found = []
        for number in numbers:
            one = main.tensors[number]
            scale, zero_point = _scale(model, number) or (None, None)
            found.append(BorderTensor(one.name, one.shape, one.dtype, one.size, scale, zero_point))
        return tuple(found)

    return Interface(tensors(main.inputs), tensors(main.outputs))


def _scale(model: FileModel, number: int) -> tuple[float, int] | None:
    """Return the scale and the zero point of a tensor of the main subgraph; None where it has none, or several."""
    if number < 0:
        return None
    scales, zeros = quantization_of(model, model.subgraphs[0].tensors[number])
    if len(scales) != 1 or not 0 < scales[0] < math.inf:
        return None
    return scales[0], zeros[0] if zeros else 0


def quantisation_of(model: FileModel, number: int) -> tuple[str, tuple[float, int] | None] | None:
    """Return a tensor's type, and its scale and zero point, None where it has none; None where it has several."""
    tensor = model.subgraphs[0].tensors[number]
    if not quantization_of(model, tensor)[0]:
        return tensor.dtype, None
    found = _scale(model, number)
    return None if found is None else (tensor.dtype, found)
