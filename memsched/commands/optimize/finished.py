"""What becomes of a model that was found: what was asked for, and the file that is written."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

from memsched.base.frozen import FrozenValue
from memsched.commands.declared import AUTO
from memsched.commands.optimize.final_model import FinalModel
from memsched.commands.options import Options
from memsched.commands.session_rows import SessionBench
from memsched.formats.module import LoadOptions, Module
from memsched.plan.values import TargetModule
from memsched.report.outputs import NOT_ASKED, TOLERANCE
from memsched.report.values.interpreter import InterpreterSection
from memsched.report.values.sessions import HeldBackSection, SessionRow
from memsched.runtimes.arena_facts import ArenaFacts
from memsched.runtimes.output import ModelBytes
from memsched.runtimes.runtime import Opening, Requirement
from memsched.runtimes.values import Verification
from memsched.search.run import Run

__all__ = ["FinishRequest", "FinishedModel", "refuted"]


class FinishRequest(FrozenValue, frozen=True):
    """What becomes of the model that was found.

    Attributes:
        options: What is stated of the sizes of ``module``, the model as given, whose bytes are ``data``.
        run: The user's.
        command: The user's options. A time limit that was named is kept by measurements, too; another one is the
            search's alone.
        budget: What is required was compared with so many bytes; None: with none.
        exact: Layers in pieces are written only where both models were seen to give the same bits.
        may_end: Ctrl-C ends the run of both alone.
        bench: What sessions are measured with; None if the runtime has none.
    """

    module: Module
    data: bytes
    prepared: TargetModule
    options: LoadOptions
    opening: Opening
    run: Run
    command: Options
    budget: int | None
    exact: bool
    may_end: bool
    bench: SessionBench | None = None

    @property
    def guarded(self) -> bool:
        """Whether the user named no session."""
        return self.command.order_guarantee is None

    @property
    def reopens(self) -> bool:
        """Whether the file may need session options: callers accept that, or an expert or a budget asked for it."""
        return not self.command.free or "opening" in self.command.permitted or self.budget is not None

    def unverified(self) -> FinishRequest:
        """Return the same without a run of both models."""
        return dataclasses.replace(self, command=dataclasses.replace(self.command, verify=False))

    def left(self) -> float:
        """Return the seconds that measurements may take; infinite if no limit was named."""
        return math.inf if self.command.time_limit == AUTO else self.run.remaining()

    def has_time(self, seconds: float = 0.0) -> bool:
        """Whether more than so many seconds are left."""
        return self.command.time_limit == AUTO or self.left() > seconds

    def may_run(self, seconds: float = 0.0) -> bool:
        """Whether a file may be written after runs of so many seconds: there is time for them, or none are wanted."""
        return not self.command.verify or self.has_time(seconds)

    @property
    def seed(self) -> int:
        """Return the seed of the inputs that both models are run on."""
        return self.run.limits.seed


class FinishedModel(FrozenValue, frozen=True):
    """The model that is written, and what became of it in its runtime.

    Attributes:
        needed: What the file as given and this one require.
        figures: The same by the runtime's name for it; empty where that is the arena.
        verification: None where it was not asked for, or was ended.
        seconds: How long running both took.
        ended: By the user.
        held_back: What was found and is not written: pieces, or all of it.
        refused: What was found, if sessions without options take more for it or are slower.
        slight: What a file would have saved that is not written, as it is not worth that, bytes.
        sessions: What sessions on both files took.
        interpreter: What LiteRT's default interpreter took; None if it was not measured.
    """

    final: FinalModel
    written: ModelBytes
    facts: ArenaFacts | None
    needed: tuple[Requirement, Requirement]
    figures: Mapping[str, tuple[int, int]]
    verification: Verification | None = None
    notes: tuple[str, ...] = (NOT_ASKED,)
    seconds: float = 0.0
    ended: bool = False
    held_back: HeldBackSection | None = None
    sessions: tuple[SessionRow, ...] = ()
    interpreter: InterpreterSection | None = None
    refused: FinishedModel | None = None
    slight: int | None = None

    @property
    def wrong(self) -> bool:
        """Whether the file's outputs differ because of what was done to it."""
        seen = self.verification
        # A file that nothing was done to differs from itself only if it draws numbers.
        return seen is not None and not self.written.unchanged and refuted(seen, inexact=self.final.rewrites.inexact)


def refuted(verification: Verification, *, inexact: bool) -> bool:
    """Whether the outputs differ, here or at other sizes; those of layers in pieces may differ in their last bits."""
    if verification.wrong_elsewhere is not None:
        return True
    if verification.outputs_equal is not False:
        return False
    if inexact and verification.own_error is not None:
        return False
    error = verification.relative_error
    return not inexact or error is None or error > TOLERANCE
