"""The interface of a runtime; `memsched.runtimes.known` lists the runtimes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from memsched.base.errors import UsageError
from memsched.base.frozen import FrozenValue
from memsched.formats.module import LoadOptions, Module, OrderGuarantee
from memsched.formats.segment import Segment
from memsched.graph.border import Border
from memsched.graph.model import Allocation, Graph, Schedule
from memsched.lowering.prices import Prices
from memsched.runtimes.graph_plan import GraphPlan, LoweredGraph
from memsched.runtimes.output import Guarantee, ModelBytes
from memsched.runtimes.values import Verification
from memsched.search.run import Run
from memsched.targets.model import BudgetFor, Target

__all__ = [
    "AS_TOLD",
    "ArenaNeeds",
    "MemoryPlans",
    "Opening",
    "OrderChoice",
    "OrderInFile",
    "RelayRules",
    "Requirement",
    "Runtime",
    "RuntimeTraits",
    "SearchAllowance",
]


class Requirement(FrozenValue, frozen=True):
    """What a runtime allocates for a plan: the one figure that decides.

    Attributes:
        total: Bytes.
        parts: What they are for, such as "activations", "temporaries" or "slack", where that is known; bytes that add
            up to ``total``.
        beside: Of ``total``, what lies beside that for which addresses are found: no better ones make it less.
        structures: Beside ``total``: what the runtime's own structures take of the process, beyond those for the model
            that rewriting began with.
    """

    total: int
    parts: tuple[tuple[str, int], ...] = ()
    beside: int = 0
    structures: int = 0

    @property
    def weight(self) -> int:
        """All that is paid for, bytes: the total and the structures."""
        return self.total + self.structures

    @property
    def rank(self) -> tuple[int, int]:
        """What is less for the better of two: all that is paid, then that of it for which addresses are found."""
        return self.weight, self.weight - self.beside


class Opening(FrozenValue, frozen=True):
    """How the file that is written will be opened.

    Attributes:
        guarantee: What makes ONNX Runtime keep the order.
        memory_plan: The file holds a memory plan of our own for TensorFlow Lite Micro; None: where less is required
            with one.
    """

    guarantee: OrderGuarantee = "session"
    memory_plan: bool | None = None


AS_TOLD: Final = Opening()
"""As the report tells people to open it where nothing else is asked for."""


@dataclass(frozen=True, slots=True)
class SearchAllowance:
    """How long a runtime may look for orders that suit it.

    Attributes:
        run: What that is a part of, and counts in.
        seconds: Or work as if it were seconds; None for no limit.
        reorder: Other orders than the one given may be taken.
    """

    run: Run
    seconds: float | None = None
    reorder: bool = True


class OrderInFile(Protocol):
    """The main graph of a file in the order in which it stores its ops, with addresses found without a search."""

    @property
    def graph(self) -> Graph: ...  # noqa: D102 - above
    @property
    def schedule(self) -> Schedule: ...  # noqa: D102 - above
    @property
    def allocation(self) -> Allocation: ...  # noqa: D102 - above


class OrderChoice(Protocol):
    """Orders that a runtime was led to, which may be others than those that were found by liveness.

    Attributes:
        plans: For all graphs of the module.
        keep: Nothing better was found: the file stays as it is.
        required: Bytes that the runtime needs for them.
    """

    @property
    def plans(self) -> tuple[GraphPlan, ...]: ...  # noqa: D102 - above
    @property
    def keep(self) -> bool: ...  # noqa: D102 - above
    @property
    def required(self) -> int: ...  # noqa: D102 - above

    def compared_with(self, given: Any) -> OrderChoice:
        """Return this choice for a rewritten model, compared with what the model as ``given`` needs."""

    def describe(self, guarantee: Guarantee) -> Guarantee:
        """Return ``guarantee`` with what was predicted."""


class ArenaNeeds(FrozenValue, frozen=True):
    """What the arena of an interpreter must hold for a file, bytes.

    Attributes:
        head: What is planned: activations, and the kernels' own buffers.
        persistent: What stays beside it, by bits of a pointer.
        planning: What planning takes for a moment where the head lies later, by bits of a pointer.
        outputs: Where the head holds the file's outputs, in its order.
    """

    head: int
    persistent: Mapping[int, int]
    planning: Mapping[int, int]
    outputs: tuple[int, ...]

    def total(self, bits: int) -> int:
        """Return all of it."""
        return self.persistent[bits] + max(self.head, self.planning[bits])


class RelayRun(FrozenValue, frozen=True):
    """What running stages one after the other showed.

    Attributes:
        twice_equal: Each input gave the same outputs a second time; None where nothing could be run.
        arenas: Per stage the measured head, and whether head and the rest are what they should be, to the byte; empty
            where nothing could be run.
    """

    verification: Verification
    twice_equal: bool | None = None
    arenas: tuple[tuple[int, bool], ...] = ()


class RelayRules(Protocol):
    """Says what a runtime takes of one block of memory in which it executes several files one after the other.

    Attributes:
        bits: Of a pointer of the target's processor.
    """

    @property
    def bits(self) -> int: ...  # noqa: D102 - above

    def check(self, module: Module) -> None:
        """Check that nothing of ``module`` outlives its stage, and that all that it needs is known.

        Raises:
            ModelError: It is not so.
        """

    def needs(self, data: bytes) -> ArenaNeeds:
        """Return what the arena of a file must hold.

        Raises:
            ModelError: The runtime would refuse it.
        """

    def least_kept(self, module: Module) -> tuple[int, ...]:
        """Return per op of the main graph bytes that its stage keeps for it, or more."""

    def execute(
        self,
        module: Module,
        whole: bytes,
        segments: Sequence[Segment],
        files: Sequence[bytes],
        *,
        seed: int,
        tolerance: float = 0.0,
        seconds: float | None = None,
        borders: Sequence[Border] = (),
    ) -> RelayRun:
        """Run a model, and its stages one after the other, on the same random inputs, each twice in a row.

        Then once on each kind of special values.

        Args:
            module: What was cut.
            whole: The model as given, which may have other inputs and outputs.
            borders: What stands between those of both.
            tolerance: Relative error that is permitted.
            seconds: Where so many are too few for all inputs, it is done with fewer, but one at least.

        Raises:
            RuntimeUnavailableError: The runtime is not installed.
        """

    def resolver_calls(self, files: Sequence[bytes]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the calls that register the operators of all files, and the custom operators that it does not have."""


