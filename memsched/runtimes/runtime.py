"""What a runtime does with a model, by a target's rules alone; `memsched.runtimes.known` lists those that do more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from memsched.base.errors import UsageError
from memsched.base.frozen import FrozenValue
from memsched.formats.module import LoadOptions, Module, OrderGuarantee
from memsched.graph.model import Allocation, Graph, Op, Schedule
from memsched.lowering.prices import NOTHING_KEPT, Avoidable, Kept, Pace, Prices
from memsched.runtimes.graph_plan import GraphPlan, LoweredGraph, lower_module
from memsched.runtimes.output import Guarantee, ModelBytes
from memsched.runtimes.values import Verification
from memsched.search.run import Run
from memsched.targets.model import BudgetFor, Target

__all__ = [
    "AS_TOLD",
    "ArenaNeeds",
    "CompiledModel",
    "CompiledRun",
    "MemoryPlans",
    "Opening",
    "OrderChoice",
    "OrderInFile",
    "OrderedFile",
    "RelayRun",
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
        time_ratio: Time of the invocations of all stages, without their allocation, to that of the whole model.
    """

    verification: Verification
    twice_equal: bool | None = None
    arenas: tuple[tuple[int, bool], ...] = ()
    time_ratio: float | None = None


class CompiledModel(FrozenValue, frozen=True):
    """A model as C.

    Attributes:
        model: The model's file.
        files: All sources, including a program that reads inputs and writes outputs.
        input_scale: Scale and zero point of an input that is float in the model and 8-bit in C; None for other inputs.
        output_scales: Scale and zero point of each output, in the same way.
    """

    model: bytes
    files: Mapping[str, bytes]
    input_scale: tuple[float, int] | None
    output_scales: tuple[tuple[float, int] | None, ...]


class CompiledRun(FrozenValue, frozen=True):
    """What running a model as C showed.

    Attributes:
        runtime: What it was compared with.
        runs: On so many random inputs, each twice, and on both ends of the range.
        equal: Outputs are bit-equal; None if nothing could be compared.
        vary: The model's outputs vary from input to input.
        time_ratio: Processor time of a call to that of the interpreter's.
        reason: Why nothing could be compared.
    """

    runtime: str
    runs: int = 0
    equal: bool | None = None
    vary: bool = False
    time_ratio: float | None = None
    reason: str = ""


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


class OrderedFile(FrozenValue, frozen=True):
    """A model as it was written in the orders of plans, without what else a runtime must find in the file.

    Attributes:
        options: What states the sizes of the module.
        run: What the work counts in; it limits nothing.
        plan: Write a memory plan; None: where less is required with one.
        given: The model before layers of it were rewritten, if they were.
    """

    module: Module
    written: ModelBytes
    plans: Sequence[GraphPlan]
    options: LoadOptions
    run: Run
    plan: bool | None
    given: Module | None


class Runtime(FrozenValue, frozen=True):
    """What a runtime executes of a module, what it requires, and what must be written so that it does so.

    This is what any target says, for runtimes of which nothing more is known; others add what they do beyond it.

    Attributes:
        target: Whose rules hold.
        opening: How the file that is written will be opened.
    """

    target: Target
    opening: Opening

    @property
    def traits(self) -> RuntimeTraits:
        """What holds for all its files; here the name of the runtime that can verify the figures."""
        return RuntimeTraits(self.target.runtime)

    @property
    def memory_plans(self) -> MemoryPlans:
        """What it takes of memory plans in files; here nothing."""
        return MemoryPlans(self.target)

    def lower(self, module: Module) -> tuple[LoweredGraph, ...]:
        """Return the graphs as the runtime executes them: with its target's rules, and with its kernels' own memory."""
        return lower_module(module, self.target)

    def requires_as_given(self, module: Module, lowered: Sequence[LoweredGraph], given: OrderInFile) -> Requirement:
        """Return what the file as given requires: the figure for it that `requires` is for a result."""
        del module, lowered
        return _arena(given.allocation, given.schedule.peak)

    def requires(
        self,
        module: Module,
        lowered: Sequence[LoweredGraph],
        plans: Sequence[GraphPlan],
        allocation: Allocation,
        allowance: SearchAllowance,
    ) -> Requirement | None:
        """Return what a file in the orders of ``plans`` requires; None where the runtime could not load it."""
        del module, lowered, allowance
        return _arena(allocation, plans[0].schedule.peak)

    def choose(
        self, module: Module, lowered: Sequence[LoweredGraph], plans: tuple[GraphPlan, ...], allowance: SearchAllowance
    ) -> OrderChoice | None:
        """Return the orders to write so that the runtime needs the least; None where they are those of ``plans``."""
        del module, lowered, plans, allowance
        return None

    def check_kernels(self, given: Module, written: Module) -> None:
        """Check that the runtime refuses no operator of ``written`` unless it refuses such a one of ``given``.

        Raises:
            ModelError: It does; the message names the first.
        """

    @property
    def keeps_tables(self) -> bool:
        """Whether it keeps tables in proportion to the rows of outputs; see `table_bytes`."""
        return False

    @property
    def most_joined(self) -> int | None:
        """Largest number of inputs of a concatenation that stays in a partition; None for any number."""
        return None

    def table_bytes(self, graph: Graph, op: Op) -> int:
        """Return the bytes of an op's table, which grows with the rows of one image but not with the batch."""
        del graph, op
        return 0

    def avoidable(self, graph: Graph, op: Op) -> Avoidable | None:
        """Return what a delegate keeps for an op that a built-in kernel computes as quickly; by default nothing."""
        del graph, op
        return None

    def joins_quantised(self, module: Module) -> bool:
        """Whether opening the file makes quantised ops of groups that pieces take apart, and run far longer so."""
        del module
        return False

    def prices(self, module: Module) -> Prices | None:
        """Return what each op costs beside the activations; None where that is nothing, or not known.

        Here the target's price of an operator, whatever that does.
        """
        del module
        price = self.target.price
        if price is None:
            return None
        kept = Kept(price.bytes_per_op)
        pace = Pace(price.macs_per_op, price.macs_per_byte)
        dear = price.cautious
        cautious = None if dear is None else Pace(dear.macs_per_op, dear.macs_per_byte, dear.macs_per_weight_byte)
        return Prices(NOTHING_KEPT, lambda _graph, _op: kept, kept, pace=pace, cautious=cautious, uniform=True)

    def facts(self, module: Module) -> Any:
        """Return what reports say of the file as given in words of the runtime's own; None where that is nothing."""
        del module

    def finish(self, file: OrderedFile) -> tuple[ModelBytes, Any]:
        """Return a written file with what else the runtime must find in it, and what reports say of it.

        Raises:
            ModelError: The file is laid out so that it cannot be done.
            InternalError: The written file does not read back as planned.
        """
        return file.written, None


def _arena(allocation: Allocation, peak: int) -> Requirement:
    return Requirement(allocation.arena, (("activations", peak), ("slack", allocation.arena - peak)))
