"""Fast rematerialisation: drop what lies idle at the peak, and compute it again just before it is read."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise

from memsched.base.frozen import FrozenValue
from memsched.rewrites.recompute.trace import SequenceRun, Tracer

__all__ = ["GreedyResult", "reduce_to"]

_LOOKED_AT = 24
"""Candidates executed per round: those that save most for their cost by a first estimate."""

_LONGEST_CHAIN = 12

_REACH = 40
"""Steps after the peak whose ops are tried before it."""

_MOST_GAPS = 12

_PAIRS = 8
"""First repetitions that are tried with a second one."""


class GreedyResult(FrozenValue, frozen=True):
    """What the greedy came to: a sequence, its peak in bytes, and the cost of its repetitions."""

    sequence: tuple[int, ...]
    peak: int
    cost: int


class _RepetitionCandidate(FrozenValue, frozen=True):
    """Ops to execute again before steps, with the bytes x steps over the budget that they save at best, and cost."""

    places: tuple[tuple[int, tuple[int, ...]], ...]
    saves: int
    cost: int


def reduce_to(
    tracer: Tracer,
    sequence: Sequence[int],
    budget: int,
    *,
    most_cost: int | None = None,
    rng: random.Random | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> GreedyResult:
    """Return a sequence with a peak of ``budget`` bytes at most, or the one of the least peak on the way there.

    Each round looks at the values that lie idle at the highest step, and takes the repetition that saves most of the
    bytes over the budget, summed over all steps, for its cost; new peaks that it makes count against it. A repetition
    comes before the next read of its value, or, where that needs less, after the last read of its inputs.

    Args:
        sequence: Where to begin, with or without repetitions.
        most_cost: End when the repetitions cost more.
        rng: Disturbs the choices, for searches that begin again and again; None for the same choice always.
    """
    state = _SequenceState(tracer, sequence, budget)
    reached = GreedyResult(state.sequence, state.run.peak, tracer.cost(state.sequence))
    while state.over and not stop():
        found = _moved(state) or _best(state, rng) or _pair(state, stop)
        if found is None:
            break
        state = found
        cost = tracer.cost(state.sequence)
        if most_cost is not None and cost > most_cost:
            break
        if state.run.peak < reached.peak:
            reached = GreedyResult(state.sequence, state.run.peak, cost)
    return reached


class _SequenceState:
    """A sequence, what it does, and by how much it is over the budget."""

    def __init__(self, tracer: Tracer, sequence: Sequence[int], budget: int) -> None:
        self.tracer = tracer
        self.budget = budget
        self.sequence = tuple(sequence)
        self.run = tracer.run(self.sequence, uses=True)
        self.over = _over(self.run, budget)

    def with_(self, one: _RepetitionCandidate) -> tuple[int, ...]:
        """Return the sequence with a repetition more."""
        parts: list[int] = []
        done = 0
        for step, ops in one.places:
            parts += [*self.sequence[done:step], *ops]
            done = step
        return (*parts, *self.sequence[done:])

    def then(self, one: _RepetitionCandidate) -> _SequenceState:
        """Return the state with a repetition more."""
        return _SequenceState(self.tracer, self.tracer.needed(self.with_(one)), self.budget)

    def candidates(self) -> list[_RepetitionCandidate]:
        """Return ways to lower the highest step, those first that save most for their cost by a first estimate."""
        return list(dict.fromkeys(_candidates(self, self.run.footprints.index(self.run.peak))))


def _over(run: SequenceRun, budget: int) -> int:
    """Return the bytes over the budget, summed over the steps; the highest step counts as much as all others."""
    total = sum([bytes_ - budget for bytes_ in run.footprints if bytes_ > budget])
    return total + max(0, run.peak - budget) * 4


def _moved(state: _SequenceState) -> _SequenceState | None:
    """Return the state after the one move of an execution that helps most, which costs nothing; None without one."""
    best: tuple[int, ...] | None = None
    least = state.over
    for sequence in _moves(state, state.run.footprints.index(state.run.peak)):
        over = _over(state.tracer.run(sequence), state.budget)
        if over < least:
            best, least = sequence, over
    return None if best is None else _SequenceState(state.tracer, state.tracer.needed(best), state.budget)


def _moves(state: _SequenceState, peak: int) -> Iterator[tuple[int, ...]]:
    """Yield sequences in which a value that is read only after the step ``peak`` is computed after it, too.

    And sequences in which an op that could run before that step does.
    """
    sequence, run, tracer = state.sequence, state.run, state.tracer
    first_use: dict[int, int] = {}
    # What an op makes, less what dies in it: the bytes by which the residue grows.
    grows = [0] * (len(sequence) + 1)
    for buffer, (birth, last) in enumerate(zip(run.birth, run.last, strict=True)):
        grows[last] -= run.sizes[buffer]
        if birth >= 0:
            grows[birth] += run.sizes[buffer]
        if 0 <= birth <= peak:
            end = run.uses[buffer][0][0] if run.uses[buffer] else last
            first_use[birth] = min(first_use.get(birth, end), end)
    for birth, use in first_use.items():
        if use > peak and use > birth + 1 and grows[birth] > 0:
            yield (*sequence[:birth], *sequence[birth + 1 : use], sequence[birth], *sequence[use:])
    made: dict[int, int] = {}
    for step in range(min(len(sequence), peak + _REACH)):
        op = sequence[step]
        if step > peak and grows[step] < 0:
            makers = [tracer.producer[tensor] for tensor in tracer.reads[op]]
            if all(maker < 0 or made[maker] < peak for maker in makers):
                yield (*sequence[:peak], op, *sequence[peak:step], *sequence[step + 1 :])
        made[op] = step


def _best(state: _SequenceState, rng: random.Random | None = None) -> _SequenceState | None:
    """Return the state after the best of those repetitions that help; None where none does."""
    candidates = state.candidates()
    noise = {one: rng.uniform(0.3, 1.0) for one in candidates} if rng else {}
    candidates.sort(key=lambda one: (-one.saves * noise.get(one, 1.0) / one.cost, one.places))
    chosen: _RepetitionCandidate | None = None
    best = 0.0
    for place, one in enumerate(candidates):
        if place >= _LOOKED_AT and chosen is not None:
            break
        if state.over * noise.get(one, 1.0) / one.cost <= best:
            continue
        after = _over(state.tracer.run(state.with_(one)), state.budget)
        rate = (state.over - after) * noise.get(one, 1.0) / one.cost
        if rate > best:
            chosen, best = one, rate
    return None if chosen is None else state.then(chosen)


def _pair(state: _SequenceState, stop: Callable[[], bool]) -> _SequenceState | None:
    """Return the state after two repetitions that help together, although neither helps alone; None without one.

    Two values that are computed from one input are like that: what keeping it takes is repaid by both only.
    """
    judged = []
    for one in state.candidates():
        run = state.tracer.run(state.with_(one))
        judged.append((_over(run, state.budget), one.places, one))
    best: _SequenceState | None = None
    for _, _, one in sorted(judged, key=lambda entry: entry[:2])[:_PAIRS]:
        if stop():
            break
        second = _best(state.then(one))
        if second is not None and second.over < (best or state).over:
            best = second
    return best


def _candidates(state: _SequenceState, peak: int) -> Iterator[_RepetitionCandidate]:
    """Yield ways to drop a value that lies idle at the step ``peak``."""
    tracer, run = state.tracer, state.run
    spans = _Spans(tracer, state.sequence, run, state.budget)
    for buffer, (birth, last) in enumerate(zip(run.birth, run.last, strict=True)):
        if not 0 <= birth < peak < last or not run.sizes[buffer]:
            continue
        uses = run.uses[buffer]
        if any(step == peak for step, _ in uses):
            continue
        left = max([step for step, _ in uses if step < peak], default=birth)
        later = [(step, tensor) for step, tensor in uses if step > peak]
        if not later:
            continue
        saves = run.sizes[buffer] * spans.heavy(left + 1, later[0][0])
        tensors = tuple(dict.fromkeys(tensor for _, tensor in later))
        for step, ops, kept in spans.chains(buffer, tensors, peak, later[0][0], saves):
            yield _RepetitionCandidate(((step, ops),), saves - kept, sum(tracer.costs[op] for op in ops))
        yield from _everywhere(state, spans, buffer, tensors)


def _everywhere(
    state: _SequenceState, spans: _Spans, buffer: int, tensors: tuple[int, ...]
) -> Iterator[_RepetitionCandidate]:
    """Yield the way to drop a value between all its reads.

    That helps where dropping it once does not: when what it is computed from must then be kept in its place, but is
    smaller, and when its readers may overwrite it as soon as no other needs it.
    """
    tracer, run = state.tracer, state.run
    steps = sorted({step for step, _ in run.uses[buffer]})
    gaps = [(left, right) for left, right in pairwise([run.birth[buffer], *steps]) if right > left + 1]
    if not 1 < len(gaps) <= _MOST_GAPS:
        return
    places = []
    saves = 0
    for left, right in gaps:
        first = next(spans.chains(buffer, tensors, left, right, 0), None)
        if first is None:
            return
        places.append((right, first[1]))
        saves += run.sizes[buffer] * spans.heavy(left + 1, right)
    yield _RepetitionCandidate(tuple(places), saves, sum(tracer.costs[op] for _, ops in places for op in ops))


class _Spans:
    """Until when the values of a sequence are there."""

    def __init__(self, tracer: Tracer, sequence: Sequence[int], run: SequenceRun, budget: int) -> None:
        self._tracer = tracer
        self._sequence = sequence
        self._run = run
        self._made: dict[int, list[int]] = {}
        self._uses: dict[int, list[int]] = {}
        for step, op in enumerate(sequence):
            self._made.setdefault(op, []).append(step)
            for tensor in tracer.reads[op]:
                self._uses.setdefault(tensor, []).append(step)
        self._heavy = [0, *accumulate(bytes_ > budget for bytes_ in run.footprints)]
        self._known: dict[tuple[int, int], tuple[int, bool]] = {}

    def heavy(self, first: int, end: int) -> int:
        """Return how many of the steps ``first`` to ``end`` - 1 are over the budget."""
        return max(0, self._heavy[end] - self._heavy[first]) if first < end else 0

    def _last_read(self, tensor: int, before: int) -> tuple[int, bool]:
        """Return the last step before ``before`` that reads or makes the tensor, and whether one after it reads it.

        The latter only of the value that is there at ``before``.
        """
        if (tensor, before) not in self._known:
            made = self._made.get(self._tracer.producer[tensor], [])
            place = bisect_left(made, before)
            birth = made[place - 1] if place else -1
            again = made[place] if place < len(made) else len(self._sequence)
            uses = self._uses.get(tensor, [])
            at = bisect_left(uses, before)
            later = (at < len(uses) and uses[at] <= again) or (again == len(self._sequence) and tensor in self._outputs)
            self._known[tensor, before] = max(birth, uses[at - 1] if at else birth), later
        return self._known[tensor, before]

    @property
    def _outputs(self) -> tuple[int, ...]:
        return self._tracer.graph.outputs

    def chains(
        self, buffer: int, tensors: Sequence[int], peak: int, before: int, saves: int
    ) -> Iterator[tuple[int, tuple[int, ...], int]]:
        """Yield (step, ops, kept): what to execute again, in order, so that ``tensors`` are there anew at ``before``.

        The chains differ in which inputs are kept longer: all, those that outlive the peak, those that are there
        anyway, or those that are small. ``kept`` is the bytes times steps over the budget that this takes.
        """
        tracer = self._tracer
        for rule in range(4):
            chosen = self._closure(buffer, tensors, peak, before, (rule, saves))
            if chosen is None:
                continue
            ops = tuple(sorted(chosen))
            inner = {tensor for op in ops for tensor in tracer.graph.ops[op].outputs}
            outer = dict.fromkeys(tensor for op in ops for tensor in tracer.reads[op] if tensor not in inner)
            ends = [(tensor, *self._last_read(tensor, before)) for tensor in outer]
            kept = sum(self._area(tensor, end, before) for tensor, end, later in ends if not later)
            yield before, ops, kept
            # Where the inputs are larger than what they give, early is better.
            early = max([end for _, end, later in ends if not later and end > peak], default=-1) + 1
            if peak < early < before:
                yield early, ops, sum(self._area(tensor, end, early) for tensor, end, later in ends if not later)

    def _area(self, tensor: int, end: int, before: int) -> int:
        return self._tracer.graph.tensors[tensor].size * self.heavy(end + 1, before)

    def _closure(
        self, buffer: int, tensors: Sequence[int], peak: int, before: int, rule: tuple[int, int]
    ) -> set[int] | None:
        tracer = self._tracer
        stack = [tracer.producer[tensor] for tensor in tensors]
        chosen: set[int] = set()
        while stack:
            op = stack.pop()
            if op in chosen:
                continue
            if op < 0 or not tracer.repeat[op] or len(chosen) >= _LONGEST_CHAIN:
                return None
            chosen.add(op)
            sources = {source for _, source in tracer.graph.ops[op].views}
            for tensor in tracer.reads[op]:
                end, later = self._last_read(tensor, before)
                maker = tracer.producer[tensor]
                # A view does not leave the bytes that it shows: they are computed anew as well.
                dropped = tensor in sources and (
                    self._birth(maker, before) == self._run.birth[buffer] or bool(tracer.graph.ops[maker].views)
                )
                keep = later or rule[0] == 0 or (rule[0] == 1 and end > peak)
                keep = keep or (rule[0] == 3 and 3 * self._area(tensor, end, before) < rule[1])
                if maker >= 0 and (dropped or (not keep and tracer.repeat[maker])):
                    stack.append(maker)
        return chosen

    def _birth(self, op: int, before: int) -> int:
        made = self._made.get(op, [])
        place = bisect_left(made, before)
        return made[place - 1] if place else -1