class RuntimeTraits(FrozenValue, frozen=True):
    """What holds for all files that a runtime executes for a target.

    Attributes:
        name: The runtime's name in reports; "" if none executes what the target describes.
        figure: Name in reports of the bytes that it requires by the rules of its own planner; None if it has no
            planner whose rules are known: it then requires the arena that was found.
        multiplies_scales: Opening a file makes scales part of weights, of which each op that reads them then has its
            own.
        tiles_for: In words, the only sessions in which tiled layers need less memory; "" for all.
        session_options: Options of a command line that name these sessions; () if they need no name.
    """

    name: str
    figure: str | None = None
    multiplies_scales: bool = False
    tiles_for: str = ""
    session_options: tuple[str, ...] = ()

    def figures(self, needed: tuple[Requirement, Requirement]) -> Mapping[str, tuple[int, int]]:
        """Return, by the name of the figure, what the original file and a result need; empty if it is the arena."""
        return {} if self.figure is None else {self.figure: (needed[0].total, needed[1].total)}


class MemoryPlans(FrozenValue, frozen=True):
    """Memory plans in files, and what a budget limits with them; here for runtimes that take no plan.

    `optimize` asks for this when it reads the options of a target with an interpreter's arena.

    Attributes:
        target: Whose rules hold.
    """

    target: Target

    def wanted(self, asked: bool | None) -> bool | None:
        """Return whether a memory plan is to be written into the file; None: if less is required with one.

        Args:
            asked: What the user said of it; None for nothing.

        Raises:
            UsageError: A plan is asked for, and the runtime takes none.
        """
        if asked:
            raise _no_planner("--tflm-plan")
        return False

    def budgeted(self, what: BudgetFor | None) -> Target:
        """Return the target with what a budget limits and memsched minimizes.

        Args:
            what: None for what the target itself says.

        Raises:
            UsageError: Something is said of it, and the runtime has no choice.
        """
        if what is not None:
            raise _no_planner("--budget-for")
        return self.target

    def rules(self, plan: bool | None) -> Target:
        """Return the target's rules that hold with a memory plan in the file, True, without one, False, or either."""
        del plan
        return self.target

    def requires(self, module: Module, plans: Sequence[GraphPlan], run: Run) -> Requirement | None:
        """Return what the file requires with a memory plan that it does not have yet; None if it takes none."""
        del module, plans, run
        return None


