"""What executions are kept for and what they hold; repetitions that go."""

from __future__ import annotations

from dataclasses import replace

from memsched.graph.liveness import Storage
from memsched.rewrites.recompute.annotate import annotate
from memsched.rewrites.recompute.shorten import shorten
from memsched.rewrites.recompute.unread import Readers, operands
from scripts.bench.stated_recursion import memory
from tests.failures import fails
from tests.rewrites.recompute.dags import graph_of, training
from tests.rewrites.recompute.test_rewrite import example


def test_outputs_go_with_their_last_reader_before_the_next_execution() -> None:
    graph = example()
    assert operands(graph) == [(), (0,), (1,), (1, 2), (0, 3)]
    found = annotate(graph, [0, 1, 2, 3, 0, 4])
    assert found.releases == ((), (0,), (), (1, 2), (), (0, 3))
    # 105 is read by 107 first and by 109 later; the result is kept; all others go with their first reader.
    assert found.keep == (False, True, False, False, False, True)
    plain = annotate(graph, range(5))
    assert plain.keep == (True, True, False, False, True)
    assert memory(graph, plain).units == (1, 2, 3, 4, 3)


def test_bytes_of_inputs_workspaces_views_and_in_place_writes() -> None:
    graph = graph_of([[], [0], [1], [2]])
    tensors = (*(replace(tensor, size=10) for tensor in graph.tensors), replace(graph.tensors[0], name="x", size=5))
    first = replace(graph.ops[0], inputs=(4,), workspace=3)
    view = replace(graph.ops[1], views=((1, 0),))
    taker = replace(graph.ops[2], in_place=((2, 1),))
    changed = replace(graph, tensors=tensors, ops=(first, view, taker, graph.ops[3]), inputs=(4,))
    found = memory(changed, annotate(changed, range(4)))
    assert found.sizes == (18, 10, 20, 20)
    assert found.merged == (18, 10, 10, 20)
    assert found.units == (1, 2, 2, 2)
    # A second execution of the view lies in the second execution of its source; the input is held until then.
    again = memory(changed, annotate(changed, [0, 1, 0, 1, 2, 3]))
    assert again.merged == (18, 15, 18, 10, 10, 20)


def test_wrong_sequences_are_refused() -> None:
    with fails("order"):
        annotate(example(), [1, 0, 2, 3, 4])
    with fails("op-missing"):
        annotate(example(), [0, 1, 2, 3])


def test_unread_executions_go() -> None:
    readers = Readers.of(example())
    assert readers.needed([0, 1, 0, 2, 1, 1, 3, 4, 2]) == [0, 1, 0, 2, 1, 3, 4]
    # The first executions of 103 and 105 are read by nobody but each other.
    assert readers.needed([0, 1, 0, 1, 2, 3, 4]) == [0, 1, 2, 3, 4]


def test_what_the_model_itself_computes_for_nobody_stays() -> None:
    graph = example()
    aside = replace(graph, ops=(*graph.ops, replace(graph.ops[1], name="aside", outputs=(5,))))
    aside = replace(aside, tensors=(*graph.tensors, replace(graph.tensors[4], name="aside")))
    readers = Readers.of(aside)
    assert readers.ends == (False, False, False, False, True, True)
    assert readers.needed([0, 5, 0, 1, 2, 3, 4, 5]) == [0, 5, 0, 1, 2, 3, 4]


def test_what_fits_is_kept() -> None:
    graph = example()
    storage = Storage.of(graph)
    again = [0, 1, 2, 3, 0, 4]
    assert shorten(graph, storage, again, 3, [1] * 5) == again
    assert shorten(graph, storage, again, 4, [1] * 5) == [0, 1, 2, 3, 4]
    # Each step back computes the way there anew: 3 units. With more memory less is computed again.
    chain = graph_of(training(16))
    sequence = [*range(8), 8, *(op for back in range(9, 16) for op in (*range(16 - back), back))]
    peaks = []
    for budget in range(3, 11):
        found = shorten(chain, Storage.of(chain), sequence, budget, [1] * 16)
        peaks.append((max(memory(chain, annotate(chain, found)).merged), len(found)))
    assert [peak for peak, _ in peaks] == [3, 4, 5, 6, 7, 8, 9, 9]
    assert [length for _, length in peaks] == sorted((length for _, length in peaks), reverse=True)
    assert peaks[-1][1] == 16
