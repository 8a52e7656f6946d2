"""CP-SAT on the integer program of "Iterative Graph Optimization", against its text and against brute force."""

from __future__ import annotations

import random
import time

import pytest

from memsched.graph.contraction import Tasks, contract, restrict, single_op_tasks
from memsched.graph.liveness import Storage, evaluate
from memsched.graph.model import Graph, Op, Tensor
from memsched.search.limits import Limits
from memsched.search.run import Run
from memsched.solve.fusion.iterate import fuse
from memsched.solve.schedule import cpsat
from memsched.solve.schedule.cpsat import solve
from memsched.solve.schedule.formulation import formulate
from tests.brute_force import optimal_peak, topological_orders
from tests.failures import fails
from tests.random_graphs import random_graph

_LIMITS = Limits(time_limit=None)


def _wired(count: int, edges: list[tuple[int, int]], sizes: list[int]) -> Graph:
    """Return a graph whose op i makes tensor i; ops without predecessors read nothing, sinks make the outputs."""
    reads: list[list[int]] = [[] for _ in range(count)]
    for before, after in edges:
        reads[after].append(before)
    read = {before for before, _ in edges}
    return Graph(
        "wired",
        tuple(Tensor(f"t{index}", size) for index, size in enumerate(sizes)),
        tuple(Op(f"op{index}", "Op", tuple(befores), (index,)) for index, befores in enumerate(reads)),
        (),
        tuple(index for index in range(count) if index not in read),
    )


def _tasks(graph: Graph) -> Tasks:
    return single_op_tasks(Storage.of(graph))


def _layers(rng: random.Random, layers: int, width: int) -> Graph:
    edges = [
        (layer * width + before, (layer + 1) * width + after)
        for layer in range(layers - 1)
        for after in range(width)
        for before in rng.sample(range(width), 2)
    ]
    return _wired(layers * width, edges, [rng.randint(1, 1000) for _ in range(layers * width)])


def test_windows_are_those_of_figure_4() -> None:
    # Ops 0..3 precede op 4, ops 5 and 6 follow it, the chain 7..9 runs beside them.
    edges = [(0, 1), (1, 3), (0, 2), (2, 3), (3, 4), (4, 5), (4, 6), (7, 8), (8, 9)]
    tasks = _tasks(_wired(10, edges, [1] * 10))
    program = formulate(tasks)
    assert program is not None
    op = next(task for task, members in enumerate(tasks.members) if members == (4,))
    steps = range(1, 11)
    # With 4 ancestors and 2 descendants it runs in steps 5 to n - 2, counted from 1 as the paper does.
    assert (steps[program.earliest[op]], steps[program.latest[op]]) == (5, len(tasks) - 2)
    free = formulate(tasks, prune=False)
    assert free is not None
    assert (free.earliest[op], free.latest[op]) == (0, 9)


def test_pruning_removes_variables_and_changes_nothing_else() -> None:
    tasks = _tasks(_layers(random.Random(5), 6, 3))
    pruned = solve(tasks, Run(_LIMITS))
    whole = solve(tasks, Run(_LIMITS), prune=False)
    assert (pruned.status, whole.status) == ("optimal", "optimal")
    assert pruned.peak == whole.peak
    assert pruned.variables < 0.7 * whole.variables
    # done[i, s] for s = 1..n-1 of each of the n tasks, and T of the buffers that need it.
    assert whole.variables >= len(tasks) * (len(tasks) - 1)


def test_a_chain_has_no_variables_at_all() -> None:
    result = solve(_tasks(_wired(5, [(0, 1), (1, 2), (2, 3), (3, 4)], [3, 1, 4, 1, 5])), Run(_LIMITS))
    assert (result.order, result.peak, result.status, result.variables) == ((0, 1, 2, 3, 4), 6, "optimal", 0)


def test_agrees_with_brute_force_on_random_graphs() -> None:
    with_credits = with_stored = 0
    for seed in range(150):
        rng = random.Random(seed)
        graph = random_graph(rng, rng.randint(1, 9))
        storage = Storage.of(graph)
        tasks = single_op_tasks(storage)
        best = optimal_peak(graph)
        result = solve(tasks, Run(_LIMITS), prune=seed % 3 > 0, hint=range(len(tasks)) if seed % 2 else None)
        assert (result.status, result.peak, result.lower_bound) == ("optimal", best, best), seed
        assert result.order is not None
        assert evaluate(storage, tasks.expand(result.order)).peak == best
        program = formulate(tasks)
        assert program is not None
        with_credits += any(program.credits)
        with_stored += bool(program.stored)
    assert with_credits > 10
    assert with_stored > 50


