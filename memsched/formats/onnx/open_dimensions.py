"""What to ask for where a model leaves sizes open: every statement that is missing, in one message."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from onnx import NodeProto

from memsched.base.errors import UnknownShapeError
from memsched.base.frozen import FrozenValue
from memsched.base.shown import ROWS_SHOWN
from memsched.formats.onnx.guesses import open_input, statements, usual_length
from memsched.formats.onnx.shapes import Shapes
from memsched.formats.onnx.structure import Scope, op_type
from memsched.formats.onnx.types import ValueType

__all__ = ["OpenValue", "open_sizes"]

_Dims = tuple[int | str, ...]


class OpenValue(FrozenValue, frozen=True):
    """A value of unknown size that counts.

    Attributes:
        scope: Index of its graph.
        producer: The node that computes it and the name of its op; None for an input of the graph.
    """

    scope: int
    name: str
    found: ValueType
    producer: tuple[NodeProto, str] | None = None


def open_sizes(values: Sequence[OpenValue], scopes: Sequence[Scope], shapes: Shapes) -> UnknownShapeError:
    """Return the error that names every statement that is missing: about graph inputs, as what follows may be known.

    Only where these are known it names values that the model computes, those that others follow from.

    Args:
        values: At least one.
    """
    inputs = [value for value in values if not value.scope and value.producer is None]
    if inputs:
        known = [(value.name, value.found.dims) for value in inputs]
        listed = ", ".join(f"'{name}' has {_shown(dims)}" for name, dims in known[:ROWS_SHOWN])
        more = f" and {len(known) - ROWS_SHOWN} more are open" if len(known) > ROWS_SHOWN else ""
        return UnknownShapeError(f"graph input{'s' * (len(known) > 1)} {listed}{more}", _asked(known))
    roots = _roots(values, scopes) or list(values)
    said = "; ".join(_computed(value, shapes) for value in roots[:ROWS_SHOWN])
    more = f"; and {len(roots) - ROWS_SHOWN} more" if len(roots) > ROWS_SHOWN else ""
    open_axes = [(value.name, axis) for value in roots if not value.scope for axis in _open_axes(value.found.dims)]
    return UnknownShapeError(
        f"{said}{more} (--shape states the most that it can be)",
        ("--shapes-from-run", "feeds.npz"),
        computed=tuple(open_axes),
    )


def _asked(inputs: Sequence[tuple[str, _Dims | None]]) -> tuple[str, ...]:
    """Return options that state what the inputs leave open, with usual sizes."""
    known = [open_input(name, dims) for name, dims in inputs]
    sizes = {place: usual_length(role) for one in known for place, role in one.places()}
    found = statements(known, sizes)
    dims = [("--dim", f"{name}={size}") for name, size in found.dims.items()]
    shapes = [("--shape", f"{name}={','.join(map(str, shape))}") for name, shape in found.input_shapes.items()]
    return tuple(itertools.chain(*dims, *shapes))


def _open_axes(dims: _Dims | None) -> Sequence[int | None]:
    return [None] if dims is None else [axis for axis, dim in enumerate(dims) if isinstance(dim, str)]


def _roots(values: Sequence[OpenValue], scopes: Sequence[Scope]) -> list[OpenValue]:
    """Return the computed values whose sizes follow from no other open one."""
    names = {(value.scope, value.name) for value in values}
    inside = _open_bodies({value.scope for value in values}, scopes)

    def is_open(index: int, name: str) -> bool:
        while index >= 0:
            if name in scopes[index].defined:
                return (index, name) in names
            index = scopes[index].parent
        return False

    roots = []
    for value in values:
        if value.producer is None:
            roots.append(value)
            continue
        node = value.producer[0]
        follows = any(is_open(value.scope, name) for name in node.input if name)
        if not follows and not (inside.get(value.scope, frozenset()) & set(node.output)):
            roots.append(value)
    return roots


def _open_bodies(open_scopes: set[int], scopes: Sequence[Scope]) -> Mapping[int, set[str]]:
    """Return per graph the outputs of its nodes that execute a graph with open values."""
    found: dict[int, set[str]] = {}
    for index in open_scopes:
        scope = scopes[index]
        while scope.parent >= 0:
            around = scopes[scope.parent]
            found.setdefault(scope.parent, set()).update(around.graph.node[scope.node].output)
            scope = around
    return found


def _computed(value: OpenValue, shapes: Shapes) -> str:
    shown = _shown(value.found.dims)
    if value.producer is None:
        return f"tensor '{value.name}', input of a body, has {shown}"
    node, op = value.producer
    reason = shapes.reasons.get(node.name or node.op_type, "")
    return (
        f"tensor '{value.name}', output of op '{op}' ({op_type(node)}), has {shown}{f' ({reason})' if reason else ''}"
    )


def _shown(dims: _Dims | None) -> str:
    return "an unknown rank" if dims is None else f"shape [{', '.join(str(dim) or '?' for dim in dims)}]"
