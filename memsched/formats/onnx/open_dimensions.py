"""What to ask for where a model leaves sizes open: every statement that is missing, in one message."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Final

from onnx import NodeProto

from memsched.base.errors import UnknownShapeError
from memsched.base.frozen import FrozenValue
from memsched.base.shown import ROWS_SHOWN
from memsched.formats.onnx.shapes import Shapes
from memsched.formats.onnx.structure import Scope, op_type
from memsched.formats.onnx.types import ValueType

__all__ = ["OpenValue", "open_sizes"]

_BATCH: Final = re.compile(r"(?i)(^|[^a-z])(n|b|bs|batch|batch_?size)([^a-z]|$)|batch")
_MADE_UP: Final = "unk__"
"""Begins the names that ONNX's inference and some exporters give to lengths that they do not know."""
_LENGTH: Final = re.compile(r"(?i)seq|len|time|step|frame|sample|token|past|length")
_FEW_CHANNELS: Final = 4
"""The last of four lengths is a number of channels where it is at most this, and the second is none."""

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
    options = (
        ("--shape", f"{value.name}={','.join(_most(value.found.dims))}")
        for value in {value.name: value for value in roots}.values()
    )
    return UnknownShapeError(
        f"{said}{more}; what depends on data takes the most that it can be, or what one run shows "
        "(--shapes-from-run FEEDS.npz)",
        tuple(itertools.chain(*options)),
    )


def _asked(inputs: Sequence[tuple[str, _Dims | None]]) -> tuple[str, ...]:
    """Return the options that state what the inputs leave open: names by ``--dim`` where one length fits them all."""
    wanted = {name: _lengths(dims) for name, dims in inputs}
    symbols: dict[str, set[str]] = {}
    for name, dims in inputs:
        for dim, length in zip(dims or (), wanted[name], strict=False):
            if isinstance(dim, str):
                symbols.setdefault(dim, set()).add(length)
    # A name of several lengths is no name: exporters write one for all that they do not know.
    plain = {symbol for symbol, lengths in symbols.items() if symbol and len(lengths) == 1}
    options: dict[tuple[str, str], None] = {}
    for name, dims in inputs:
        used = [dim for dim in dims or () if isinstance(dim, str)]
        if dims is not None and plain.issuperset(used):
            options.update({("--dim", f"{dim}={next(iter(symbols[dim]))}"): None for dim in used})
        else:
            options["--shape", f"{name}={','.join(wanted[name])}"] = None
    return tuple(itertools.chain(*options))


def _lengths(dims: _Dims | None) -> list[str]:
    """Return an input's lengths as options state them: what is known, a batch of 1, and <...> where people choose."""
    if dims is None:
        return ["<shape>"]
    names = _axis_names(dims)
    lengths = []
    for axis, dim in enumerate(dims):
        if isinstance(dim, int):
            lengths.append(str(dim))
        elif _BATCH.search(dim) or (names[axis] == "batch" and not _LENGTH.search(dim)):
            lengths.append("1")
        else:
            lengths.append(f"<{_own_name(dim) if names[axis] == 'batch' else names[axis]}>")
    # Several unknown lengths of one input may differ.
    twice = {length for length in lengths if length.startswith("<") and lengths.count(length) > 1}
    return [f"<{length[1:-1]} {axis}>" if length in twice else length for axis, length in enumerate(lengths)]


def _axis_names(dims: _Dims) -> list[str]:
    """Return what an input's axes are called: those of an image, or its own names where they say something."""
    if len(dims) == 4:
        last = isinstance(dims[3], int) and dims[3] <= _FEW_CHANNELS and not isinstance(dims[1], int)
        return ["batch", "height", "width", "channels"] if last else ["batch", "channels", "height", "width"]
    if len(dims) == 3 and isinstance(dims[0], int) and dims[0] > 1 and isinstance(dims[2], int):
        return ["layers", "batch", "width"]  # a recurrent network's state
    rest = len(dims) - (len(dims) > 1)
    return [*["batch"] * (len(dims) > 1), *map(_own_name, dims[len(dims) - rest :])]


def _own_name(dim: int | str) -> str:
    """Return what a dimension is called, where its name says something."""
    return dim if isinstance(dim, str) and dim.isidentifier() and not dim.startswith(_MADE_UP) else "length"


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


def _most(dims: _Dims | None) -> list[str]:
    return ["<shape>"] if dims is None else [str(dim) if isinstance(dim, int) else "<most>" for dim in dims]


def _shown(dims: _Dims | None) -> str:
    return "an unknown rank" if dims is None else f"shape [{', '.join(str(dim) or '?' for dim in dims)}]"
