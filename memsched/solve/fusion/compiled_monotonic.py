"""The monotonic fusions of a whole graph by the compiled core: the same as `monotonic` makes, with the same work."""

from __future__ import annotations

import ctypes
import itertools
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from memsched.base.units import MOST_BYTES
from memsched.core.library import StopCallback, library
from memsched.graph.liveness import Storage
from memsched.solve.fusion.monotonic import fuse_monotonic
from memsched.solve.fusion.quotient import FusionState, Quotient, first_excesses

__all__ = ["fused_monotonic"]

_ENDINGS = ("done", "no memory", "no room")


class _OpArrays(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int32) for name in ("ops", "buffers", "reachable")),
        ("budget", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("sizes", "top", "kept", "preds_begin", "preds")),
        *((name, ctypes.c_void_p) for name in ("creates_begin", "creates", "reads_begin", "reads")),
        *((name, ctypes.c_void_p) for name in ("pairs_begin", "created", "taken")),
    )


class _FusionLists(ctypes.Structure):
    _fields_ = (("begin", ctypes.c_void_p), ("numbers", ctypes.c_void_p), ("most", ctypes.c_int32))


class _FusedArrays(ctypes.Structure):
    _fields_ = (
        *((name, _FusionLists) for name in ("members", "preds", "succs", "users", "creates", "reads", "before")),
        *((name, ctypes.c_void_p) for name in ("top", "pairs_left")),
        *((name, ctypes.c_int64) for name in ("work", "fusions")),
    )


def fused_monotonic(
    storage: Storage, reachability_limit: int, budget: int, stop: Callable[[], bool] | None
) -> tuple[Quotient, int]:
    """Return ``storage`` with all monotonic fusions that there are within ``budget``, and their number.

    Args:
        reachability_limit, budget, stop: As `Quotient` takes them.

    Raises:
        MemoryError: There is no room for it.
    """
    core = library()
    if core is not None and storage.reads and sum(storage.sizes) + sum(storage.workspace) < MOST_BYTES:
        found = _by_core(storage, reachability_limit, budget, stop or (lambda: False), core)
        if found is not None:
            return Quotient(storage, reachability_limit, budget, stop, found[0]), found[1]
    graph = Quotient(storage, reachability_limit, budget, stop)
    return graph, len(fuse_monotonic(graph, reversed(graph.tasks())))


@dataclass(frozen=True, slots=True)
class _NumberLists:
    """Lists of numbers that C++ reads or writes: where each begins, and all of them."""

    begins: array[int]
    numbers: array[int]
    most: int = field(default=0)

    @staticmethod
    def of(lists: Iterable[Sequence[int]]) -> _NumberLists:
        known = list(lists)
        begins = array("i", itertools.accumulate(map(len, known), initial=0))
        return _NumberLists(begins, array("i", itertools.chain.from_iterable(known)))

    @staticmethod
    def room(lists: int, most: int) -> _NumberLists:
        return _NumberLists(_zeros(lists + 1), _zeros(most), most)

    def pointers(self) -> tuple[int, int]:
        return _address(self.begins), _address(self.numbers)

    def lists(self) -> list[list[int]]:
        numbers, begins = self.numbers.tolist(), self.begins.tolist()
        return [numbers[begin:end] for begin, end in itertools.pairwise(begins)]


def _zeros(count: int) -> array[int]:
    return array("i", bytes(4 * count))


def _address(numbers: array[int]) -> int:
    return numbers.buffer_info()[0]


def _by_core(
    storage: Storage, reachability_limit: int, budget: int, stop: Callable[[], bool], core: ctypes.CDLL
) -> tuple[FusionState, int] | None:
    """Return the state after the fusions and their number; None where a list outgrew its room."""
    callback = StopCallback(stop)
    ops, buffers = len(storage.reads), len(storage.sizes)
    preds, creates, reads = map(_NumberLists.of, (storage.preds, storage.creates, storage.reads))
    pairs = _NumberLists.of([[read for _, read in takes] for takes in storage.takes])
    sizes, top = array("q", storage.sizes), array("q", first_excesses(storage))
    kept, created = array("i", storage.kept), array("i", [one for takes in storage.takes for one, _ in takes])
    given = _OpArrays(
        ops,
        buffers,
        ops <= reachability_limit,
        budget,
        *map(_address, (sizes, top, kept)),
        *preds.pointers(),
        *creates.pointers(),
        *reads.pointers(),
        *pairs.pointers()[:1],
        _address(created),
        _address(pairs.numbers),
    )
    edges, uses = len(preds.numbers), len(reads.numbers)
    rooms = [_NumberLists.room(ops, most) for most in (ops, edges, edges)]
    rooms += [
        _NumberLists.room(buffers, uses),
        *(_NumberLists.room(ops, most) for most in (len(creates.numbers), uses, uses)),
    ]
    left = _zeros(len(created))
    lists = [_FusionLists(*room.pointers(), room.most) for room in rooms]
    result = _FusedArrays(*lists, _address(top), _address(left))
    ending = _ENDINGS[core.memsched_monotonic(ctypes.byref(given), callback.pointer, ctypes.byref(result))]
    callback.raise_again()
    if ending == "no memory":
        raise MemoryError
    return None if ending == "no room" else (_state(storage, rooms, top, left, result.work), result.fusions)


def _state(
    storage: Storage, rooms: Sequence[_NumberLists], top: array[int], left: array[int], work: int
) -> FusionState:
    preds, succs, users, creates, reads, before = (list(map(set, room.lists())) for room in rooms[1:])
    stays = iter(left)
    pairs = [tuple([pair for pair in takes if next(stays)]) if takes else () for takes in storage.takes]
    return FusionState(
        members=list(map(deque, rooms[0].lists())),
        preds=preds,
        succs=succs,
        creates=creates,
        reads=reads,
        users=users,
        top=top.tolist(),
        before=before,
        pairs=pairs,
        work=work,
    )
