"""From an op of either format to a description of what each part of its output needs.

The rules per operator lie in `windows`, `movement`, `indices` and `values`, the words they use in `rules`. An operator
without a rule is refused.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from memsched.graph.model import Graph
from memsched.ops.cuts import Verdict, role, verdict
from memsched.ops.rules import (
    ChannelGroups,
    Geometry,
    Merge,
    Pointwise,
    Reflection,
    Refusal,
    RefusedError,
    Resampling,
    Rule,
    ShapedOp,
    Shift,
    Stride,
    Subdivision,
    TransposedWindow,
    Window,
)
from memsched.ops.table import OPERATORS

__all__ = ["describe", "described", "has_windows"]


def has_windows(graph: Graph) -> bool:
    """Whether an op slides a window over its input: the model computes on images, or on signals."""
    found = (describe(graph, op) for op in range(len(graph.ops)))
    return any(
        isinstance(one.rule, Window)
        for geometry in found
        if not isinstance(geometry, Refusal)
        for one in geometry.operands.get(0, ())
    )


def describe(graph: Graph, op: int, *, exact: bool = False) -> Geometry | Refusal:
    """Return which parts of its inputs and constants the output of op ``op`` needs, or why that is unknown.

    Axes along which pieces would give other values than the whole are fixed.

    Args:
        exact: Fix those along which the last bits would differ, too.
    """
    found = described(graph, op)
    return (
        found
        if isinstance(found, Refusal)
        else _judged(found, graph, op, {"differs", "rounds"} if exact else {"differs"})
    )


def described(graph: Graph, op: int) -> Geometry | Refusal:
    """Return what `describe` does, whatever values pieces give."""
    rule = OPERATORS.get(graph.ops[op].type)
    name = graph.ops[op].name
    if rule is None:
        return Refusal(f"op '{name}' ({graph.ops[op].type}): there is no rule for this operator", "no-rule")
    if not graph.ops[op].effects.pure:
        return Refusal(f"op '{name}' ({graph.ops[op].type}): {graph.ops[op].effects.words()}", "effects")
    if any(tensor in graph.variables for tensor in graph.ops[op].inputs):
        return Refusal(f"op '{name}' ({graph.ops[op].type}): it reads a state", "state")
    try:
        found = rule.geometry(ShapedOp(graph, op))
        _check_lengths(found)
        return found
    except RefusedError as error:
        return Refusal(f"op '{name}' ({graph.ops[op].type}): {error}", error.code)
    except (IndexError, ValueError, ZeroDivisionError):  # attributes and shapes that contradict each other
        return Refusal(f"op '{name}' ({graph.ops[op].type}): its attributes do not fit its shapes", "attributes")


def _judged(geometry: Geometry, graph: Graph, op: int, refused: set[Verdict]) -> Geometry:
    """Return the geometry with the axes fixed of which the table of cuts says what is ``refused``."""
    value = graph.ops[op]
    dtype = graph.tensors[value.inputs[0]].dtype if value.inputs else ""
    fixed = dict(geometry.fixed)
    for axis, length in enumerate(geometry.shape):
        if length > 1 and axis not in fixed and value.inputs:
            word = role(geometry, axis, value.positions)
            seen = verdict(value.type, word, dtype, graph.cut_for)
            if seen in refused:
                what = "other values" if seen == "differs" else "other last bits"
                fixed[axis] = f"pieces along axis {axis} give {what} than the whole ({dtype or 'any type'})"
    return geometry if len(fixed) == len(geometry.fixed) else replace(geometry, fixed=MappingProxyType(fixed))


def _check_lengths(geometry: Geometry) -> None:
    """Refuse an output whose lengths contradict those of its operands: the rule does not fit one of them."""
    for position, maps in geometry.operands.items():
        for axis, one in enumerate(maps):
            if one.output >= 0:
                given, made = geometry.shapes[position][axis], geometry.shape[one.output]
                if not _fits(one.rule, given, made):
                    raise RefusedError(
                        f"length {made} of its axis {one.output} does not follow from {given}", "lengths-differ"
                    )


def _fits(rule: Rule, given: int, made: int) -> bool:
    if isinstance(rule, Pointwise):
        return given == made
    if isinstance(rule, Window):
        rest = given + rule.pad_before + rule.pad_after - (rule.kernel - 1) * rule.dilation - 1
        return made in {rest // rule.stride + 1, -(-rest // rule.stride) + 1}
    if isinstance(rule, TransposedWindow):
        return 0 < made + rule.pad_before < (given + 1) * rule.stride + (rule.kernel - 1) * rule.dilation + 1
    if isinstance(rule, Resampling):
        ends = int(rule.corners)
        return rule.scale > 0 and made == ends + (given - ends) * rule.scale.numerator // rule.scale.denominator
    return _moved_fits(rule, given, made)


def _moved_fits(rule: Rule, given: int, made: int) -> bool:
    if isinstance(rule, Subdivision):
        return made == given * rule.size
    if isinstance(rule, Merge):
        return given == made * rule.size
    if isinstance(rule, ChannelGroups):
        return given * rule.outputs == made * rule.inputs
    if isinstance(rule, Reflection):
        return made == given + rule.pad_before + rule.pad_after
    if isinstance(rule, Shift):
        return 0 <= rule.offset <= made - given
    if isinstance(rule, Stride):
        return not made or all(0 <= rule.begin + rule.step * index < given for index in (0, made - 1))
    return True
