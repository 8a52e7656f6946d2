"""The check of exact algebra: what identities make passes, and what is nearly that is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from memsched.base.errors import InternalError
from memsched.check.algebra import check_algebra
from memsched.graph.model import Graph, Op, Region
from tests.failures import fails
from tests.rewrites.algebra.nets import OnnxNet, closed, drafted


def net() -> bytes:
    made = OnnxNet((1, 2, 9, 9))
    joint = made.join([made.same("Relu", "x"), made.same("Tanh", "x"), made.same("Relu", "x")])
    row = made.pool(made.crop(made.pad(made.conv(joint, 6, group=6), 0, 1), 1, 0))
    return made.data(row, made.conv(joint, 3))


def changed(graph: Graph, op: str, **changes: object) -> Graph:
    found = next(one for one in graph.ops if op in one.name)
    broken = replace(found, **changes)  # type: ignore[arg-type]
    return replace(graph, ops=tuple(broken if one is found else one for one in graph.ops))


def exchanged(graph: Graph, one: str, other: str) -> Graph:
    """Let two ops read what the other reads."""
    first, second = (next(op for op in graph.ops if name in op.name) for name in (one, other))
    return changed(changed(graph, one, inputs=second.inputs), other, inputs=first.inputs)


def with_attributes(graph: Graph, op: Callable[[Op], bool], **values: tuple[int, ...]) -> Graph:
    found = next(one for one in graph.ops if op(one))
    return changed(graph, found.name, attributes={**found.attributes, **values})


def test_what_identities_make_passes() -> None:
    _, draft = drafted(net())
    made, way = closed(draft, ("merge", "shift", "split", "sum"))
    assert {one.kind for one in way} == {"merge", "shift", "split", "sum"}
    check_algebra(draft.graph, made.graph, draft.constants)
    check_algebra(draft.graph, draft.graph, draft.constants)


BROKEN: dict[str, Callable[[Graph], Graph]] = {
    "parts of other inputs": lambda graph: exchanged(graph, "n4#part", "n4#part.2"),
    "a part of other channels": lambda graph: changed(
        graph, "n4#part.2", region=Region(((0, 1), (0, 2), (0, 9), (0, 9)))
    ),
    "a sum of other channels": lambda graph: changed(graph, "n8#part.2", terms=(0, 2)),
    "a crop from another row": lambda graph: with_attributes(
        graph, lambda op: op.attributes.get("starts") == (1, 1), starts=(0, 0)
    ),
    "a pad on the other side": lambda graph: with_attributes(
        graph, lambda op: op.type == "Pad", pads=(0, 0, 1, 1, 0, 0, 0, 0)
    ),
    "an op that is renamed": lambda graph: changed(graph, "n1", name="other"),
    "an op that keeps its name": lambda graph: changed(graph, "n1", attributes={"alpha": 1.0}),
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_what_computes_something_else_is_refused(broken: Callable[[Graph], Graph]) -> None:
    _, draft = drafted(net())
    made, _ = closed(draft, ("shift", "split", "sum"))
    with pytest.raises(InternalError):
        check_algebra(draft.graph, broken(made.graph), draft.constants)


def test_an_output_less_is_refused() -> None:
    _, draft = drafted(net())
    with fails("interface-differs"):
        check_algebra(draft.graph, replace(draft.graph, outputs=draft.graph.outputs[:1]), draft.constants)
