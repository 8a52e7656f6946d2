"""An ONNX model with open dimensions, and the ways to compute it block by block."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from onnx import ModelProto, TensorProto, TensorShapeProto

from memsched.base.errors import ModelError, UsageError
from memsched.formats.blocks import BlockPoint, OpenModel, Range
from memsched.formats.onnx import functions
from memsched.formats.onnx.blocks.accurate import accurate
from memsched.formats.onnx.blocks.fused import kernel_points
from memsched.formats.onnx.blocks.probes import OpenValues, probe
from memsched.formats.onnx.blocks.reserve import reserve_points, reserved
from memsched.formats.onnx.blocks.rows.points import row_points
from memsched.formats.onnx.blocks.sums import sum_points
from memsched.formats.onnx.blocks.tokens import token_points
from memsched.formats.onnx.dimensions import fix_named, free_inputs
from memsched.formats.onnx.external import folder_of
from memsched.formats.onnx.light import lighten
from memsched.formats.onnx.raised import raised
from memsched.formats.onnx.reader import parse
from memsched.formats.onnx.types import element_bits, is_symbol, length_of

__all__ = ["open_model"]

_UNSTATED: Final = Range(1, 64)
"""A dimension of which nothing is said, such as a batch."""

_MULTIPLES: Final = (2, 4, 8, 16, 32, 64)
"""Numbers of which lengths may have to be multiples, where a model contradicts itself at others."""


def open_model(data: bytes, path: str, dims: Mapping[str, int], ranges: Mapping[str, Range]) -> OpenModel:
    """Return what can be done to a model for every size in some ranges.

    Args:
        path: Where it was read from.
        dims: Dimensions that are fixed, in what is written as well.
        ranges: Those that stay open; others stay open, too.

    Raises:
        UsageError: The model has no open dimension of such a name, or functions of its own.
        ModelError: It contradicts itself at some size.
    """
    model = parse(data, path)
    if functions.calls_functions(model):
        model = functions.inline(model)
    names = {one.name for one in free_inputs(model)}
    for name in (*dims, *ranges):
        if name not in names:
            known = ", ".join(f"'{one}'" for one in sorted(names)) or "none"
            raise UsageError(
                f"--dim: no input has an open dimension '{name}'; there are: {known}",
                location=path,
                code="no-such-dimension",
            )
    fix_named(model, dims)
    model = raised(model)
    every = {one.name: ranges.get(one.name, _UNSTATED) for one in free_inputs(model)}
    light = ModelProto()
    light.CopyFrom(model)
    lighten(light, folder_of(path))
    spans, values = _probed(light, every)
    made = [name for node in model.graph.node for name in node.output]
    return OpenModel(
        ranges=spans,
        points=partial(_points, model, values),
        largest=partial(_largest, values, made),
        growth=partial(_growth, values, made),
        coarser=partial(_coarser, model, light, spans, values),
        accurate=partial(_accurate, model),
        unnamed=partial(_unnamed, model),
    )


def _unnamed(model: ModelProto, sizes: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of inputs that have a dimension without a name."""
    wanted = {one.places[0][0] for one in free_inputs(model) if "[" in one.name}
    found = {}
    for value in model.graph.input:
        if value.name in wanted:
            dims = enumerate(value.type.tensor_type.shape.dim)
            found[value.name] = tuple(_length(dim, f"{value.name}[{axis}]", sizes) for axis, dim in dims)
    return found


def _length(dim: TensorShapeProto.Dimension, place: str, sizes: Mapping[str, int]) -> int:
    if dim.HasField("dim_value") and dim.dim_value >= 0:
        return int(dim.dim_value)
    known = length_of(dim.dim_param, sizes) if is_symbol(dim.dim_param) else None
    return sizes[place] if known is None else known


