"""Dimensions that an ONNX file leaves open: fixed where a rewrite holds for one size alone, and listed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from onnx import GraphProto, ModelProto, TensorShapeProto, TypeProto, ValueInfoProto

from memsched.base.frozen import FrozenValue
from memsched.formats.module import LoadOptions, Module
from memsched.formats.onnx.structure import analyse, values_of
from memsched.formats.onnx.types import is_symbol, length_of
from memsched.graph.model import Graph

__all__ = [
    "OpenDimension",
    "fix",
    "fix_named",
    "fixed",
    "free_inputs",
    "has_open",
    "open_inputs",
    "sizes_follow_from_inputs",
]


class OpenDimension(FrozenValue, frozen=True):
    """A dimension of an input that a file leaves open.

    Attributes:
        name: Its symbol, or "input[axis]" where it has none.
        places: Inputs and their axes that have it.
        size: What it is fixed to; None while it is open.
    """

    name: str
    places: tuple[tuple[str, int], ...]
    size: int | None = None


def open_inputs(model: ModelProto) -> tuple[OpenDimension, ...]:
    """Return the open dimensions of the main graph's inputs, those of one symbol together, in order."""
    found: dict[str, list[tuple[str, int]]] = {}
    for value in _inputs(model.graph):
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if _is_open(dim):
                symbol = dim.dim_param if is_symbol(dim.dim_param) else f"{value.name}[{axis}]"
                found.setdefault(symbol, []).append((value.name, axis))
    return tuple(OpenDimension(name, tuple(places)) for name, places in found.items())


def free_inputs(model: ModelProto) -> tuple[OpenDimension, ...]:
    """Return the open dimensions of the main graph's inputs but for sums of others."""
    every = open_inputs(model)
    names = {one.name: 1 for one in every if "+" not in one.name}
    return tuple(one for one in every if one.name in names or length_of(one.name, names) is None)


def has_open(model: ModelProto) -> bool:
    """Whether any declaration of the main graph leaves a dimension open."""
    return any(_is_open(dim) for value in values_of(model.graph) for shape in _shapes(value.type) for dim in shape.dim)


def fixed(given: ModelProto, written: ModelProto) -> tuple[OpenDimension, ...]:
    """Return the dimensions of inputs that ``given`` leaves open and ``written`` does not, with their sizes.

    Inputs that ``given`` declares without any shape have one entry per axis.
    """
    shapes = {value.name: value.type.tensor_type.shape for value in _inputs(written.graph)}
    found = []
    for one in open_inputs(given):
        name, axis = one.places[0]
        dims = shapes[name].dim if name in shapes else []
        if axis < len(dims) and not _is_open(dims[axis]):
            found.append(OpenDimension(one.name, one.places, dims[axis].dim_value))
    for value in _inputs(given.graph):
        tensor = value.type.tensor_type
        if value.type.HasField("tensor_type") and not tensor.HasField("shape") and value.name in shapes:
            for axis, dim in enumerate(shapes[value.name].dim):
                if not _is_open(dim):
                    found.append(OpenDimension(f"{value.name}[{axis}]", ((value.name, axis),), dim.dim_value))
    return tuple(found)


def fix(model: ModelProto, graph: Graph) -> None:
    """Fix in place every dimension that ``model`` declares, in bodies and functions too, so that no other size loads.

    Args:
        graph: The main graph at the sizes that hold; tensors are found by name.
    """
    shapes = {tensor.name: tensor.shape for tensor in graph.tensors if tensor.shape is not None}
    symbols = _symbols(model.graph, shapes)
    for value in values_of(model.graph):
        shape = shapes.get(value.name)
        if shape is not None and value.type.HasField("tensor_type"):
            _write(value.type.tensor_type.shape, shape)
            continue
        for declared in _shapes(value.type):
            _replace(declared, symbols)
    holders = [scope.graph for scope in analyse(model.graph)[1:]]
    declared_inside = [value for holder in holders for value in values_of(holder)]
    declared_inside.extend(value for function in model.functions for value in function.value_info)
    for value in declared_inside:
        for declared in _shapes(value.type):
            _replace(declared, symbols)


def fix_named(model: ModelProto, dims: Mapping[str, int]) -> None:
    """Fix in place the dimensions with these names, wherever the main graph declares them."""
    for value in values_of(model.graph):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in dims:
                dim.dim_value = dims[dim.dim_param]


def sizes_follow_from_inputs(module: Module, options: LoadOptions) -> bool:
    """Whether every size that is stated is one of an input, where a runtime can refuse another one."""
    model = module.native.parse()
    inputs = {value.name for value in model.graph.input}
    symbols = {one.name for one in open_inputs(model)}
    return inputs.issuperset(options.input_shapes) and symbols.issuperset(options.dims)


def _inputs(graph: GraphProto) -> Iterator[ValueInfoProto]:
    """Yield the inputs that callers must give."""
    defaults = {tensor.name for tensor in graph.initializer}
    return (value for value in graph.input if value.name not in defaults)


def _is_open(dim: TensorShapeProto.Dimension) -> bool:
    return not dim.HasField("dim_value") or dim.dim_value < 0


def _shapes(kind: TypeProto) -> Iterator[TensorShapeProto]:
    """Yield the shape of a tensor, also of one in a sequence or an optional value."""
    while True:
        which = kind.WhichOneof("value")
        if which == "sequence_type":
            kind = kind.sequence_type.elem_type
        elif which == "optional_type":
            kind = kind.optional_type.elem_type
        else:
            break
    if which == "tensor_type" and kind.tensor_type.HasField("shape"):
        yield kind.tensor_type.shape


def _symbols(graph: GraphProto, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int | None]:
    """Return the symbols' sizes; None for those that stand for several."""
    found: dict[str, int | None] = {}
    for value in values_of(graph):
        dims = value.type.tensor_type.shape.dim
        for dim, size in zip(dims, shapes.get(value.name, ()), strict=False):
            if dim.dim_param:
                same = is_symbol(dim.dim_param) and found.get(dim.dim_param, size) == size
                found[dim.dim_param] = size if same else None
    return found


def _write(shape: TensorShapeProto, sizes: tuple[int, ...]) -> None:
    if len(shape.dim) != len(sizes):
        del shape.dim[:]
        shape.SetInParent()
        for _ in sizes:
            shape.dim.add()
    for dim, size in zip(shape.dim, sizes, strict=True):
        if not dim.HasField("dim_value") or dim.dim_value != size:
            dim.dim_value = size


def _replace(shape: TensorShapeProto, symbols: Mapping[str, int | None]) -> None:
    for dim in shape.dim:
        if dim.dim_param in symbols:
            size = symbols[dim.dim_param]
            if size is None:
                dim.ClearField("dim_param")
            else:
                dim.dim_value = size
