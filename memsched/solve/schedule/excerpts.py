"""Lower bounds for graphs of any size: what a run of consecutive ops needs by itself, whatever runs beside it.

An *excerpt* is a small graph that is made from a window of an order: the ops of the window, one op for each op before
it that gives something to be held there (it creates these buffers), and one for each op after it that waits for the
window (it reads what it reads). Buffers that none of them touches are left out.

No order of the whole needs less than the best order of an excerpt. Proof: take any order of the whole, leave the ops of
the excerpt in it. That is an order of the excerpt: each of its precedences holds in the whole, because an op that
gives comes before the ops of the window that follow it in every order, and one that waits after those that precede it.
Each buffer of the excerpt is live from the same creator to a user that it has in the whole, too, so that what is live
in a step of the excerpt is live in that step of the whole, and what is left out only adds to it. Where an op of the
window writes over a buffer that dies there in the whole, all users of the buffer have run, so that it dies in the
excerpt as well, and what is saved in the whole is saved in the excerpt. An op that gives counts only what it creates,
beside buffers that are needed after it: in the whole these are not overwritten in its step. One that waits counts
nothing beside what is held when it begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from memsched.base.frozen import FrozenValue
from memsched.graph.dag import members
from memsched.graph.liveness import Storage, evaluate
from memsched.graph.model import Graph, Op, Tensor
from memsched.solve.fusion.iterate import fuse
from memsched.solve.schedule import exact
from memsched.solve.schedule.segments import split

__all__ = ["EXCERPTS", "ExcerptBound", "excerpt", "raise_bound"]

EXCERPTS = "some of the ops need as much by themselves in every order"
"""What it proves, in words."""

_REACH = 4_000
"""Ops before and after a window, of which those are looked for that give to it or wait for it."""

_WINDOWS = (96, 112, 128, 160, 192, 256, 384)
"""Ops of a window: longer ones where shorter ones prove too little."""

_MOST_BESIDE = 2
"""Ops beside those of the window, per op of it; buffers that would need more are left out, the smallest first."""

_TRIED = 12
"""Windows of each length that are tried, those with the largest footprints first."""


class ExcerptBound(FrozenValue, frozen=True):
    """What is proven: bytes that every order needs, and the states visited."""

    lower_bound: int
    states: int


def raise_bound(
    storage: Storage,
    order: Sequence[int],
    *,
    lower_bound: int,
    states_per_window: int,
    stop: Callable[[], bool],
    on_bound: Callable[[int], None],
    on_states: Callable[[int, int], None],
) -> ExcerptBound:
    """Return the largest bound that windows of ``order`` prove, starting with those that need most in it.

    Args:
        order: A topological order of all ops, the better the more is proven.
        lower_bound: Bytes that every order is known to need.
        states_per_window: Downsets that the search of one excerpt may expand.
        stop: Polled often; True ends it with what is proven.
        on_bound: Called with each larger bound.
        on_states: Called with the states and the tasks of each excerpt.
    """
    footprints = evaluate(storage, order).footprints
    peak, states = max(footprints, default=lower_bound), 0
    places = [0] * len(order)
    for place, op in enumerate(order):
        places[op] = place
    for length in _WINDOWS:
        for start in _starts(footprints, length):
            end = min(start + length, len(order))
            if lower_bound >= peak or stop():
                return ExcerptBound(lower_bound, states)
            if max(footprints[start:end]) <= lower_bound:
                break
            graph = excerpt(storage, order, places, start, end)
            found = _search(graph, lower_bound - storage.variables, peak - storage.variables, states_per_window, stop)
            states += found.states
            on_states(found.states, len(graph.ops))
            if found.lower_bound + storage.variables > lower_bound:
                lower_bound = found.lower_bound + storage.variables
                on_bound(lower_bound)
    return ExcerptBound(lower_bound, states)


def _starts(footprints: Sequence[int], length: int) -> list[int]:
    """Return where windows around the largest footprints begin, the most demanding first, few of which overlap."""
    block = length // 2
    largest = [
        max(range(begin, min(begin + block, len(footprints))), key=lambda step: (footprints[step], -step))
        for begin in range(0, len(footprints), block)
    ]
    chosen = sorted(largest, key=lambda step: (-footprints[step], step))[:_TRIED]
    return list(dict.fromkeys(max(0, min(step - block, len(footprints) - length)) for step in chosen))


def _search(graph: Graph, lower_bound: int, upper_bound: int, states: int, stop: Callable[[], bool]) -> ExcerptBound:
    """Return what is proven of an excerpt, bytes that all of its orders need."""
    tasks = fuse(Storage.of(graph), stop=stop).tasks
    spent = 0
    for part, _ in split(tasks):
        found = exact.search(
            part,
            lower_bound=max(0, lower_bound),
            upper_bound=upper_bound,
            max_states=max(1, states - spent),
            stop=stop,
        )
        spent += found.states
        lower_bound = max(lower_bound, found.lower_bound)
    return ExcerptBound(lower_bound, spent)


def excerpt(storage: Storage, order: Sequence[int], places: Sequence[int], start: int, end: int) -> Graph:
    """Return the excerpt of the window [start, end) of ``order``; what is always live is left out.

    Args:
        places: Per op its place in ``order``.
    """
    return _Excerpt(storage, order, places, start, end).graph()


class _Excerpt:
    """A window of an order, and which ops near it follow or precede which of its own."""

    def __init__(self, storage: Storage, order: Sequence[int], places: Sequence[int], start: int, end: int) -> None:
        self._storage, self._places, self._start, self._end = storage, places, start, end
        self._window = order[start:end]
        self._bit = {op: 1 << number for number, op in enumerate(self._window)}
        self._before = order[max(0, start - _REACH) : start]
        self._after = order[end : end + _REACH]
        # Per op near the window the ops of the window that follow it, or precede it, in every order.
        self._following = self._reached((*self._before, *self._window)[::-1], storage.succs)
        self._preceding = self._reached((*self._window, *self._after), storage.preds)

    def _reached(self, ops: Iterable[int], edges: Sequence[Sequence[int]]) -> dict[int, int]:
        """Return per op of ``ops`` the window's ops that its ``edges`` lead to, which come first in ``ops``."""
        found: dict[int, int] = {}
        for op in ops:
            bits = 0
            for other in edges[op]:
                bits |= found.get(other, 0) | self._bit.get(other, 0)
            if bits:
                found[op] = bits
        return found

    def graph(self) -> Graph:
        """Return the excerpt."""
        held = self._held()
        storage, window = self._storage, set(self._window)
        givers = dict.fromkeys(storage.creator[buffer] for buffer in held if storage.creator[buffer] not in window)
        givers.pop(-1, None)
        waiters = self._waiters(held)
        number = {buffer: place for place, buffer in enumerate(held)}
        numbers = {op: place for place, op in enumerate((*givers, *self._window, *waiters))}
        ops = [
            *(self._op(giver, "give", (), storage.creates[giver], number) for giver in givers),
            *(self._op(op, "Op", storage.reads[op], storage.creates[op], number) for op in self._window),
            *(self._op(waiter, "wait", storage.reads[waiter], (), number) for waiter in waiters),
        ]
        edges = [(before, op) for op in self._window for before in storage.preds[op] if before in window]
        for giver in givers:
            edges += [(giver, op) for op in self._first(self._following[giver])]
        for waiter in waiters:
            edges += [(op, waiter) for op in self._last(self._preceding[waiter])]
        made = {tensor for op in ops for tensor in op.outputs}
        return Graph(
            name="excerpt",
            tensors=tuple(Tensor(f"b{buffer}", storage.sizes[buffer]) for buffer in held),
            ops=tuple(ops),
            inputs=tuple(tensor for tensor in range(len(held)) if tensor not in made),
            outputs=tuple(number[buffer] for buffer in held if storage.kept[buffer]),
            dependencies=tuple((numbers[before], numbers[after]) for before, after in edges),
        )

    def _op(self, op: int, kind: str, reads: Sequence[int], creates: Sequence[int], number: Mapping[int, int]) -> Op:
        own = kind == "Op"
        return Op(
            name=f"{kind}{op}",
            type=kind,
            inputs=tuple(number[buffer] for buffer in reads if buffer in number),
            outputs=tuple(number[buffer] for buffer in creates if buffer in number),
            workspace=self._storage.workspace[op] if own else 0,
            in_place=tuple((number[a], number[b]) for a, b in self._storage.takes[op] if a in number and b in number)
            if own
            else (),
        )

    def _held(self) -> list[int]:
        """Return the buffers that are told of: those of the window, and the largest of those held over it."""
        storage = self._storage
        inner = dict.fromkeys(buffer for op in self._window for buffer in storage.creates[op] if storage.sizes[buffer])
        read = dict.fromkeys(buffer for op in self._window for buffer in storage.reads[op] if storage.sizes[buffer])
        over = [
            buffer
            for op in self._before
            if op in self._following
            for buffer in storage.creates[op]
            if buffer not in read and storage.sizes[buffer] and (storage.kept[buffer] or self._waited_for(buffer))
        ]
        outer = [buffer for buffer in read if buffer not in inner and self._given(buffer)]
        most = _MOST_BESIDE * len(self._window)
        outer = sorted([*outer, *over], key=lambda buffer: (-storage.sizes[buffer], buffer))[:most]
        return [*inner, *sorted(outer)]

    def _given(self, buffer: int) -> bool:
        """Return whether a buffer that the window reads is there from the beginning, or its creator is in reach."""
        creator = self._storage.creator[buffer]
        return creator < 0 or creator in self._following

    def _waited_for(self, buffer: int) -> bool:
        return any(user in self._preceding for user in self._storage.users[buffer] if self._places[user] >= self._end)

    def _waiters(self, held: Iterable[int]) -> list[int]:
        """Return the ops behind the window that hold a buffer longer than the window does."""
        found: dict[int, int] = {}
        for buffer in held:
            if self._storage.kept[buffer]:
                continue
            for user in self._storage.users[buffer]:
                if self._places[user] >= self._end and user in self._preceding:
                    found[user] = max(found.get(user, 0), self._storage.sizes[buffer])
        most = sorted(found, key=lambda op: (-found[op], self._places[op]))[: _MOST_BESIDE * len(self._window)]
        return sorted(most, key=self._places.__getitem__)

    def _first(self, bits: int) -> list[int]:
        """Return those of a set of the window's ops that follow no other of it."""
        ops = [self._window[place] for place in members(bits)]
        return [op for op in ops if not self._preceding.get(op, 0) & bits]

    def _last(self, bits: int) -> list[int]:
        """Return those of a set of the window's ops that precede no other of it."""
        ops = [self._window[place] for place in members(bits)]
        return [op for op in ops if not self._following.get(op, 0) & bits]