def _coarser(model: ModelProto, light: ModelProto, ranges: Mapping[str, Range], values: OpenValues) -> int:
    """Return of what number lengths have to be multiples so that images can be cut; 1 where that changes nothing."""
    if len(values.ranges) == len(ranges):
        return 1  # every length follows from those of inputs anyway
    for multiple in _MULTIPLES:
        spans = {name: _of_multiple(span, multiple) if span.named else span for name, span in ranges.items()}
        found = _probe(light, spans)
        if found is not None and len(found.ranges) == len(ranges):
            return multiple if row_points(model, found) else 1
    return 1


def _accurate(model: ModelProto) -> bytes | None:
    found = accurate(model)
    return None if found is None else found.SerializeToString(deterministic=True)


def _points(model: ModelProto, values: OpenValues) -> Sequence[BlockPoint]:
    """Return the ways to compute a model block by block, the quickest first, and as it is last."""
    tokens, rows = token_points(model, values), row_points(model, values)
    whole = [*kernel_points(model, values), *sum_points(model, values), *tokens[: 1 if rows else None]]
    roomy = [dataclasses.replace(one, build=partial(reserved, one.build, values)) for one in whole]
    return [*roomy, *rows, *reserve_points(model, values)]


def _probed(light: ModelProto, ranges: Mapping[str, Range]) -> tuple[Mapping[str, Range], OpenValues]:
    """Return what values are, and the ranges, as multiples of what halves and doubles sizes where that is needed."""
    try:
        return ranges, probe(light, ranges)
    except ModelError:
        for multiple in _MULTIPLES:
            spans = {name: _of_multiple(span, multiple) for name, span in ranges.items()}
            if (values := _probe(light, spans)) is not None:
                break
        else:
            raise
    for name in ranges:
        freer = {**spans, name: ranges[name]}
        if (found := _probe(light, freer)) is not None:
            spans, values = freer, found
    return spans, values


def _probe(light: ModelProto, ranges: Mapping[str, Range]) -> OpenValues | None:
    try:
        return probe(light, ranges)
    except ModelError:
        return None


def _of_multiple(span: Range, multiple: int) -> Range:
    """Return the lengths of a range that are multiples of a number; all of it where there is none."""
    fits = span.multiple == 1 and -(-span.least // multiple) * multiple <= span.most
    return dataclasses.replace(span, multiple=multiple) if fits else span


def _largest(values: OpenValues, made: Sequence[str], sizes: Mapping[str, int]) -> int:
    """Return the bytes of the largest value that a node makes, of those that depend on open dimensions."""
    return max((_bytes(values, name, sizes) for name in made if _grows(values, name)), default=0)


def _grows(values: OpenValues, name: str) -> bool:
    return any(one is None or one.symbols() for one in values.shapes.get(name, ()))


def _growth(values: OpenValues, made: Sequence[str], sizes: Mapping[str, int]) -> list[tuple[str, str, int]]:
    """Return the values that depend on open dimensions, the largest first, one of each size, with it in words."""
    found: dict[str, tuple[str, str, int]] = {}
    for name in made:
        shape = [one for one in values.shapes.get(name, ()) if one is not None]
        if any(one.symbols() for one in shape) and (size := _bytes(values, name, sizes)):
            width = element_bits(values.elements[name]) // 8
            parts = [text for one in shape if (text := one.text()) != "1"]
            told = " x ".join([str(width), *parts])
            found.setdefault(told, (name, told, size))
    return sorted(found.values(), key=lambda one: -one[2])


def _bytes(values: OpenValues, name: str, sizes: Mapping[str, int]) -> int:
    width = element_bits(values.elements.get(name, 0) or TensorProto.FLOAT) // 8
    return values.bytes_of(name, _every(values, sizes), width) or 0


def _every(values: OpenValues, sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the lengths of all dimensions; computed ones lie where the longest of those in ``sizes`` does."""
    longest = max(sizes, key=lambda name: values.ranges[name].most, default=None)
    part = 1.0
    if longest is not None and values.ranges[longest].most > values.ranges[longest].least:
        span = values.ranges[longest]
        part = (sizes[longest] - span.least) / (span.most - span.least)
    return {
        name: sizes[name] if name in sizes else round(span.least + part * (span.most - span.least))
        for name, span in values.ranges.items()
    }