def test_agrees_with_brute_force_on_fused_graphs() -> None:
    shrunk = with_credits = 0
    for seed in range(1000, 1120):
        rng = random.Random(seed)
        graph = random_graph(rng, rng.randint(6, 11))
        tasks = fuse(Storage.of(graph)).tasks
        result = solve(tasks, Run(_LIMITS))
        assert (result.status, result.peak) == ("optimal", optimal_peak(graph)), seed
        program = formulate(tasks)
        assert program is not None
        shrunk += 1 < len(tasks) < len(graph.ops)
        with_credits += any(program.credits)
    assert shrunk > 10
    assert with_credits > 3


def test_agrees_with_brute_force_on_any_contraction() -> None:
    """Hyper-nodes that no theorem allows have odder profiles: buffers that may die inside them, and writes in place."""
    with_credits = 0
    for seed in range(2000, 2200):
        rng = random.Random(seed)
        graph = random_graph(rng, 8)
        storage = Storage.of(graph)
        tasks = _contracted(storage, rng)
        orders = _task_orders(tasks)
        best = min(evaluate(storage, tasks.expand(order)).peak for order in orders)
        result = solve(tasks, Run(_LIMITS))
        assert (result.status, result.peak, result.lower_bound) == ("optimal", best, best), seed
        program = formulate(tasks)
        assert program is not None
        with_credits += any(program.credits)
    assert with_credits > 20


def _contracted(storage: Storage, rng: random.Random) -> Tasks:
    """Cut a random order into runs of one to three ops: a contraction without cycles."""
    order: list[int] = []
    while len(order) < len(storage.preds):
        ready = [op for op in range(len(storage.preds)) if op not in order and set(storage.preds[op]) <= set(order)]
        order.append(rng.choice(ready))
    groups: list[list[int]] = []
    while order:
        length = rng.randint(1, 3)
        groups.append(order[:length])
        order = order[length:]
    return contract(storage, groups)


def _task_orders(tasks: Tasks) -> list[tuple[int, ...]]:
    edges = [(before, task) for task, befores in enumerate(tasks.preds) for before in befores]
    return list(topological_orders(_wired(len(tasks), edges, [1] * len(tasks))))


def test_orders_a_part_as_it_runs_between_the_others() -> None:
    graph = _layers(random.Random(3), 4, 3)
    tasks = _tasks(graph)
    _, after = tasks.run(range(len(tasks)))
    part = restrict(tasks, range(3, 9), frozenset(range(3)), after[2])
    best = min(max(part.run(order)[0]) for order in _task_orders(part))
    result = solve(part, Run(_LIMITS))
    assert (result.status, result.peak) == ("optimal", best)


def test_an_empty_graph_needs_its_inputs() -> None:
    result = solve(_tasks(Graph("none", (Tensor("x", 7),), (), (0,), (0,))), Run(_LIMITS))
    assert (result.order, result.peak, result.status) == ((), 7, "optimal")


def test_an_upper_bound_that_no_order_keeps_is_proven_to_be_none() -> None:
    graph = _layers(random.Random(1), 4, 3)
    best = solve(_tasks(graph), Run(_LIMITS))
    assert best.peak is not None
    tight = solve(_tasks(graph), Run(_LIMITS), upper_bound=best.peak)
    assert (tight.status, tight.peak) == ("optimal", best.peak)
    below = solve(_tasks(graph), Run(_LIMITS), upper_bound=best.peak - 1, hint=best.order)
    assert (below.status, below.order, below.lower_bound) == ("infeasible", None, best.peak)
    contradiction = solve(_tasks(graph), Run(_LIMITS), lower_bound=best.peak, upper_bound=best.peak - 1)
    assert contradiction.status == "infeasible"


def test_an_order_that_needs_no_more_than_the_lower_bound_is_good_enough() -> None:
    tasks = _tasks(_layers(random.Random(2), 4, 3))
    generous = solve(tasks, Run(_LIMITS), lower_bound=10**9)
    assert generous.status == "optimal"
    assert generous.lower_bound == 10**9
    assert generous.peak is not None
    assert generous.peak < 10**9


def test_an_optimal_hint_is_returned_as_it_is() -> None:
    tasks = _tasks(_wired(6, [(0, 3), (1, 3), (2, 3), (3, 4), (3, 5)], [2, 2, 2, 9, 1, 1]))
    hint = (2, 0, 1, 3, 5, 4)
    result = solve(tasks, Run(_LIMITS), hint=hint)
    assert (result.order, result.status) == (hint, "optimal")
    known = solve(tasks, Run(_LIMITS), hint=hint, lower_bound=result.lower_bound)
    assert (known.order, known.status, known.variables) == (hint, "optimal", 0)


