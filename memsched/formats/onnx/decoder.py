"""An ONNX model as a decoder: which inputs hold the past, which take new tokens, and how it appends in place."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from onnx import ModelProto, ValueInfoProto, helper

from memsched.base.errors import MemschedError, UsageError
from memsched.formats.decoders import Along, Cache, Decoder, TokenInput
from memsched.formats.onnx import functions
from memsched.formats.onnx.blocks.probes import infer_at
from memsched.formats.onnx.caches import OnnxCache, append_in_place, find_caches, pass_through, reads_length
from memsched.formats.onnx.dimensions import OpenDimension, fix_named, open_inputs
from memsched.formats.onnx.external import folder_of
from memsched.formats.onnx.light import lighten
from memsched.formats.onnx.raised import raised
from memsched.formats.onnx.reader import parse

__all__ = ["open_decoder"]

_TRIED: Final = {"past": 5, "new": 3}
"""Tokens at which it is inferred what lies along which axis."""

_WORD: Final = re.compile(r"[A-Za-z_][\w.]*")
_CAPACITY: Final = "cache_capacity"
_PAST_LENGTH: Final = "past_length"


def open_decoder(data: bytes, path: str, dims: Mapping[str, int], length: str | None) -> Decoder:
    """Return what a model's caches are, and how it appends to them in place.

    Args:
        path: Where it was read from.
        dims: Dimensions that are fixed, in what is written as well; others but those of tokens are 1.
        length: The dimension that is the number of new tokens; None to find it.

    Raises:
        ModelError: It is no model.
        UsageError: The model has no caches, or it can't be seen what lies along its dimensions.
    """
    model = parse(data, path)
    if functions.calls_functions(model):
        model = functions.inline(model)
    fix_named(model, dims)
    model = raised(model)
    pass_through(model)
    caches = find_caches(model)
    if not caches:
        raise UsageError(
            f"{path} keeps no keys and values that memsched sees: no input is put before new values by a Concat, or "
            "read by a GroupQueryAttention, whose result is an output (decoders exported 'with past' have these)",
            code="no-decoder",
        )
    roles = _Roles(model, path, caches, length)
    held = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in held]
    past = {cache.past: cache for cache in caches}
    others = [TokenInput(one.name, roles.axes(one)) for one in inputs if one.name not in past]
    taken = {value.name for value in (*inputs, *model.graph.output)} | {one.name for one in open_inputs(model)}
    capacity, past_length = _fresh(_CAPACITY, taken), _fresh(_PAST_LENGTH, taken)
    return Decoder(
        caches=[roles.cache(next(one for one in inputs if one.name == name), past[name]) for name in past],
        others=others,
        dims=roles.dims(),
        single=roles.new is None,
        capacity=capacity,
        past_length=past_length if reads_length(model, caches) else None,
        build=partial(_built, model, caches, capacity, past_length),
    )


def _built(model: ModelProto, caches: Sequence[OnnxCache], capacity: str, past_length: str) -> bytes:
    written = ModelProto()
    written.CopyFrom(model)
    append_in_place(written, caches, capacity, past_length)
    data: bytes = written.SerializeToString(deterministic=True)
    return data


def _fresh(base: str, taken: set[str]) -> str:
    return base if base not in taken else _fresh(f"{base}_", taken)


class _Roles:
    """Says what lies along the open dimensions of a model's inputs.

    Attributes:
        new: The dimension of new tokens; None where it is always one.
    """

    def __init__(self, model: ModelProto, path: str, caches: Sequence[OnnxCache], length: str | None) -> None:
        self._open = open_inputs(model)
        self._names = {place: one.name for one in self._open for place in one.places}
        past = {(cache.past, cache.axis) for cache in caches}
        self._past = {self._names[place] for place in past}
        leading = {self._names.get((cache.past, axis)) for cache in caches for axis in range(cache.axis)}
        self._roles: dict[str, int | Along] = {name: 1 for name in leading if name is not None}
        unknown = [one for one in self._open if one.name not in self._past and one.name not in self._roles]
        for one in unknown:
            if self._past & set(_WORD.findall(one.name)):
                self._roles[one.name] = "all"  # "past + 1", as exporters write it
        unknown = [one for one in unknown if one.name not in self._roles]
        if length is not None and length not in {one.name for one in unknown}:
            told = ", ".join(f"'{one.name}'" for one in unknown) or "none"
            raise UsageError(
                f"--length: there is no such dimension of new tokens; there are: {told}",
                location=path,
                code="no-such-dimension",
            )
        self.new = length or self._found(model, path, caches, unknown)
        self._roles.update({one.name: "new" if one.name == self.new else "all" for one in unknown})

    def dims(self) -> dict[str, int | Along]:
        """Return what lies along each open dimension."""
        past: Along = "past"
        return {one.name: past if one.name in self._past else self._roles[one.name] for one in self._open}

    def axes(self, value: ValueInfoProto) -> tuple[int | Along, ...]:
        """Return what lies along the axes of an input."""
        found: list[int | Along] = []
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            name = self._names.get((value.name, axis))
            found.append(dim.dim_value if name is None else self._roles.get(name, "all"))
        if self.new is None and len(found) > 1 and "all" not in found and found[1] == 1:
            found[1] = "new"  # [batch, 1]: a token at a time
        return tuple(found)

    def cache(self, value: ValueInfoProto, found: OnnxCache) -> Cache:
        """Return a cache in everyone's words."""
        lengths = [
            None if axis == found.axis else 1 if isinstance(one, str) else one
            for axis, one in enumerate(self.axes(value))
        ]
        dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        return Cache(
            found.past,
            found.present,
            found.axis,
            tuple(lengths),
            dtype.name,
            dtype.itemsize,
            by_kernel=not found.new,
        )

    def _found(
        self, model: ModelProto, path: str, caches: Sequence[OnnxCache], unknown: Sequence[OpenDimension]
    ) -> str | None:
        """Return the dimension along which new tokens lie, by inferences that take each for it; None: there is none."""
        if not unknown:
            return None
        light = type(model)()
        light.CopyFrom(model)
        lighten(light, folder_of(path))
        for one in unknown:
            sizes = {name: 1 if role == 1 else sum(_TRIED.values()) for name, role in self._roles.items()}
            sizes.update({other.name: sum(_TRIED.values()) for other in unknown})
            sizes.update(dict.fromkeys(self._past, _TRIED["past"]), **{one.name: _TRIED["new"]})
            if _grows(light, sizes, caches):
                return one.name
        if len(unknown) == 1:
            return unknown[0].name
        told = ", ".join(f"'{one.name}'" for one in unknown)
        raise UsageError(
            f"it can't be seen which dimension is that of new tokens: name it with --length: {told}",
            location=path,
            code="dimension-unclear",
        )


def _grows(light: ModelProto, sizes: Mapping[str, int], caches: Sequence[OnnxCache]) -> bool:
    """Return whether all caches grow by the new tokens at such lengths."""
    try:
        shapes = infer_at(light, sizes).shapes
    except MemschedError:
        return False
    return all(cache.whole in shapes and shapes[cache.whole][cache.axis] == sum(_TRIED.values()) for cache in caches)
