"""The last step of a rewrite: tensors left out, ties between ops kept, names that nothing else has."""

from __future__ import annotations

from memsched.graph.model import Graph, Op, Tensor
from memsched.graph.replacement import names_of, rebuilt, unused_name


def chain() -> Graph:
    """Return x -> a -> b -> y, with a variable, and b tied behind a."""
    tensors = tuple(Tensor(name, 4) for name in ("x", "t", "y", "v"))
    ops = (Op("a", "A", (0,), (1,)), Op("b", "B", (1, 3), (2,)))
    return Graph("g", tensors, ops, (0,), (2,), variables=(3,), dependencies=((0, 1),))


def test_names_of_tensors_and_ops() -> None:
    assert names_of(chain()) == {"x", "t", "y", "v", "a", "b"}


def test_names_that_are_taken_get_a_number() -> None:
    taken = {"a", "a.2"}
    assert unused_name("b", taken) == "b"
    assert unused_name("a", taken) == "a.3"
    assert unused_name("b", taken, "/") == "b/2"
    assert taken == {"a", "a.2", "a.3", "b", "b/2"}


def test_without_anything_gone_only_ops_change() -> None:
    graph = chain()
    other = (Op("c", "C", (0,), (1,)), *graph.ops)
    made = rebuilt(graph, graph.tensors, other, {0: 1, 1: 2})
    assert made.ops == other
    assert made.dependencies == ((1, 2),)
    assert (made.tensors, made.inputs, made.outputs, made.variables) == (graph.tensors, (0,), (2,), (3,))


def test_tensors_behind_one_that_is_gone_move_up() -> None:
    graph = chain()
    ops = (Op("ab", "AB", (0, 3), (2,)),)
    made = rebuilt(graph, graph.tensors, ops, {0: 0, 1: 0}, {1})
    assert [tensor.name for tensor in made.tensors] == ["x", "y", "v"]
    assert (made.inputs, made.outputs, made.variables) == ((0,), (1,), (2,))
    assert (made.ops[0].inputs, made.ops[0].outputs) == ((0, 2), (1,))
