"""A dynamic program over the ops in their order, which chooses one share for each.

A state is what the future depends on: the choices for ops whose results are still needed, and for the ops that have
read them (who holds what). Of states that agree in these, the best is kept: on a chain one state per choice of the
last op. Where there are more states than the width, the best are kept, as in a beam search.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memsched.base.frozen import FrozenValue
from memsched.features.distribute.choices import OpChoices
from memsched.features.distribute.exchange import Boxes, LinkLoads, exchange
from memsched.features.distribute.space import Space
from memsched.graph.distribution import Share
from memsched.targets.cluster import Cluster

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]
    Floats = NDArray[np.float64]

__all__ = ["ProgramResult", "choose"]


class ProgramResult(FrozenValue, frozen=True):
    """What the program found.

    Attributes:
        shares: One per op, in order of execution.
        latency: Seconds, with one step per op.
        memory: Per device, bytes.
        complete: Whether no state was left out, so that nothing among the choices is faster.
    """

    shares: tuple[Share, ...]
    latency: float
    memory: tuple[int, ...]
    complete: bool


@dataclass(slots=True)
class _States:
    """States side by side; arrays are indexed [state] or [state, device].

    Attributes:
        picks: Per position on which something still depends what each state chose there.
        pieces: Per tensor that is still needed the bytes of it that devices hold.
    """

    picks: dict[int, Integers]
    latency: Floats
    weights: Integers
    held: Integers
    most: Integers
    pieces: dict[int, Integers]


def choose(
    space: Space,
    cluster: Cluster,
    choices: Sequence[OpChoices],
    *,
    width: int,
    home: int = 0,
    price: float = 0.0,
    fits: bool = True,
    follow: bool = True,
    stop: Callable[[], bool] | None = None,
) -> ProgramResult | None:
    """Return the best combination of ``choices``, one list per position; None if nothing fits or it was stopped.

    Args:
        width: States that are kept.
        price: Seconds per share of a device's memory that weights take, so that memory is spared from the beginning.
        fits: Leave out what exceeds a device's memory.
        follow: Give an op that works element by element the parts of its input, without a choice of its own.
    """
    return _ShareProgram(space, cluster, choices, width, home, price, fits, follow).run(stop)


class _ShareProgram:
    def __init__(
        self, space: Space, cluster: Cluster, choices: Sequence[OpChoices], width: int, home: int, price: float,
        fits: bool,
        follow: bool,
    ) -> None:  # fmt: skip
        import numpy as np

        self.space, self.cluster, self.choices = space, cluster, choices
        self.width, self.home, self.price, self.fits = width, home, price, fits
        self.limits = np.array([device.memory for device in cluster.devices])
        self.complete = True
        self.history: list[tuple[Integers, Integers]] = []
        """Per position and state that was kept: the state that it came from, and its choice."""
        self.ending: dict[int, list[int]] = {}
        for tensor, last in enumerate(space.last):
            self.ending.setdefault(last, []).append(tensor)
        # The last position that depends on an op's choice: the last reader of what the op makes or reads.
        self.reach = [
            max((space.last[tensor] for tensor in (*space.op(place).outputs, *space.op(place).inputs)), default=place)
            for place in range(len(choices))
        ]
        self.follows = [self._followed(position) if follow else None for position in range(len(choices))]

    def run(self, stop: Callable[[], bool] | None) -> ProgramResult | None:
        import numpy as np

        count, devices = len(self.choices), len(self.cluster.devices)
        zeros = np.zeros((1, devices), dtype=np.int64)
        pieces = dict.fromkeys(self.space.graph.inputs, zeros)
        states = _States({}, np.zeros(1), zeros, zeros, zeros, pieces)
        for position in range(count):
            if stop is not None and stop():
                return None
            grown = self._grow(states, position)
            if grown is None:
                return None
            states = grown
        every = np.arange(len(states.latency))
        links = _Links(states.picks, every, self)
        there = np.zeros((len(every), devices), dtype=bool)
        there[:, self.home] = True
        for tensor in self.space.results:
            received = links.send(tensor, Boxes(there, None, None), count)
            states.held = states.held + received
        latency = states.latency + links.slowest(0.0)
        most = states.weights + np.maximum(states.most, states.held)
        if self.fits:
            exceeding = (most > self.limits).any(axis=1)
            # As in `_grow`, what was left out may have held less.
            self.complete &= not exceeding.any()
            latency = np.where(exceeding, np.inf, latency)
        rank = (latency, most.max(axis=1)) if self.price == np.inf else (latency,)
        best = int(np.lexsort(rank)[0])
        if not np.isfinite(latency[best]):
            return None
        return ProgramResult(
            self._traced(best), float(latency[best]), tuple(int(used) for used in most[best]), self.complete
        )

    def _traced(self, state: int) -> tuple[Share, ...]:
        """Return the shares that led to a state after the last op."""
        result = []
        for mine, (parents, picked) in zip(reversed(self.choices), reversed(self.history), strict=True):
            result.append(mine.shares[picked[state]])
            state = int(parents[state])
        return tuple(reversed(result))

    def _followed(self, position: int) -> Integers | None:
        """Return, per choice of the op before it, the choice that works on exactly the same parts; None for no such op.

        An op that works element by element gains nothing by another division than its input's.
        """
        import numpy as np

        mine = self.choices[position]
        if len(mine.tensors) != 1 or len(mine.own) != 1 or self.space.first[mine.tensors[0]] < 0:
            return None
        tensor = mine.tensors[0]
        maker = self.choices[self.space.first[tensor]]
        place = self.space.op(self.space.first[tensor]).outputs.index(tensor)
        output = self.space.op(position).outputs[0]
        if self.space.extents[output] != self.space.extents[tensor]:
            return None
        if not np.array_equal(mine.own[0].boxes, mine.needs[0].boxes):
            # What cannot be divided as its input (a softmax) has choices of its own.
            return None
        index = {boxes.tobytes(): number for number, boxes in enumerate(mine.own[0].boxes)}
        found = [index.get(boxes.tobytes(), -1) for boxes in maker.own[place].boxes]
        return np.array(found) if min(found) >= 0 else None

    def _grow(self, states: _States, position: int) -> _States | None:
        """Return the states after the op at ``position``: every state with every choice, as far as they are kept."""
        import numpy as np

        mine = self.choices[position]
        before = len(states.latency)
        followed = self.follows[position]
        if followed is not None:
            parents = np.arange(before)
            picked = followed[states.picks[self.space.first[mine.tensors[0]]]]
        else:
            parents = np.repeat(np.arange(before), len(mine.shares))
            picked = np.tile(np.arange(len(mine.shares)), before)
        links = _Links(states.picks, parents, self)
        pieces = {}
        added = np.zeros((len(parents), len(self.limits)), dtype=np.int64)
        for tensor, table in zip(mine.tensors, mine.needs, strict=True):
            received = links.send(tensor, table.at(picked), position)
            pieces[tensor] = states.pieces[tensor][parents] + received
            added += received
        latency = states.latency[parents] + links.slowest(mine.seconds[picked])
        weights = states.weights[parents] + mine.weights[picked]
        held = states.held[parents] + added + mine.made[picked]
        most = np.maximum(states.most[parents], held)
        score = (
            latency + self.price * (weights / self.limits).max(axis=1)
            if self.price != np.inf
            else ((weights + most).max(axis=1) + 1e-3 * latency)
        )
        if self.fits:
            exceeding = ((weights + most) > self.limits).any(axis=1)
            if exceeding.any():
                # A state that was kept may have displaced one that is slower so far but holds less.
                self.complete = False
            score = np.where(exceeding, np.inf, score)
        alive = {place: chosen for place, chosen in states.picks.items() if self.reach[place] > position}
        kept = self._kept([*(chosen[parents] for chosen in alive.values()), picked], score, position)
        if not len(kept):
            return None
        self.history.append((parents[kept], picked[kept]))
        picks = {place: chosen[parents[kept]] for place, chosen in alive.items()}
        picks[position] = picked[kept]
        rest = {tensor: pieces.get(tensor) for tensor in states.pieces}
        result: dict[int, Integers] = {
            tensor: (found[kept] if found is not None else states.pieces[tensor][parents[kept]])
            for tensor, found in rest.items()
        }
        for place, tensor in enumerate(self.space.op(position).outputs):
            extents = self.space.extents[tensor]
            boxes = mine.own[place].boxes[picked[kept]]
            result[tensor] = (boxes[..., 1] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 2]) * extents.cell
        held = held[kept]
        for tensor in self.ending.get(position, ()):
            if tensor in result:
                held = held - result.pop(tensor)
        return _States(picks, latency[kept], weights[kept], held, most[kept], result)

    def _kept(self, picks: Sequence[Integers], score: Floats, position: int) -> Integers:
        """Return the rows of the best state of each kind, the best first, as many as the width.

        Args:
            picks: What states differ in; the last only where something depends on the choice at ``position``.
        """
        import numpy as np

        order = np.argsort(score, kind="stable")
        order = order[np.isfinite(score[order])]
        columns = picks if self.reach[position] > position else picks[:-1]
        if columns and len(order):
            signatures = np.ascontiguousarray(np.stack(columns, axis=1)[order])
            rows = signatures.view([("", signatures.dtype)] * signatures.shape[1]).ravel()
            _, first = np.unique(rows, return_index=True)
            order = order[np.sort(first)]
        else:
            order = order[:1]
        if len(order) > self.width:
            self.complete = False
            order = order[: self.width]
        return order


class _Links:
    """What one step moves, [row, device]; row i belongs to the state ``parents[i]`` of those with ``picks``."""

    def __init__(self, picks: dict[int, Integers], parents: Integers, program: _ShareProgram) -> None:
        self.picks, self.parents, self.program = picks, parents, program
        self.loads = LinkLoads.none((len(parents), len(program.limits)))

    def send(self, tensor: int, need: Boxes, position: int) -> Integers:
        """Note what devices need of a tensor and do not hold; return the bytes that each receives."""
        program, space = self.program, self.program.space
        maker = space.first[tensor]
        holds = []
        owner = None
        if maker >= 0:
            owner = (
                program.choices[maker].own[space.op(maker).outputs.index(tensor)].at(self.picks[maker][self.parents])
            )
            holds.append(owner)
        for reader in space.readers[tensor]:
            if reader < position:
                mine = program.choices[reader]
                holds.append(mine.needs[mine.tensors.index(tensor)].at(self.picks[reader][self.parents]))
        found = exchange(need, holds, owner, space.extents[tensor], program.cluster.router.mode)
        if found is None:
            return self.loads.received * 0
        self.loads.add(found, outside=owner is None)
        return found.received

    def slowest(self, computing: Any) -> Floats:
        """Return the seconds of the slowest device, or of who gives the inputs."""
        import numpy as np

        links, outside = self.loads.seconds(self.program.cluster.router)
        result: Floats = np.maximum((links + computing).max(axis=1), outside)
        return result
