"""Sizes that a run of a model showed: they fill in what nothing in the file tells, as where sizes depend on data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onnx import GraphProto

from memsched.formats.module import ObservedSizes
from memsched.formats.onnx.stated import declare, write_shape
from memsched.formats.onnx.structure import Scope, values_of
from memsched.formats.onnx.types import ValueType

__all__ = ["fill_in", "scope_paths", "unexecuted", "write"]


def scope_paths(scopes: Sequence[Scope]) -> list[str]:
    """Return a name for each scope that does not depend on the order of nodes; "" for the main graph.

    A body is named by the first output of the node that executes it, and by the attribute that holds it.
    """
    paths: list[str] = []
    for index, scope in enumerate(scopes):
        if scope.parent < 0:
            paths.append("")
            continue
        node = scopes[scope.parent].graph.node[scope.node]
        place = scopes[scope.parent].bodies[scope.node].index(index)
        name = next((output for output in node.output if output), "")
        paths.append(f"{paths[scope.parent]}/{name}.{scope.attribute}.{place}")
    return paths


def unexecuted(scopes: Sequence[Scope], idle: set[int], observed: ObservedSizes) -> set[int]:
    """Return the bodies that no node executed in the run, of those that are not ``idle`` for another reason.

    A body inside one of them is in the result as well.
    """
    paths = scope_paths(scopes)
    return {index for index in range(1, len(scopes)) if index not in idle and paths[index] not in observed.executed}


def fill_in(
    graphs: Sequence[Scope],
    scopes: Sequence[Scope],
    types: Sequence[dict[str, ValueType]],
    observed: ObservedSizes,
) -> list[str]:
    """Write the observed shapes of values whose shapes are not known; return their names.

    Args:
        graphs: The scopes of the model that is inferred, which get the declarations.
        types: Per scope what is known of its values; gets what is written.
    """
    filled: list[str] = []
    paths = scope_paths(scopes)
    for index, scope in enumerate(graphs):
        written: dict[str, tuple[int, tuple[int, ...]]] = {}
        seen = observed.values.get(paths[index], {})
        for name in _variable(scopes[index]):
            known = types[index].get(name, ValueType())
            if name not in seen or known.kind != "tensor" or (known.known() and known.element):
                continue
            element, dims = seen[name]
            if known.element not in {0, element} or _contradicts(known, dims):
                continue
            written[name] = element, dims
            types[index][name] = ValueType("tensor", element, dims)
        write(scope.graph, written)
        filled += written
    return filled


def _variable(scope: Scope) -> list[str]:
    """Return what a graph computes or is given, in a fixed order."""
    given = [value.name for value in scope.graph.input]
    made = [name for node in scope.graph.node for name in node.output if name]
    return [name for name in (*given, *made) if name not in scope.constants]


def _contradicts(known: ValueType, dims: Sequence[int]) -> bool:
    if known.dims is None:
        return False
    if len(known.dims) != len(dims):
        return True
    return any(isinstance(dim, int) and dim != length for dim, length in zip(known.dims, dims, strict=True))


def write(graph: GraphProto, found: Mapping[str, tuple[int, tuple[int, ...]]]) -> None:
    """Declare the element types and the shapes of values that a graph computes or is given, by name."""
    declared = [value for value in values_of(graph) if value.name in found]
    for value in declared:
        value.type.tensor_type.elem_type, dims = found[value.name]
        write_shape(value, dims)
    stated = {value.name for value in declared}
    for name in (name for name in found if name not in stated):
        declare(graph.value_info, name, *found[name])