def _no_planner(option: str) -> UsageError:
    return UsageError(
        f"{option} is for TFLite models and a target with TensorFlow Lite Micro's planner",
        code="no-planner",
        action="add --target tflm or --target tflm-reference",
    )


class Runtime(Protocol):
    """Says what a runtime executes of a module, what it requires, and what must be written so that it does so.

    Attributes:
        traits: What holds for all its files.
        memory_plans: What it takes of memory plans in files.
    """

    @property
    def traits(self) -> RuntimeTraits: ...  # noqa: D102 - above
    @property
    def memory_plans(self) -> MemoryPlans: ...  # noqa: D102 - above

    def lower(self, module: Module) -> tuple[LoweredGraph, ...]:
        """Return the graphs as the runtime executes them: with its target's rules, and with its kernels' own memory."""

    def requires_as_given(self, module: Module, lowered: Sequence[LoweredGraph], given: OrderInFile) -> Requirement:
        """Return what the file as given requires: the figure for it that `requires` is for a result."""

    def requires(
        self,
        module: Module,
        lowered: Sequence[LoweredGraph],
        plans: Sequence[GraphPlan],
        allocation: Allocation,
        allowance: SearchAllowance,
    ) -> Requirement | None:
        """Return what a file in the orders of ``plans`` requires; None where the runtime could not load it."""

    def choose(
        self, module: Module, lowered: Sequence[LoweredGraph], plans: tuple[GraphPlan, ...], allowance: SearchAllowance
    ) -> OrderChoice | None:
        """Return the orders to write so that the runtime needs the least; None where they are those of ``plans``."""

    def check_kernels(self, given: Module, written: Module) -> None:
        """Check that the runtime refuses no operator of ``written`` unless it refuses such a one of ``given``.

        Raises:
            ModelError: It does; the message names the first.
        """

    def joins_quantised(self, module: Module) -> bool:
        """Whether opening the file makes quantised ops of groups that pieces take apart, and run far longer so."""

    def prices(self, module: Module) -> Prices | None:
        """Return what each op costs beside the activations; None where that is nothing, or not known."""

    def facts(self, module: Module) -> Any:
        """Return what reports say of the file as given in words of the runtime's own; None where that is nothing."""

    def finish(
        self,
        module: Module,
        written: ModelBytes,
        plans: Sequence[GraphPlan],
        options: LoadOptions,
        run: Run,
        *,
        plan: bool | None,
        given: Module | None,
    ) -> tuple[ModelBytes, Any]:
        """Return the written file with what else the runtime must find in it, and what reports say of it.

        Args:
            plan: Write a memory plan; None: where less is required with one.
            given: The model before layers of it were rewritten, if they were.

        Raises:
            ModelError: The file is laid out so that it cannot be done.
            InternalError: The written file does not read back as planned.
        """

    def relay_rules(self) -> RelayRules | None:
        """Return what it takes of one block of memory; None where it takes memory as it goes."""
