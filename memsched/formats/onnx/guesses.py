"""What lies along the axes that an ONNX model's inputs leave open, by their names and places."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, Literal

from onnx import GraphProto

from memsched.base.frozen import FrozenValue
from memsched.formats.module import LoadOptions
from memsched.formats.onnx.types import is_symbol, length_of

__all__ = [
    "IMAGE",
    "LENGTH",
    "OpenInput",
    "Place",
    "Role",
    "axis_name",
    "open_input",
    "open_inputs_of",
    "statements",
    "usual_length",
]

Role = Literal["batch", "channels", "image", "volume", "length"]
Place = tuple[str, int]
"""An input and its axis."""

IMAGE: Final = 224
LENGTH: Final = 128
"""Sides of images, and numbers of tokens or samples, where nothing in the file tells."""

_USUAL: Final[Mapping[Role, int]] = {"batch": 1, "channels": 3, "image": IMAGE, "volume": 32, "length": LENGTH}
_BATCH: Final = re.compile(r"(?i)(^|[^a-z])(n|b|bs|batch|batch_?size)([^a-z]|$)|batch")
_IMAGE: Final = re.compile(r"(?i)(^|[^a-z])(h|w)([^a-z]|$)|height|width")
_LENGTH: Final = re.compile(r"(?i)seq|len|time|step|frame|sample|token|past|length")
_FEW_CHANNELS: Final = 4
"""The last of four lengths is a number of channels if it is at most this, and the second is open."""


class OpenInput(FrozenValue, frozen=True):
    """An input whose shape is not known.

    Attributes:
        dims: Its lengths; names, or "", for those that are open.
        roles: What lies along each axis; None for a known length.
        ranked: The file states how many axes there are; otherwise ``dims`` is a guess.
    """

    name: str
    dims: tuple[int | str, ...]
    roles: tuple[Role | None, ...]
    ranked: bool = True

    def places(self) -> tuple[tuple[Place, Role], ...]:
        """Return the open axes, each with what lies along it."""
        return tuple(((self.name, axis), role) for axis, role in enumerate(self.roles) if role is not None)


def open_inputs_of(graph: GraphProto, options: LoadOptions) -> tuple[OpenInput, ...]:
    """Return the tensors among a model's inputs whose shapes neither the file nor ``options`` state in full."""
    held = {tensor.name for tensor in graph.initializer}
    known = _known_dims(graph, options)
    found = []
    for value in graph.input:
        if value.name in held or value.name in options.input_shapes or not value.type.HasField("tensor_type"):
            continue
        tensor = value.type.tensor_type
        if not tensor.HasField("shape"):
            found.append(open_input(value.name, None))
            continue
        dims = tuple(_length(dim, known) for dim in tensor.shape.dim)
        if any(isinstance(dim, str) for dim in dims):
            found.append(open_input(value.name, dims))
    return tuple(found)


def usual_length(role: Role) -> int:
    """Return a usual length for what lies along an axis."""
    return _USUAL[role]


def statements(inputs: Sequence[OpenInput], sizes: Mapping[Place, int]) -> LoadOptions:
    """Return what states ``sizes``: dimensions by name if one length fits all that have the name, else whole shapes."""
    symbols: dict[str, set[int]] = {}
    for one in inputs:
        for place, _ in one.places():
            symbols.setdefault(str(one.dims[place[1]]), set()).add(sizes[place])
    # Exporters write one name for all lengths that they do not know.
    dims = {name: min(lengths) for name, lengths in symbols.items() if is_symbol(name) and len(lengths) == 1}
    dims = {name: size for name, size in dims.items() if "+" not in name}
    shapes: dict[str, tuple[int, ...]] = {}
    for one in inputs:
        lengths = tuple(sizes.get((one.name, axis), dim) for axis, dim in enumerate(one.dims))
        stated = [length_of(dim, dims) if isinstance(dim, str) else dim for dim in one.dims]
        if not one.ranked or stated != list(lengths):
            shapes[one.name] = tuple(length for length in lengths if isinstance(length, int))
    needed = {dim for one in inputs if one.name not in shapes for dim in one.dims}
    parts = {part.strip() for dim in needed if isinstance(dim, str) for part in dim.split("+")} | needed
    return LoadOptions(shapes, {name: size for name, size in dims.items() if name in parts})


def axis_name(one: OpenInput, axis: int) -> str:
    """Return the name of an open dimension, or input[axis] if it has none of its own."""
    dim = one.dims[axis]
    return dim if isinstance(dim, str) and is_symbol(dim) else f"{one.name}[{axis}]"


def _known_dims(graph: GraphProto, options: LoadOptions) -> dict[str, int]:
    """Return the named dimensions that are stated, directly or by the shape of an input."""
    known = dict(options.dims)
    for value in graph.input:
        dims = value.type.tensor_type.shape.dim
        for dim, length in zip(dims, options.input_shapes.get(value.name, ()), strict=False):
            if is_symbol(dim.dim_param):
                known.setdefault(dim.dim_param, length)
    return known


def _length(dim: object, known: Mapping[str, int]) -> int | str:
    if dim.HasField("dim_value"):  # type: ignore[attr-defined]
        value: int = dim.dim_value  # type: ignore[attr-defined]
        return value if value >= 0 else ""
    # protobuf gives bytes where a damaged file's name is no UTF-8; reading refuses it.
    name = dim.dim_param if isinstance(dim.dim_param, str) else ""  # type: ignore[attr-defined]
    found = length_of(name, known)
    return name if found is None else found


def open_input(name: str, dims: tuple[int | str, ...] | None) -> OpenInput:
    """Return an input with these lengths; None: not even their number is known."""
    known = ("", "") if dims is None else dims
    roles = (None if isinstance(dim, int) else role for dim, role in zip(known, _roles(known), strict=True))
    return OpenInput(name, known, tuple(roles), ranked=dims is not None)


def _roles(dims: tuple[int | str, ...]) -> list[Role]:
    """Return what lies along each axis: by its name if that says it, else by its place."""
    placed = _placed(dims)
    found: list[Role] = []
    for dim, role in zip(dims, placed, strict=True):
        name = dim if isinstance(dim, str) else ""
        if _BATCH.search(name) and "batch" not in found:  # of B and N, the second is no batch
            found.append("batch")
        elif _LENGTH.search(name):
            found.append("length")
        else:
            found.append("image" if _IMAGE.search(name) else role)
    return found


def _placed(dims: tuple[int | str, ...]) -> list[Role]:
    rank = len(dims)
    if rank == 4:
        last = isinstance(dims[3], int) and dims[3] <= _FEW_CHANNELS and not isinstance(dims[1], int)
        return ["batch", "image", "image", "channels"] if last else ["batch", "channels", "image", "image"]
    if rank == 3 and isinstance(dims[0], int) and dims[0] > 1 and isinstance(dims[2], int):
        return ["length", "batch", "length"]  # a recurrent network's state
    if rank == 5:
        return ["batch", "channels", "volume", "volume", "volume"]
    lengths: list[Role] = ["length"] * rank
    return ["batch", *lengths[1:]] if rank > 1 else lengths
