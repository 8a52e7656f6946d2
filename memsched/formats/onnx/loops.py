"""The shapes of values that a Loop carries: ONNX's inference leaves them open, because an iteration may change them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from memsched.formats.onnx.observed import write
from memsched.formats.onnx.structure import Scope, owner
from memsched.formats.onnx.types import ValueType

__all__ = ["carry"]

_BEFORE_CARRIED = ("number of iterations", "condition")
"""What comes before the carried values in a Loop's inputs and in its body's."""


def carry(graphs: Sequence[Scope], scopes: Sequence[Scope], types: Sequence[dict[str, ValueType]]) -> bool:
    """Declare the shapes of outputs of Loops whose body returns the shape that the value had before the Loop.

    Whatever the number of iterations, the value then leaves the Loop in that shape.

    Args:
        graphs: The scopes of the model that is inferred, which get the declarations.
        types: Per scope what is known of its values; gets what is declared.

    Returns:
        Whether anything was declared.
    """
    changed = False
    for index, body in enumerate(scopes):
        if body.parent < 0 or scopes[body.parent].kinds[body.node] != "Loop":
            continue
        known = types[body.parent]
        found: dict[str, tuple[int, tuple[int, ...]]] = {}
        for name, first, last in _carried(scopes, body):
            at = owner(scopes, body.parent, first)
            before = types[at].get(first, ValueType()) if at >= 0 else ValueType()
            dims = before.lengths()
            open_ = name not in known or (known[name].kind == "tensor" and not known[name].known())
            same = dims is not None and types[index].get(last, ValueType()).lengths() == dims
            if dims is not None and same and open_ and before.kind == "tensor" and before.element:
                found[name] = before.element, dims
                known[name] = ValueType("tensor", before.element, dims)
        write(graphs[body.parent].graph, found)
        changed = changed or bool(found)
    return changed


def _carried(scopes: Sequence[Scope], body: Scope) -> Iterator[tuple[str, str, str]]:
    """Yield the outputs of a Loop that are carried values, with the value before it and what its body returns."""
    outer = scopes[body.parent]
    first = outer.reads[body.node][len(_BEFORE_CARRIED) :]
    last = [value.name for value in body.graph.output][1:]
    return ((name, *rest) for name, *rest in zip(outer.writes[body.node], first, last, strict=False) if name)
