"""What a model's values are at several sizes of its open dimensions, and the expressions that follow."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from onnx import ModelProto, numpy_helper

from memsched.base.errors import ModelError, UsageError
from memsched.base.frozen import FrozenValue
from memsched.formats.blocks import Range
from memsched.formats.module import LoadOptions
from memsched.formats.onnx import folding
from memsched.formats.onnx.attributes import attribute_of
from memsched.formats.onnx.blocks.sizes import Polynomial, fit, monomials
from memsched.formats.onnx.dimensions import free_inputs
from memsched.formats.onnx.light import is_stripped
from memsched.formats.onnx.shapes import infer
from memsched.formats.onnx.structure import analyse, op_type
from memsched.formats.onnx.types import SHAPE_ELEMENTS
from memsched.formats.onnx.worth import LONG
from memsched.ops.table import families

__all__ = ["InferredValues", "OpenValues", "infer_at", "probe", "refuse_conflicts"]

_MOST_COMPUTED: Final = 2
"""Lengths that follow from no polynomial and are looked up at run time."""

_TOGETHER: Final = families("broadcast")
"""Operators whose inputs have the same lengths, or the length 1."""

_MOST_SYMBOLS: Final = 4
"""Models with more open dimensions would have to be read too often."""


class OpenValues(FrozenValue, frozen=True):
    """The values of a model's main graph as functions of its open dimensions.

    Attributes:
        ranges: Per open dimension its lengths; computed lengths that follow from these by no polynomial are listed
            as well, as "value[axis]".
        places: Per open dimension an input of the graph, or another value, and the axis of it that has this length.
        shapes: Per value with a known rank its lengths; None for one that is no polynomial of degree two.
        elements: Per value the `TensorProto.DataType`.
        integers: Vectors and scalars of integers that follow from the dimensions alone: their elements.
        scalars: Which of these have no axis.
        typical: Lengths at which values are compared: the largest that somebody stated, or that are long, and the least
            of others; computed ones follow from these.
    """

    ranges: Mapping[str, Range]
    places: Mapping[str, tuple[str, int]]
    shapes: Mapping[str, tuple[Polynomial | None, ...]]
    elements: Mapping[str, int]
    integers: Mapping[str, tuple[Polynomial, ...]]
    scalars: frozenset[str]
    typical: Mapping[str, int]

    def bytes_of(self, name: str, sizes: Mapping[str, int], width: int = 4) -> int | None:
        """Return the bytes of a value at ``sizes``, with elements of ``width`` bytes; None where they are unknown."""
        total = width
        for length in self.shapes.get(name, (None,)):
            if length is None:
                return None
            total *= int(length.at(sizes))
        return total


def probe(light: ModelProto, ranges: Mapping[str, Range]) -> OpenValues:
    """Return what the values of a model are, from inferences at some sizes.

    Args:
        light: The model without its weights, of which nothing is changed. Its functions are inlined.
        ranges: Every open dimension of its inputs, by the names of `free_inputs`.

    Raises:
        UsageError: There are too many open dimensions.
        ModelError: It contradicts itself at some size.
    """
    if len(ranges) > _MOST_SYMBOLS:
        raise UsageError(
            f"{len(ranges)} dimensions are open, and at most {_MOST_SYMBOLS} may be",
            action="state some with --dim",
            code="too-many-open",
        )
    places = {one.name: one.places[0] for one in free_inputs(light)}
    count = len(monomials([str(number) for number in range(len(ranges) + _MOST_COMPUTED)])) + 2
    given = [*_ends(ranges), *_probes(ranges, count)]
    seen = [infer_at(light, sizes) for sizes in given]
    columns = _columns(seen)
    computed = _computed(columns, given, ranges)
    probes = [
        {**sizes, **{f"{name}[{axis}]": column[place] for (name, axis), column in computed.items()}}
        for place, sizes in enumerate(given)
    ]
    shapes = {name: tuple(fit(column, probes) for column in lengths) for name, lengths in columns.items()}
    everything = dict(ranges)
    for (name, axis), column in computed.items():
        everything[f"{name}[{axis}]"] = Range(column[0], column[1])
        places[f"{name}[{axis}]"] = name, axis
    typical = _typical(ranges)
    if computed:
        found = infer_at(light, typical).shapes
        typical |= {f"{name}[{axis}]": found[name][axis] for name, axis in computed if name in found}
        typical = {name: typical.get(name, span.least) for name, span in everything.items()}
    integers, scalars = _integers(seen, probes)
    return OpenValues(everything, places, shapes, seen[0].elements, integers, scalars, typical)


def _columns(seen: Sequence[InferredValues]) -> dict[str, list[tuple[int, ...]]]:
    """Return per value, and per axis, its lengths in every inference; values of unknown or changing rank are absent."""
    found: dict[str, list[tuple[int, ...]]] = {}
    for name in seen[0].shapes:
        lengths = [one.shapes[name] for one in seen if name in one.shapes]
        if len(lengths) == len(seen) and len({len(one) for one in lengths}) == 1:
            found[name] = list(zip(*lengths, strict=True))
    return found


def _computed(
    columns: Mapping[str, Sequence[tuple[int, ...]]], probes: Sequence[Mapping[str, int]], ranges: Mapping[str, Range]
) -> dict[tuple[str, int], tuple[int, ...]]:
    """Return where lengths are made that follow from no polynomial, such as those of a convolution that halves.

    Each counts as an open dimension of its own, whose length is that of the first value that has it.
    """
    known = dict.fromkeys(tuple(sizes[name] for sizes in probes) for name in ranges)
    found: dict[tuple[str, int], tuple[int, ...]] = {}
    for name, lengths in columns.items():
        for axis, column in enumerate(lengths):
            if len(set(column)) == 1 or column in known or len(found) == _MOST_COMPUTED:
                continue
            symbols = [
                {**sizes, **{str(key): one[place] for key, one in found.items()}} for place, sizes in enumerate(probes)
            ]
            if fit(column, symbols) is None:
                found[name, axis] = column
                known[column] = None
    return found


def _integers(
    seen: Sequence[InferredValues], probes: Sequence[Mapping[str, int]]
) -> tuple[dict[str, tuple[Polynomial, ...]], frozenset[str]]:
    """Return what small integers are that follow from lengths, and which of them have no axis."""
    integers: dict[str, tuple[Polynomial, ...]] = {}
    scalars: set[str] = set()
    for name, first in seen[0].integers.items():
        arrays = [one.integers[name] for one in seen if name in one.integers]
        if len(arrays) < len(seen) or len({one.shape for one in arrays}) > 1 or first.ndim > 1:
            continue
        fitted = [fit(list(map(int, column)), probes) for column in zip(*(one.ravel() for one in arrays), strict=True)]
        whole = [one for one in fitted if one is not None]
        if len(whole) == len(fitted):
            integers[name] = tuple(whole)
            if not first.ndim:
                scalars.add(name)
    return integers, frozenset(scalars)


def _ends(ranges: Mapping[str, Range]) -> list[dict[str, int]]:
    """Return the least and the largest sizes."""
    least = {name: -(-span.least // span.multiple) * span.multiple for name, span in ranges.items()}
    return [least, {name: span.most // span.multiple * span.multiple for name, span in ranges.items()}]


def _typical(ranges: Mapping[str, Range]) -> dict[str, int]:
    least, most = _ends(ranges)
    return {name: (most if span.named or span.most > LONG else least)[name] for name, span in ranges.items()}


def _probes(ranges: Mapping[str, Range], count: int) -> list[dict[str, int]]:
    """Return ``count`` sizes in the ranges, odd and even ones, which do not rise together."""
    numbers = random.Random(0)  # noqa: S311 - sizes to try, no secret
    least, most = _ends(ranges)
    return [
        {
            name: least[name] + numbers.randrange((most[name] - least[name]) // span.multiple + 1) * span.multiple
            for name, span in ranges.items()
        }
        for _ in range(count)
    ]


class InferredValues(FrozenValue, frozen=True):
    """What one inference told."""

    shapes: Mapping[str, tuple[int, ...]]
    elements: Mapping[str, int]
    integers: Mapping[str, Any]


def infer_at(light: ModelProto, sizes: Mapping[str, int]) -> InferredValues:
    """Return what inference tells at the lengths of all open dimensions, by the names of `free_inputs`.

    Raises:
        ModelError: The model contradicts itself there.
    """
    model = ModelProto()
    model.CopyFrom(light)
    unnamed = {one.places[0]: sizes[one.name] for one in free_inputs(light) if "[" in one.name}
    for value in model.graph.input:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if (value.name, axis) in unnamed:
                dim.dim_value = unnamed[value.name, axis]
    scopes = analyse(model.graph)
    shapes = infer(model, scopes, LoadOptions(dims={name: size for name, size in sizes.items() if "[" not in name}))
    folding.fold(model, scopes, shapes.types, set(shapes.idle))
    known = {name: lengths for name, one in shapes.types[0].items() if (lengths := one.lengths()) is not None}
    refuse_conflicts(model, known, sizes)
    elements = {name: one.element for name, one in shapes.types[0].items() if one.kind == "tensor"}
    integers = {
        tensor.name: np.asarray(numpy_helper.to_array(tensor))
        for tensor in model.graph.initializer
        if tensor.data_type in SHAPE_ELEMENTS and not is_stripped(tensor)
    }
    return InferredValues(known, elements, integers)


def refuse_conflicts(model: ModelProto, known: Mapping[str, tuple[int, ...]], sizes: Mapping[str, int]) -> None:
    """Raise ModelError where values of different lengths meet, which inference lets pass."""
    for node in model.graph.node:
        kind = op_type(node)
        if kind not in _TOGETHER and kind != "Concat":
            continue
        shapes = [known[name] for name in node.input if name in known]
        rank = max(map(len, shapes), default=0)
        along = attribute_of(node, "axis", 0) % max(rank, 1) if kind == "Concat" else -1
        padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
        for axis, lengths in enumerate(zip(*padded, strict=True)):
            if axis != along and len(set(lengths) - ({1} if kind != "Concat" else set())) > 1:
                told = ", ".join(f"{name} = {size}" for name, size in sizes.items())
                raise ModelError(
                    f"at {told}, '{node.name or node.output[0]}' joins values of different lengths",
                    code="lengths-differ",
                )
