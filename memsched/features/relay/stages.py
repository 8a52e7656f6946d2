"""What the stages of a relay take, and their files: each is optimized as a model of its own."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from memsched.base.errors import MemschedError
from memsched.base.frozen import FrozenValue
from memsched.base.units import MOST_BYTES
from memsched.commands.calls import Hooks
from memsched.commands.levels import ALLOWED, BY_DEFAULT
from memsched.commands.optimize.optimize import optimize
from memsched.commands.options import Options, RelayOptions
from memsched.features.relay.cuts import RelayCuts
from memsched.features.relay.search import StageRange
from memsched.formats.capabilities import Cutter, Stages
from memsched.formats.known import capability
from memsched.formats.module import Module
from memsched.formats.segment import Segment
from memsched.graph.model import Graph
from memsched.report.values.optimize import OptimizeReport
from memsched.runtimes.arena_facts import round_up
from memsched.runtimes.runtime import ArenaNeeds
from memsched.search.run import Run

if TYPE_CHECKING:
    from memsched.runtimes.known import RelayRules

__all__ = ["RelayStageCosts", "StageFile"]

_STAGE_SHARE = 0.04
"""Share of the time left for one stage that is optimized while stages are looked for."""

_PATIENCE = 3
"""Such a stage is ended after so many times its share, if it has not ended by then: others may give more."""

_LEAST_SECONDS = 2.0
"""For such a stage, where there is a limit of time: loops are found in less."""

_MOST_STAGES = 20
"""How many are optimized while stages are looked for, where the work is limited and not the time."""


class StageFile(FrozenValue, frozen=True):
    """A stage as a model of its own.

    Attributes:
        data: The file.
        segment: What it holds of the whole model.
        needs: Of its arena.
        extra_macs: Multiply-accumulates that it does beside those of the model as given.
    """

    data: bytes
    segment: Segment
    needs: ArenaNeeds
    extra_macs: int = 0


@dataclass(slots=True)
class RelayStageCosts:
    """What stages need, as `features/relay/search` asks for it; it remembers the files of those that were found out.

    Attributes:
        lowered: The main graph under the target's rules, with the kernels' own buffers.
        rewriting: Layers may be rewritten, so that less may be needed than their order tells.
        looked_into: Stages that were optimized so far while stages are looked for.
    """

    module: Module
    lowered: Graph
    cuts: RelayCuts
    rules: RelayRules
    options: RelayOptions
    run: Run
    cutter: Cutter
    rewriting: bool = False
    files: dict[StageRange, StageFile] = field(default_factory=dict)
    optimized: set[StageRange] = field(default_factory=set)
    looked_into: int = 0
    _steps: list[int] = field(default_factory=list)
    _kept: list[int] = field(default_factory=list)
    _by_sizes: dict[StageRange, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        kept = self.rules.least_kept(self.module)
        self._kept = [0, *itertools.accumulate(kept[op] for op in self.cuts.order)]
        self._steps = [_step_bytes(self.lowered, op) for op in self.cuts.order]

    def estimate(self, first: int, last: int) -> int:
        """Return about the least that a stage needs of the block: see `RelayCosts.estimate`."""
        kept = self._kept[last] - self._kept[first]
        least, plain = self._least_head(first, last), max(self._steps[first:last])
        return self.cuts.kept_bytes(first, last) + kept + least + (_LOOP if least < plain else 0)

    def _least_head(self, first: int, last: int) -> int:
        ends = max(self.cuts.least_bytes(first, last))
        return max(ends, self._rewritten(first, last) if self.rewriting else max(self._steps[first:last]))

    def _rewritten(self, first: int, last: int) -> int:
        """Return about what a stage needs at its fullest step where one group of its layers is computed in pieces.

        The group holds what needs most. Of what it is given and of what it makes the larger must be there as a whole.
        """
        order = sorted(range(first, last), key=lambda step: -self._steps[step])
        best = self._steps[order[0]]
        begin, end = last, first
        for place, step in enumerate(order[:_FULL_STEPS]):
            begin, end = min(begin, step), max(end, step + 1)
            group = max(self.cuts.handed[begin], self.cuts.handed[end]) + _PIECES
            if group >= best:
                break
            rest = self._steps[order[place + 1]] if place + 1 < len(order) else 0
            best = min(best, max(group, rest))
        return best

    def known(self, first: int, last: int) -> int | None:
        """Return what a stage of which there is a file needs of the block; see `RelayCosts.known`."""
        if (first, last) not in self.files:
            return None
        return self.cuts.kept_bytes(first, last) + round_up(self.needed((first, last)))

    def find_out(self, stage: StageRange) -> tuple[int, int, bool]:
        """Return what a stage needs of the block: see `RelayCosts.find_out`."""
        outside = self.cuts.kept_bytes(*stage)
        if stage not in self.files:
            made = self.as_cut(stage)
            if made is None:
                return MOST_BYTES, MOST_BYTES, True
            self.files[stage] = made
            least = self._least_arena(stage)
            self._by_sizes[stage] = outside + round_up(min(least, self._total(stage)))
        else:
            self.looked_into += 1
            share = self._share()
            self.improve(stage, None, share, self._patience(share))
            least = self._total(stage)
        total = self._total(stage)
        return outside + round_up(min(least, total)), outside + round_up(total), least >= total

    def least(self, stage: StageRange) -> int:
        """Return what a stage that was found out needs of the block by its sizes alone; see `RelayCosts.least`."""
        return self._by_sizes.get(stage, MOST_BYTES)

    def _least_arena(self, stage: StageRange) -> int:
        needs, bits = self.files[stage].needs, self.rules.bits
        return needs.persistent[bits] + max(self._least_head(*stage), needs.planning[bits])

    def spent(self) -> bool:
        """Whether as many stages were optimized as work permits, where the time is not limited."""
        return self.rewriting and self.run.limits.time_limit is None and self.looked_into >= _MOST_STAGES

    def _share(self) -> Run:
        limit, left = self.run.limits.time_limit, self.run.remaining()
        if limit is None:
            return self.run.within(1 / _MOST_STAGES)
        return self.run.within(min(1.0, max(_STAGE_SHARE, _LEAST_SECONDS / left if left else 1.0)))

    def _patience(self, share: Run) -> Callable[[], bool]:
        """Return what ends a search for loops, which takes a little more than its share: on a slow machine, a lot."""
        run, seconds = self.run, share.remaining()
        if math.isinf(seconds):
            return run.stop
        end = run.clock() + _PATIENCE * seconds
        return lambda: run.over() or run.clock() >= end

    def needed(self, stage: StageRange) -> int:
        """Return what the arena of a stage that was found out must hold, bytes."""
        return self._total(stage)

    def _total(self, stage: StageRange) -> int:
        return self.files[stage].needs.total(self.rules.bits)

    def as_cut(self, stage: StageRange) -> StageFile | None:
        """Return a stage in the order of the cuts; None where the runtime would refuse it."""
        segment = self.segment(stage)
        data = self.cutter.cut(segment, {})
        try:
            return StageFile(data, segment, self.rules.needs(data))
        except MemschedError:
            return None

    def segment(self, stage: StageRange) -> Segment:
        """Return what a stage holds of the model."""
        names = [tensor.name for tensor in self.module.graphs[0].tensors]
        return Segment(
            ops=self.cuts.order[stage[0] : stage[1]],
            inputs=tuple(names[tensor] for tensor in self.cuts.inputs(*stage)),
            outputs=tuple(names[tensor] for tensor in self.cuts.outputs(*stage)),
        )

    def improve(self, stage: StageRange, budget: int | None, run: Run, stop: Callable[[], bool]) -> None:
        """Optimize a stage as a model of its own, and keep what needs less, or with a budget does less work.

        Args:
            budget: Bytes that its arena may take.
            run: What it should take; a search for loops takes a little in any case.
            stop: True ends it as soon as it can end.
        """
        known = self.files[stage]
        cut = self.as_cut(stage)
        if cut is None:
            return
        self.optimized.add(stage)
        options = capability(self.module, Stages).segment_options(self.module, known.segment)
        limits = run.limits
        known_names = ALLOWED if self.rewriting else BY_DEFAULT
        asked = Options(
            target=self.options.target,
            budget=budget,
            time_limit=None if limits.time_limit is None else run.remaining(),
            effort=run.effort(),
            input_shapes=options.input_shapes,
            dims=options.dims,
            tflm_plan=self.options.tflm_plan,
            allow=[name for name in self.options.allow if name in known_names],
            max_extra_macs=self.options.max_extra_macs,
            verify=False,
            seed=limits.seed,
            workers=limits.workers,
        )
        result = optimize(cut.data, asked, Hooks(stop=stop))
        run.spend(result.work)
        found = StageFile(
            result.model,
            known.segment,
            self.rules.needs(result.model),
            _extra_macs(result.report.values),
        )
        bits = self.rules.bits
        now, then = found.needs.total(bits), known.needs.total(bits)
        fits = budget is not None and now <= budget
        if now < then or (fits and (then > (budget or 0) or found.extra_macs <= known.extra_macs)):
            self.files[stage] = found


_FULL_STEPS = 24
"""Steps of a stage that are looked at for a group that might be computed in pieces."""

_PIECES, _LOOP = 2_500, 1_000
"""Bytes that a group needs in any case for its pieces, and those that stay for its loop: estimates, from below."""


def _extra_macs(report: OptimizeReport) -> int:
    return sum(
        section.extra_macs for section in (report.sections.tile, report.sections.recompute) if section is not None
    )


def _step_bytes(graph: Graph, op: int) -> int:
    """Return bytes that any order needs at an op: what it reads and makes, or the larger where they may share bytes."""
    one, tensors = graph.ops[op], graph.tensors
    read = sum(round_up(tensors[tensor].size) for tensor in dict.fromkeys(one.inputs))
    made = sum(round_up(tensors[tensor].size) for tensor in one.outputs)
    return (max(read, made) if one.views or one.in_place else read + made) + one.workspace
