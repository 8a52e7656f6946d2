"""How far fusion shrinks each network: with what engines fuse left out, and with activations and batch norms as ops."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from memsched.graph.liveness import Storage
from memsched.graph.model import Graph, Op
from memsched.solve.fusion.iterate import FusedGraph, fuse
from scripts.bench.runner.declare import TARGET, Benchmark, Heading, Part, Values, chosen
from scripts.bench.runner.declare import repeats as repeats_option
from scripts.bench.runner.models import network
from scripts.bench.runner.timing import best_of
from scripts.networks.catalogue import NAMES, PUBLISHED, build
from scripts.networks.table import lowered

__all__ = ["BENCH", "table"]

_COLUMNS = ("network", "as ops of their own", "ops", "tasks", "ratio", "monotonic", "isolated", "rounds", "~seconds")


def table(names: Sequence[str], target: str, repeats: int) -> Iterator[Part]:
    """Yield the lines of the table; seconds are those of the quickest of ``repeats`` runs."""
    yield f"Target {target}. Published: up to 6x.\n"
    yield Heading(*_COLUMNS)
    for name in names:
        for form, graph in _forms(name, target):
            storage = Storage.of(graph)
            fused, seconds = best_of(repeats, lambda storage=storage: fuse(storage))  # type: ignore[misc]
            yield name, form, *_cells(fused), f"{seconds:.3f}"


def _forms(name: str, target: str) -> Iterator[tuple[str, Graph]]:
    if name in PUBLISHED:
        yield "-", network(name, target)
    graph = lowered(build(name, keep_activations=True).SerializeToString(), name, target)
    yield "activations", graph
    if name in PUBLISHED:
        yield "activations, batch norms", with_batch_norms(graph)


def with_batch_norms(graph: Graph) -> Graph:
    """Return ``graph`` with a batch norm after each convolution that is not depthwise, as networks are trained.

    The second half of a separable convolution has the batch norm of both.
    """
    tensors = list(graph.tensors)
    ops: list[Op] = []
    for op in graph.ops:
        if op.type != "Conv" or op.attributes.get("group", 1) != 1:
            ops.append(op)
            continue
        (output,) = op.outputs
        tensors.append(replace(tensors[output], name=f"{tensors[output].name}.raw"))
        ops.append(replace(op, outputs=(len(tensors) - 1,)))
        ops.append(Op(f"{op.name}.norm", "BatchNormalization", (len(tensors) - 1,), (output,)))
    return replace(graph, tensors=tuple(tensors), ops=tuple(ops))


def _cells(fused: FusedGraph) -> list[object]:
    ratio = f"{fused.ops_before / fused.ops_after:.1f}x"
    return [fused.ops_before, fused.ops_after, ratio, fused.monotonic, fused.isolated, fused.iterations]


def tables(values: Values) -> Iterator[Part]:
    """Yield the table."""
    return table(values.names or NAMES, values.target, values.repeats)


BENCH = Benchmark(
    __doc__,
    tables,
    (
        chosen("network", NAMES, "all"),
        TARGET,
        repeats_option(3, "the quickest counts"),
    ),
    docs="docs/benchmarks/order.md",
)
