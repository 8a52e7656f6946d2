"""The table of schedules by decomposition, on graphs small enough for a test."""

from __future__ import annotations

from dataclasses import replace

from memsched.graph.dag import validate
from memsched.search.limits import Limits
from scripts.bench.decompose import table
from scripts.bench.runner.text import printed
from scripts.networks.training_graphs import training_graph
from tests.rewrites.recompute.dags import graph_of, path


def test_training_graphs_read_what_the_forward_ops_read() -> None:
    forward = graph_of([[], [0], [0, 1]])
    forward = replace(forward, ops=tuple(replace(op, macs=number) for number, op in enumerate(forward.ops)))
    graph = training_graph(forward)
    validate(graph)
    names = [tensor.name for tensor in graph.tensors]
    assert [(op.type, [names[tensor] for tensor in op.inputs], op.macs) for op in graph.ops[3:]] == [
        ("Loss", ["t2"], 0),
        ("FGrad", ["t0", "t1", "loss of t2 0"], 4),
        ("FGrad", ["t0", "back op2 1"], 2),
        ("Add", ["back op2 0", "back op1 0"], 0),
        ("FGrad", ["sum 6 for t0 0"], 0),
    ]
    assert [names[tensor] for tensor in graph.outputs] == ["back op0"]


def test_table() -> None:
    lines = list(printed(table([training_graph(graph_of(path(16)))], Limits(5.0), (None, 0.5))))
    assert len(lines) == 4
    least, half = ([cell.strip() for cell in line.split("|")[1:-1]] for line in lines[2:])
    assert least[:4] == ["training unit", "33", "2", "2"]
    assert int(least[9]) > int(half[9]) > 0
