"""Which images are kept, and in which loops all others are computed: the least memory for some more work.

An image that is not kept is computed in every loop that needs rows of it. The peak of a plan is found by liveness over
its steps: nodes as they are, and loops. Operators on small images stay nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from memsched.base.frozen import FrozenValue
from memsched.formats.onnx.blocks.regions import names_read
from memsched.formats.onnx.blocks.rows.field import RowField, RowOp
from memsched.formats.onnx.blocks.rows.loops import RowLoop, Statistic, spans_of
from memsched.formats.onnx.worth import GAIN

__all__ = ["BLOCK_PART", "LIVE", "LoopWorks", "RowPlan", "arrange", "choose"]

BLOCK_PART: Final = 16
"""Images that a block holds at once may take together this part of the largest that is kept."""

LIVE: Final = 3
"""Large images that a block holds at once."""

_POWER: Final = 12
"""The exponent of steps in the sum that a search lowers, which has the largest count most."""

_NEAR: Final = 0.9
"""Plans whose peak is above this part of another one's are not worth more work."""

_MOST_TRIED: Final = 12_000
"""Plans of a field that are looked at, about a millisecond each."""

_PARTS: Final = (4, 8, 16, 64)
"""Images smaller than one of these parts of the largest stay as they are."""


class RowPlan(FrozenValue, frozen=True):
    """Loops, and what they take.

    Attributes:
        loops: In order of execution.
        runs: Places in ``loops`` of those that one loop of the graph carries out in turn, of all of them.
        whole: Images that loops make and nodes read.
        peak: Bytes of images at once, at the sizes of the field.
        work: In multiplications, for all operators of the field.
        memory: Bytes at each step.
        live: Images at each step.
        given: Images that stay as the nodes make them.
    """

    loops: tuple[RowLoop, ...]
    runs: tuple[tuple[int, ...], ...]
    whole: frozenset[str]
    peak: float
    work: float
    memory: tuple[float, ...]
    live: tuple[frozenset[str], ...]
    given: frozenset[str]


