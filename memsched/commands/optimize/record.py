"""The record of a command: the one value that its report is made from."""

from __future__ import annotations

from typing import Literal

from memsched.base.frozen import FrozenValue
from memsched.commands.failures import CandidateFailure
from memsched.commands.optimize.final_model import FinalModel
from memsched.formats.module import AssumedSize, Module
from memsched.report.values.blocks import BlocksSection, CurveSection
from memsched.report.values.interpreter import InterpreterSection
from memsched.report.values.rewrites import FrontierRow, OnChipSection
from memsched.report.values.sessions import ExecutedSection, HeldBackSection, SessionRow
from memsched.report.values.verdict import AlternativeRow, LedgerRow
from memsched.runtimes.arena_facts import ArenaFacts
from memsched.runtimes.output import ModelBytes
from memsched.runtimes.runtime import Requirement, RuntimeTraits
from memsched.runtimes.values import Verification
from memsched.targets.pool_plan import PoolPlan

__all__ = ["Record"]


class Record(FrozenValue, frozen=True):
    """What a command did with a model.

    Attributes:
        module: The original.
        final: What is written, or the original in its own order.
        needed: What the runtime requires for the original and for ``final``.
        traits: What holds for all files that the runtime executes.
        tried: Every rewrite and solver that ran.
        budget: Bytes; None for no budget.
        whole_range: What a budget must hold, if that is for all sizes of a curve; else it is what ``final`` requires.
        written: The file; None if the command writes none.
        output: Where it is written, as the user named it.
        facts: What TensorFlow Lite Micro makes of the model.
        target_reason: Why the target was chosen; empty if the user named it.
        slight: What a file would have saved that is not written, bytes.
        assumed: Sizes that nobody stated.
    """

    command: Literal["optimize", "analyze"]
    module: Module
    final: FinalModel
    needed: tuple[Requirement, Requirement]
    traits: RuntimeTraits
    tried: tuple[LedgerRow, ...] = ()
    budget: int | None = None
    whole_range: Requirement | None = None
    written: ModelBytes | None = None
    output: str | None = None
    verification: Verification | None = None
    notes: tuple[str, ...] = ()
    failures: tuple[CandidateFailure, ...] = ()
    interrupted: bool = False
    facts: ArenaFacts | None = None
    target_reason: str = ""
    slight: int | None = None
    pools: PoolPlan | None = None
    held_back: HeldBackSection | None = None
    interpreter: InterpreterSection | None = None
    sessions: tuple[SessionRow, ...] = ()
    executed: ExecutedSection | None = None
    open_loops: BlocksSection | None = None
    curve: CurveSection | None = None
    frontier: tuple[FrontierRow, ...] | None = None
    on_chip: OnChipSection | None = None
    alternatives: tuple[AlternativeRow, ...] = ()
    assumed: tuple[AssumedSize, ...] = ()

    @property
    def rewritten(self) -> Module:
        """The model that is written."""
        return self.final.module if self.final.rewritten else self.module