def test_a_bad_hint_is_improved() -> None:
    tasks = _tasks(_wired(5, [(0, 2), (1, 3), (2, 4), (3, 4)], [9, 9, 1, 1, 1]))
    hint = (0, 1, 2, 3, 4)
    assert max(tasks.run(hint)[0]) == 19
    peaks: list[int] = []
    result = solve(tasks, Run(_LIMITS, on_progress=lambda progress: peaks.append(progress.best_peak)), hint=hint)
    assert (result.peak, result.status) == (11, "optimal")
    assert peaks[-1] == 11
    assert peaks == sorted(peaks, reverse=True)


def test_the_time_limit_is_kept_and_the_hint_survives() -> None:
    # The proof takes far longer than the limit, on any machine.
    tasks = _tasks(_layers(random.Random(4), 60, 10))
    hint = tuple(range(len(tasks)))
    # Of the processor: what others do meanwhile is not counted.
    started = time.process_time()
    timed = solve(tasks, Run(Limits(time_limit=0.5)), hint=hint)
    assert time.process_time() - started < 4
    assert timed.status in {"feasible", "unknown"}
    result = solve(tasks, Run(Limits(time_limit=None, effort=0.1)), hint=hint)
    assert result.status == "feasible"
    assert result.peak is not None
    assert result.lower_bound < result.peak <= max(tasks.run(hint)[0])
    nothing = solve(tasks, Run(Limits(time_limit=0)))
    assert (nothing.order, nothing.status) == (None, "unknown")


def test_it_stops_when_asked() -> None:
    tasks = _tasks(_layers(random.Random(4), 30, 8))
    told: list[int] = []
    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked += bool(told)
        return bool(told)

    run = Run(Limits(None), stop=stop, on_progress=lambda progress: told.append(progress.best_peak))
    result = solve(tasks, run, hint=range(len(tasks)))
    assert result.status == "feasible"
    assert asked < 100


def test_an_interrupt_is_passed_on() -> None:
    tasks = _tasks(_layers(random.Random(4), 20, 6))
    calls = iter(range(10**9))

    def stop() -> bool:
        if next(calls) > 60:
            raise KeyboardInterrupt
        return False

    with pytest.raises(KeyboardInterrupt):
        solve(tasks, Run(Limits(None), stop=stop))
    assert next(calls) < 100


def test_a_model_that_would_fill_the_memory_is_refused() -> None:
    tasks = _tasks(_layers(random.Random(4), 30, 8))
    result = solve(tasks, Run(_LIMITS), max_variables=10_000)
    assert (result.order, result.status) == (None, "refused")
    assert result.variables > 10_000
    program = formulate(tasks)
    assert program is not None
    assert program.size() == result.variables


def test_too_many_dying_sets_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    # One op may overwrite any of four inputs, each of which another op reads as well.
    tensors = tuple(Tensor(f"t{index}", 1 + index % 4) for index in range(13))
    joins = Op("join", "Op", (0, 1, 2, 3), (4, 5, 6, 7), in_place=((4, 0), (5, 1), (6, 2), (7, 3)))
    others = tuple(Op(f"other{index}", "Op", (index,), (8 + index,)) for index in range(4))
    tasks = _tasks(Graph("shared", tensors, (joins, *others), (0, 1, 2, 3), tuple(range(4, 12))))
    program = formulate(tasks)
    assert program is not None
    assert len(program.credits[0]) == 15
    monkeypatch.setattr("memsched.solve.schedule.formulation._MOST_DYING_SETS", 10)
    assert solve(tasks, Run(_LIMITS)).status == "refused"


@pytest.mark.parametrize(("claim", "optimal"), [(10, False), (12, True)])
def test_a_claim_that_liveness_contradicts_is_never_passed_on(
    monkeypatch: pytest.MonkeyPatch, claim: int, optimal: bool
) -> None:
    tasks = _tasks(_wired(5, [(0, 2), (1, 3), (2, 4), (3, 4)], [9, 9, 1, 1, 1]))
    outcome = cpsat._SolverAnswer((0, 2, 1, 3, 4), claim, claim, optimal=optimal, infeasible=False)
    monkeypatch.setattr(cpsat._OrderModel, "search", lambda *_: outcome)
    with fails("peak-claim", f"{claim}", "11"):
        solve(tasks, Run(_LIMITS))


def test_the_result_depends_on_nothing_but_the_seed() -> None:
    tasks = _tasks(_layers(random.Random(9), 6, 4))
    first = solve(tasks, Run(Limits(seed=3)))
    assert first.status == "optimal"
    for workers in (1, 4):
        assert solve(tasks, Run(Limits(seed=3, workers=workers))).order == first.order


@pytest.mark.parametrize(
    ("name", "value"), [("time_limit", -1.0), ("time_limit", float("nan")), ("workers", 0), ("seed", -1)]
)
def test_senseless_limits_name_the_option(name: str, value: float) -> None:
    with fails("option-range", "--" + name.replace("_", "-")):
        Limits(**{name: value})  # type: ignore[arg-type]