def choose(field: RowField, most_work: Sequence[float], block_bytes: int) -> Sequence[RowPlan]:
    """Return for every limit of work the plan of least peak, each once, least work first; none that gains little.

    Args:
        most_work: As multiples of the work of the graph as it is.
        block_bytes: What the large images of a block may take at least.
    """
    if not field.ops:
        return ()
    works = LoopWorks(field, block_bytes)
    least = arrange(works, frozenset(), field.largest).peak / GAIN
    limits = [one * field.work for one in sorted(most_work)]
    best: dict[float, RowPlan] = {}
    for part in _PARTS:
        search = _Search(works, limits[-1], field.largest // part)
        for limit in limits:
            found = search.within(limit)
            known = best.get(limit)
            # With fewer nodes in loops, fewer weights are held several times.
            if found is not None and found.loops and (known is None or found.peak < _NEAR * known.peak):
                best[limit] = found
    plans = [best[limit] for limit in limits if limit in best and best[limit].peak <= least]
    return [plan for place, plan in enumerate(plans) if not place or plan.peak < _NEAR * plans[place - 1].peak]


def _rank(plan: RowPlan) -> tuple[float, float]:
    return plan.peak, plan.work


class _Search:
    """Keeps fewer and fewer images, always the one that lowers the peak most for its work.

    Args:
        most: Work that a plan may have.
        small: Bytes of images that stay as they are.
    """

    def __init__(self, works: LoopWorks, most: float, small: int) -> None:
        self.works, self.field, self.most, self.small = works, works.field, most, small
        self.path = [(self.field.heavy, self._plan(self.field.heavy))]
        while self.works.tried < _MOST_TRIED and (after := self._next(*self.path[-1])) is not None:
            self.path.append(after)

    def within(self, limit: float) -> RowPlan | None:
        """Return the plan of least peak whose work is within a limit; None where there is none."""
        known = [one for one in self.path if one[1].work <= limit]
        return self._thrifty(*min(known, key=lambda one: _rank(one[1]))) if known else None

    def _next(self, kept: frozenset[str], plan: RowPlan) -> tuple[frozenset[str], RowPlan] | None:
        at_peak = plan.live[plan.memory.index(plan.peak)]
        found: tuple[float, str, RowPlan] | None = None
        for name in sorted((at_peak & kept) - self.field.wanted - plan.given):
            after = self._plan(kept - {name})
            gain = _pressure(plan) - _pressure(after)
            worth = gain / max(after.work - plan.work, 1e-3 * self.field.work)
            if gain > 0 and after.work <= self.most and (found is None or worth > found[0]):
                found = worth, name, after
        return None if found is None else (kept - {found[1]}, found[2])

    def _thrifty(self, kept: frozenset[str], plan: RowPlan) -> RowPlan:
        """Keep again what spares work and does not raise the peak."""
        for name in sorted(self.field.heavy - kept, key=lambda one: (-self._work(one), one)):
            after = self._plan(kept | {name})
            if after.peak <= plan.peak and after.work < plan.work:
                kept, plan = kept | {name}, after
        return plan

    def _work(self, name: str) -> float:
        return self.field.ops[self.field.maker[name]].work

    def _plan(self, kept: frozenset[str]) -> RowPlan:
        return arrange(self.works, kept, self.small)


def _pressure(plan: RowPlan) -> float:
    """Return a mean of the bytes of all steps that the largest dominate."""
    scale = max(plan.memory, default=1.0) or 1.0
    total: float = sum((size / scale) ** _POWER for size in plan.memory)
    mean: float = scale * total ** (1 / _POWER)
    return mean


def arrange(works: LoopWorks, kept: frozenset[str], small: int) -> RowPlan:
    """Return the plan that keeps some images.

    Args:
        small: Operators on images of at most so many bytes stay as they are.
    """
    return _Arrangement(works, kept, small).plan()


@dataclass(slots=True)
class _Draft:
    """A loop that may still get targets.

    Attributes:
        after: The last step that has to be over before it begins; of others it needs one block after the other.
    """

    ops: set[int]
    made: list[str]
    statistics: list[Statistic]
    after: int = -1


class _Arrangement:
    """Goes through the graph and collects steps.

    Args:
        kept: Images that are kept.
        small: Bytes of images whose operators stay as they are.
    """

    def __init__(self, works: LoopWorks, kept: frozenset[str], small: int) -> None:
        self.works, self.field = works, works.field
        field = works.field
        sizes = field.graph.bytes_of
        self.plain = {
            number
            for number, op in enumerate(field.ops)
            if all(sizes(name) <= small for name in (*op.images, *(() if op.is_summary else op.outputs)))
        }
        by_rows = {name for name, number in field.maker.items() if number not in self.plain}
        read = {name for number in self.plain for name in field.ops[number].images}
        self.whole = frozenset(name for name in by_rows if name in read or name in field.wanted)
        self.lost = frozenset(name for name in by_rows if name not in kept and name not in self.whole)
        self.blocks = by_rows - self.lost - self.whole
        self.ready: dict[object, int] = {}
        self.steps: list[int | _Draft] = []
        self.drafts: dict[object, list[int]] = {}
        self._collect()

    def _collect(self) -> None:
        field = self.field
        for place in range(len(field.graph.nodes)):
            number = field.at.get(place)
            if number is None:
                if not field.asks_shape(place):
                    self._outside(place)
                continue
            op = field.ops[number]
            if place != op.nodes[-1]:
                continue
            if number in self.plain:
                self._outside(*op.nodes)
            elif op.statistic is not None and (op.is_summary or op.outputs[0]):
                self._target(op.statistic, op.images[0])
                if op.is_summary:
                    self.ready[op.outputs[0]] = self.ready[op.statistic]
            if number not in self.plain and not op.is_summary:
                for name in op.outputs:
                    if name not in self.lost:
                        self._target(name, name)

    def _outside(self, *places: int) -> None:
        """Add nodes that stay as they are."""
        nodes = [self.field.graph.nodes[place] for place in places]
        read = {name for node in nodes for name in names_read(node)}
        made = [name for node in nodes for name in node.output if name]
        images = self.field.images
        ready = max((self.ready.get(name, -1) for name in read), default=-1)
        if not images.isdisjoint(read) or not images.isdisjoint(made):
            self.steps.append(places[-1])
            ready = len(self.steps) - 1
        self.ready.update((name, ready) for name in made)

    def _target(self, key: str | Statistic, name: str) -> None:
        """Put a target into a loop: one that computes much of it anyway, or one of its own."""
        if key in self.ready:
            return
        cone = self._cone(name) if isinstance(key, str) or name in self.lost else set()
        needed = self._needed(cone, name if not cone else None)
        grid = self.field.grids[name]
        keys: list[object] = [(grid, number) for number in cone] if cone else [name]
        keys += [(grid, one) for one in sorted(self._read_by(cone))]
        drafts = sorted({place for one in keys for place in self.drafts.get(one, ())})
        late = max((self.ready.get(one, -1) for one in needed), default=-1)
        place = next((one for one in drafts if not cone or late < one), None)
        if place is None:
            place = len(self.steps)
            self.steps.append(_Draft(set(), [], []))
        draft = self.steps[place]
        if isinstance(draft, _Draft):
            for one in (*(cone - draft.ops), *self._read_by(cone - draft.ops)):
                self.drafts.setdefault((grid, one), []).append(place)
            self.drafts.setdefault(name, []).append(place)
            draft.ops |= cone
            at_once = (one for one in needed if isinstance(one, str) and one not in self.blocks)
            draft.after = max([draft.after, *(self.ready.get(one, -1) for one in at_once)])
            if isinstance(key, str):
                draft.made.append(key)
            else:
                draft.statistics.append(key)
        self.ready[key] = place

    def _cone(self, name: str) -> set[int]:
        """Return the operators that a body computes for an image."""
        found: set[int] = set()
        waiting = [name]
        first = True
        while waiting:
            one = waiting.pop()
            number = self.field.maker.get(one)
            if number is None or number in found or not (first or one in self.lost):
                first = False
                continue
            first = False
            found.add(number)
            waiting.extend(self.field.ops[number].images)
        return found

    def _read_by(self, cone: set[int]) -> set[str]:
        """Return images in blocks that a body reads."""
        return {name for number in cone for name in self.field.ops[number].images if name in self.blocks}

    def _needed(self, cone: set[int], alone: str | None) -> set[object]:
        """Return what has to be made before a body runs."""
        found: set[object] = {alone} if alone is not None else set()
        for number in cone:
            op = self.field.ops[number]
            found.update(op.others)
            found.update(name for name in op.images if name not in self.lost)
            if op.statistic is not None:
                found.add(op.statistic)
        return found

    def plan(self) -> RowPlan:
        """Return the plan with what it takes."""
        self.works.tried += 1
        field, block_bytes = self.field, self.works.block_bytes
        loops = {place: self._loop(draft) for place, draft in enumerate(self.steps) if isinstance(draft, _Draft)}
        read = [self._read(place, loops) for place in range(len(self.steps))]
        made = [self._made(place, loops) for place in range(len(self.steps))]
        last = {name: place for place, names in enumerate(read) for name in names}
        runs = self._runs(loops, made, last)
        ends = {place: run[-1] for run in runs for place in run}
        eaten = self._eaten(runs, made, last)
        for place in loops:
            last.update((name, max(last[name], ends[place])) for name in read[place] - eaten)
        live: set[str] = set()
        memory, lives = [], []
        for place in range(len(self.steps)):
            before, live = live, live | made[place]
            lives.append(frozenset(live))
            dying = {name for name in before & eaten if last[name] == place}
            size = float(max(self._bytes(before), self._bytes(live - dying)))
            if place in loops:
                whole = {name for one in loops if ends[one] == place for name in made[one] & self.whole}
                size += max(block_bytes, field.largest / BLOCK_PART, self._bytes(whole))
            memory.append(size)
            live = {name for name in live if last.get(name, -1) > place or name in field.graph.results}
        # From the second run of a size on, the runtime takes what the nodes outside of loops need at once.
        apart = {name for place in loops for name in made[place] - self.whole}
        pattern = max((self._bytes(one - apart) for one in lives), default=0)
        memory = [size + pattern if place in loops else size for place, size in enumerate(memory)]
        work = sum(field.ops[number].work for number in self.plain)
        work += sum(self.works.of(loop) for loop in loops.values())
        given = frozenset(name for place, names in enumerate(made) if place not in loops for name in names)
        numbers = {place: number for number, place in enumerate(loops)}
        return RowPlan(
            tuple(loops.values()),
            tuple(tuple(numbers[place] for place in run) for run in runs),
            frozenset(name for place in loops for name in made[place] & self.whole),
            max(memory, default=0.0),
            work,
            tuple(memory),
            tuple(lives),
            given,
        )

    def _bytes(self, names: Iterable[str]) -> int:
        return sum(map(self.field.graph.bytes_of, names))

    def _runs(self, loops: Mapping[int, RowLoop], made: Sequence[set[str]], last: Mapping[str, int]) -> list[list[int]]:
        """Return loops, by their steps, that one loop of the graph can carry out, where images pass between them."""
        runs: list[list[int]] = []
        for place in loops:
            step = self.steps[place]
            run = runs[-1] if runs else []
            follows = bool(run) and run[-1] == place - 1 and isinstance(step, _Draft) and step.after < run[0]
            passed = (name for one in run for name in made[one] if last.get(name, -1) >= place)
            if follows and any(name in self.blocks for name in passed):
                run.append(place)
            else:
                runs.append([place])
        return runs

    def _eaten(self, runs: Sequence[Sequence[int]], made: Sequence[set[str]], last: Mapping[str, int]) -> set[str]:
        """Return images whose blocks their last reader drops in turn: no other loop of the graph has them."""
        names = ((name, run) for run in runs for place in run for name in made[place] & self.blocks)
        return {name for name, run in names if last.get(name, -1) in run[1:]}

    def _loop(self, draft: _Draft) -> RowLoop:
        ops = tuple(sorted(draft.ops))
        inner = {name for number in ops for name in self.field.ops[number].outputs}
        read = dict.fromkeys(name for number in ops for name in self.field.ops[number].images if name not in inner)
        read.update(dict.fromkeys(name for name, _ in draft.statistics if name not in inner))
        return RowLoop(ops, tuple(draft.made), tuple(draft.statistics), tuple(read))

    def _read(self, place: int, loops: Mapping[int, RowLoop]) -> set[str]:
        if place in loops:
            return set(loops[place].read)
        step = self.steps[place]
        return set() if isinstance(step, _Draft) else self._named(step, inputs=True)

    def _made(self, place: int, loops: Mapping[int, RowLoop]) -> set[str]:
        if place in loops:
            return set(loops[place].made)
        step = self.steps[place]
        return set() if isinstance(step, _Draft) else self._named(step, inputs=False)

    def _named(self, place: int, *, inputs: bool) -> set[str]:
        """Return the images that a node reads or makes, or the normalisation that ends with it."""
        number = self.field.at.get(place)
        if number is not None:
            op: RowOp = self.field.ops[number]
            return set(op.images) if inputs else set() if op.is_summary else set(op.outputs)
        node = self.field.graph.nodes[place]
        return {name for name in (names_read(node) if inputs else node.output) if name in self.field.images}


class LoopWorks:
    """The work of loops, with the rows that blocks compute beside their own; each is found once.

    Attributes:
        tried: Plans that were made.
    """

    def __init__(self, field: RowField, block_bytes: int) -> None:
        self.field, self.block_bytes = field, block_bytes
        self.tried = 0
        self._known: dict[tuple[object, ...], float] = {}

    def of(self, loop: RowLoop) -> float:
        """Return the work of a loop."""
        key = loop.ops, loop.made, loop.statistics
        if key not in self._known:
            self._known[key] = _work(self.field, loop, self.block_bytes)
        return self._known[key]


def _work(field: RowField, loop: RowLoop, block_bytes: int) -> float:
    spans, step = spans_of(field, loop)
    largest = sorted((field.row_bytes[name] * float(span.rate) for name, span in spans.items()), reverse=True)
    rows = max(block_bytes, field.largest / BLOCK_PART) / max(sum(largest[:LIVE]), 1.0)
    rows = max(rows, float(step), 1.0)
    total = 0.0
    for number in loop.ops:
        op = field.ops[number]
        # A window's rows at the ends of a block are computed, too, and dropped.
        span = spans[op.images[0] if op.rule.window > 1 else op.outputs[0]]
        total += field.work_in_loop(op) * (1 + (span.above + span.below) / (rows * float(span.rate)))
    for name, _ in loop.statistics:
        total += field.graph.bytes_of(name) * 4
    return total
