"""Hand-made graphs for the tests of memory: sizes and figures that can be checked on paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from memsched.graph.model import Graph, InPlace, Op, Schedule, Tensor

__all__ = ["graph_of", "schedule_of"]


def graph_of(
    sizes: Mapping[str, int],
    ops: Sequence[Op],
    inputs: Sequence[str],
    outputs: Sequence[str],
    variables: Sequence[str] = (),
    dependencies: Sequence[tuple[int, int]] = (),
) -> Graph:
    """Return a graph whose tensors are numbered in the order of ``sizes``."""
    number = {name: index for index, name in enumerate(sizes)}
    return Graph(
        name="example",
        tensors=tuple(Tensor(name, size) for name, size in sizes.items()),
        ops=tuple(ops),
        inputs=tuple(number[name] for name in inputs),
        outputs=tuple(number[name] for name in outputs),
        variables=tuple(number[name] for name in variables),
        dependencies=tuple(dependencies),
    )


def schedule_of(order: Sequence[int], peak: int, in_place: Sequence[InPlace] = (), **claims: object) -> Schedule:
    """Return a schedule that claims ``peak`` and nothing else, unless ``claims`` says so."""
    values: dict[str, object] = {"lower_bound": 0, "status": "feasible", "proof": "", "method": "test", **claims}
    return Schedule(order=tuple(order), in_place=tuple(in_place), peak=peak, **values)  # type: ignore[arg-type]
