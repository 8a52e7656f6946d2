"""What a value is when nothing is said of it: nothing shared, nothing of others, no region, no scratch."""

from __future__ import annotations

from memsched.graph.model import Graph, Op, Schedule, Tensor


def test_a_tensor_of_bytes_is_sized_and_its_own() -> None:
    tensor = Tensor("a", 4)
    assert (tensor.shape, tensor.dtype, tensor.sized, tensor.external) == (None, "", True, False)


def test_an_op_takes_what_it_reads_and_makes_alone() -> None:
    op = Op("f", "Relu", (0,), (1,))
    assert (op.workspace, op.macs, op.views, op.view_offsets, op.in_place) == (0, 0, (), (), ())
    assert (dict(op.attributes), op.positions, op.origin, op.region) == ({}, (), None, None)


def test_a_graph_has_no_states_and_a_schedule_no_effort() -> None:
    graph = Graph("g", (), (), (), ())
    assert (graph.variables, graph.dependencies) == ((), ())
    schedule = Schedule((), (), 0, 0, "optimal", "", "")
    assert (schedule.states, schedule.seconds) == (0, 0.0)
