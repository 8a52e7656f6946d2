"""The options of commands, each stated once: the command line, the Python API and batches take them from here."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from memsched.commands.declared import AUTO, REQUIRED, CommandOptions, has_range, option, said
from memsched.commands.levels import (
    ALLOW_HELP,
    ALLOW_IO_HELP,
    ALLOW_MORE_HELP,
    ALLOWED,
    BY_DEFAULT,
    LEVELS,
    LONG_SEARCH,
    SEARCH,
    permitted_by,
)
from memsched.solve.schedule.solvers import SOLVERS
from memsched.targets.cluster import Cluster

__all__ = [
    "AllocateOptions",
    "AnalyzeOptions",
    "BatchOptions",
    "DecoderOptions",
    "DiffOptions",
    "DistributeOptions",
    "DoctorOptions",
    "Options",
    "OverviewOptions",
    "PipelineOptions",
    "RelayOptions",
    "VerifyOptions",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class _ModelOptions(CommandOptions):
    """How a model is read and for which target, and what may be done to it."""

    target: str | None = option(
        None,
        "Where MODEL runs; by default the usual runtime of such files.",
        flag="--target",
        metavar="NAME|FILE.toml",
    )
    input_shapes: Mapping[str, Sequence[int]] = option(
        {}, "Shape of an input that the model leaves open.", "shapes", flag="--shape", metavar="NAME=1,3,224,224"
    )
    dims: Mapping[str, int] = option({}, "Value of a symbolic dimension.", "dims", flag="--dim", metavar="NAME=8")
    budget: int | str | None = option(
        None,
        "What each model's arena may take, such as 256KB, or 50% of what it requires as given.",
        "budget",
        metavar="SIZE|PCT%",
    )
    budget_for: Literal["arena", "activations"] | None = option(
        None,
        "Targets tflm and tflm-...: what a budget limits and what is minimised: the whole arena (default), or its "
        "planned part alone.",
        choices=("arena", "activations"),
    )
    allow: Collection[str] = option(BY_DEFAULT, ALLOW_HELP, "allow", metavar="LIST")


def _dims_or_ranges(text: str) -> Any:
    return said(_ModelOptions, "dims", text, kind="ranges", metavar="NAME=8|1..8192|64..1024:64")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOptions(_ModelOptions):
    """The options of `memsched batch`: those of `memsched optimize` for every model. JSON can hold all of them."""

    level: int = option(
        1,
        "0: order alone. 1: all that costs nothing: outputs keep their bits, and time grows by --max-slowdown at most. "
        "2: pieces that cost up to --max-extra-macs; floats may differ by 1e-5. 3: values computed again as well, with "
        "ten minutes to search.",
        "number",
        flag="-O",
        metavar="0|1|2|3",
        least=0,
        most=3,
    )
    allow: Collection[str] | None = said(  # type: ignore[assignment]  # None: as the level has it
        _ModelOptions,
        "allow",
        f"In place of what -O permits: {ALLOW_MORE_HELP[0].lower()}{ALLOW_MORE_HELP[1:]}",
        kind="allow_more",
        default=None,
    )
    may_change: Collection[str] = option(
        (),
        "What callers accept, separated by commas: rounding (floats within 1e-5, or as other LiteRT kernels round), "
        "inputs (other types or layouts), opening (session options, a processor type, one runtime, several files, C).",
        "changes",
        metavar="LIST",
    )
    keep_best: bool = option(
        False, "Write the best result even if it misses the budget; otherwise exit code 3 comes without a file.", "flag"
    )
    max_extra_macs: float = option(
        15.0,
        "With -O2, -O3, tile or remat: multiply-accumulates that may be added, in percent of the model's; for remat "
        "bytes moved count as well.",
        "percentage",
        metavar="PCT",
    )
    max_slowdown: float | None = option(
        10.0,
        "Time that may be added, in percent. For ONNX Runtime, of pieces and of values computed again, as estimated "
        "for one thread and the same session options; -O1 counts several threads and takes half. What a session "
        "takes for each further node counts as well. For LiteRT, in the default interpreter, and by default for "
        "TensorFlow Lite Micro, as measured. none: memory and --max-extra-macs alone decide.",
        "slowdown",
        metavar="PCT|none",
    )
    time_limit: float | Literal["auto"] | None = option(
        AUTO, "Limit of each search.", "seconds", metavar="SECONDS", unnamed=SEARCH
    )
    effort: float | None = option(
        None,
        "Limit each search by work instead, about N seconds of an idle machine: the same result on every machine.",
        "number",
        metavar="N",
    )
    memory_limit: int | None = option(
        None,
        "What the process of each model may hold, such as 2GB: its search ends there.",
        "size",
        metavar="SIZE",
        process=True,
    )
    solver: str = option("auto", "What finds the order; auto tries all in turn.", choices=SOLVERS)
    partitions: int | Literal["auto"] = option(
        "auto", "Order N stages of the graph separately, without a proof; 1: never.", "partitions", metavar="N|auto"
    )
    order_guarantee: Literal["none", "session", "pins", "default"] | None = option(
        None,
        "ONNX: what makes the runtime keep the order: session options, which are listed and leave out optimisations, "
        "so that convolutions may take longer; pins in the model, which hold in any session; or default: the best "
        "order that it takes by default. Unless one is named, it is session, and no file is written that sessions "
        "without options need more for.",
        choices=("none", "session", "pins", "default"),
    )
    control_dependencies: bool = option(False, "TFLite: state the order for delegates too.", "flag")
    tflm_plan: bool | None = option(None, "As in optimize.", "switch")
    verify: bool = option(True, "Run both models and compare outputs.", "switch")
    seed: int = option(0, "Seed of everything random.", "number", metavar="N")

    @property
    def permitted(self) -> tuple[str, ...]:
        """What may be done, by the names that ``--allow`` has for it."""
        if self.allow is not None:
            return tuple(self.allow)
        known = BY_DEFAULT if self.order_alone else LEVELS[self.level]
        return (*known, *permitted_by(self.may_change))

    @property
    def order_alone(self) -> bool:
        """Whether no rewrite is tried unasked, as nobody would see whether outputs keep their bits."""
        return self.free and not self.verify

    @property
    def free(self) -> bool:
        """Whether rewrites are tried only where they cost no more than callers accept: the default."""
        return self.allow is None and self.level == 1

    @property
    def extra_work(self) -> float:
        """Extra work that rewrites may do, in percent of the model's; by default it may all go into time."""
        free = self.free and not self.order_alone
        return self.max_slowdown if free and self.max_slowdown is not None else self.max_extra_macs

    @property
    def order_solver(self) -> str:
        """What finds the order: where none may be sought, the file's is taken."""
        return self.solver if "reorder" in self.permitted else "file"

    @property
    def unnamed_seconds(self) -> float:
        """The limit of a search where nobody named one."""
        return LONG_SEARCH if self.allow is None and self.level == len(LEVELS) - 1 else SEARCH


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(BatchOptions):
    """The options of `memsched.optimize`: those that a batch gives for each model, and those for one model alone."""

    budget: int | str | None = said(
        BatchOptions,
        "budget",
        "Memory that is available, such as 256KB, or 50% of what MODEL requires. If no result fits, no file is "
        "written, and the exit code is 3.",
    )
    time_limit: float | Literal["auto"] | None = said(BatchOptions, "time_limit", "Limit of the search.")
    effort: float | None = said(
        BatchOptions,
        "effort",
        "Limit the search by work instead, about N seconds of an idle machine: the same result on every machine.",
    )
    memory_limit: int | None = said(
        BatchOptions,
        "memory_limit",
        "Memory that memsched and its workers may hold, such as 2GB: a search ends there with the best so far.",
    )
    tflm_plan: bool | None = said(
        BatchOptions,
        "tflm_plan",
        "Targets tflm and tflm-...: write the tensors' offsets into the model, or do not; by default where that saves "
        "memory.",
    )
    dims: Mapping[str, int | tuple[int, ...]] = _dims_or_ranges(  # type: ignore[assignment]  # a range stays open
        "Value of a symbolic dimension; or a range that stays open, for which large values are computed in loops."
    )
    strict: bool = option(False, "If the budget is missed, raise BudgetError with the result.", "flag", python=True)
    shapes_from_run: str | None = option(
        None,
        "ONNX: take sizes that nothing states, such as those that depend on data, from one run on these inputs: a "
        "numpy file with an array for each, or the word random.",
        metavar="FEEDS.npz|random",
    )
    session: Literal["default", "all", "extended", "basic"] | None = option(
        None,
        "ONNX: write the graph that ONNX Runtime itself makes of MODEL, ordered: as in a session without options "
        "(default, all: for this kind of processor), or at level extended or basic (for any).",
        choices=("default", "all", "extended", "basic"),
    )
    workers: int = option(1, "Processes that search independent parts.", "number", metavar="N")

    @property
    def order_alone(self) -> bool:
        """The same as for a batch; with a range no level permits rewrites, and with a session only -O2 and -O3 do."""
        ranged = self.allow is None and has_range(self.dims)
        return ranged or (self.free and (self.session is not None or not self.verify))


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyzeOptions(_ModelOptions):
    """The options of `memsched.analyze`; all but the model's options are for ``frontier``."""

    budget: int | str | None = said(
        _ModelOptions,
        "budget",
        "What the arena may take, such as 256KB, or 50% of what MODEL requires; exit code 3 when MODEL needs more.",
    )
    shapes_from_run: str | None = said(Options, "shapes_from_run")
    dims: Mapping[str, int | tuple[int, ...]] = _dims_or_ranges(  # type: ignore[assignment]  # a range stays open
        "Value of a symbolic dimension; or a range: memory at sizes in it, and with --budget the largest that fits."
    )
    allow: Collection[str] | None = said(  # type: ignore[assignment]  # None: nobody named any
        _ModelOptions, "allow", default=None, unnamed=BY_DEFAULT
    )
    frontier: bool = option(
        False,
        "Show what less memory costs: peaks by extra work, with all that --allow may name unless it is given.",
        "flag",
    )
    max_extra_macs: float = said(
        BatchOptions,
        "max_extra_macs",
        "With --frontier: multiply-accumulates that may be added, in percent; for remat bytes moved count as well.",
        default=50.0,
    )
    time_limit: float | Literal["auto"] | None = said(
        BatchOptions, "time_limit", "With --frontier: limit of the search."
    )
    effort: float | None = said(
        BatchOptions,
        "effort",
        "With --frontier: limit the search by work instead, about N seconds of an idle machine: the same result on "
        "every machine.",
    )
    memory_limit: int | None = said(Options, "memory_limit")

    @property
    def permitted(self) -> tuple[str, ...]:
        """What may be done: for a frontier all of it, unless it is named."""
        return tuple((ALLOWED if self.frontier else BY_DEFAULT) if self.allow is None else self.allow)


@dataclass(frozen=True, slots=True, kw_only=True)
class OverviewOptions(CommandOptions):
    """The options of `memsched.commands.overview.overview`."""

    target: str | None = said(Options, "target", "One target alone; by default each that takes MODEL.")
    input_shapes: Mapping[str, Sequence[int]] = said(Options, "input_shapes")
    dims: Mapping[str, int] = said(_ModelOptions, "dims")
    time_limit: float | Literal["auto"] | None = said(
        BatchOptions, "time_limit", "Limit of the search and of the runs for each target.", default=20.0, unnamed=None
    )
    effort: float | None = said(BatchOptions, "effort")


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineOptions(CommandOptions):
    """The options of `memsched.features.pipeline.pipeline.pipeline`."""

    stages: int = option(REQUIRED, "Accelerators in the row.", "number", metavar="N", least=1, most=1_000)
    scheduler: Literal["exact", "respect", "heuristic"] = option(
        "exact",
        "exact proves its stages; respect is a learned policy; heuristic splits parameters evenly along the order.",
        choices=("exact", "respect", "heuristic"),
    )
    balance: Literal["params", "macs", "memory", "time"] = option(
        "params", "What the largest stage is to have least of.", choices=("params", "macs", "memory", "time")
    )
    profile: Literal["target", "model"] = option(
        "target",
        "Where the time of operators is from: the target's figures, or every operator of the model measured here "
        "(ONNX), for accelerators whose parameters all stay.",
        choices=("target", "model"),
    )
    cut_after: Sequence[str] = option(
        (), "End a stage with this operator: its readers come later.", "texts", flag="--cut-at", metavar="OP"
    )
    never_cut: Sequence[str] = option((), "Keep this operator's readers in its stage.", "texts", metavar="OP")
    children_together: bool = option(False, "Keep all readers of an operator in one stage.", "flag")
    skips: Literal["once", "through"] = option(
        "once",
        "How tensors reach later stages than the next: the host sends them once to each, or every stage hands them on.",
        choices=("once", "through"),
    )
    annotate: bool = option(True, "ONNX: write the whole model with the stage of every node, too.", "switch")
    target: str | None = said(Options, "target")
    input_shapes: Mapping[str, Sequence[int]] = said(Options, "input_shapes")
    dims: Mapping[str, int] = said(Options, "dims")
    allow: Collection[str] = said(_ModelOptions, "allow")
    max_extra_macs: float = said(Options, "max_extra_macs")
    time_limit: float | Literal["auto"] | None = said(Options, "time_limit")
    effort: float | None = said(Options, "effort")
    memory_limit: int | None = said(Options, "memory_limit")
    verify: bool = said(Options, "verify", "Run the segments and compare the outputs.")
    seed: int = said(Options, "seed")
    workers: int = said(Options, "workers", "Processes that search.")


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayOptions(CommandOptions):
    """The options of `memsched.features.relay.relay.relay`."""

    target: str | None = said(
        _ModelOptions, "target", "Memory rules of a runtime that is given one block of memory.", default="tflm"
    )
    input_shapes: Mapping[str, Sequence[int]] = said(_ModelOptions, "input_shapes")
    dims: Mapping[str, int] = said(_ModelOptions, "dims")
    allow: Collection[str] = said(_ModelOptions, "allow", ALLOW_IO_HELP, kind="allow_io")
    stages: int | None = option(None, "Most files; by default as many as help.", "count", metavar="N", least=1)
    budget: int | str | None = said(
        _ModelOptions,
        "budget",
        "What the block may take, such as 64KB, or 50% of what MODEL requires: the fewest files that fit, with the "
        "least extra work; if that is not enough, no file is written, and the exit code is 3.",
    )
    keep_best: bool = said(BatchOptions, "keep_best")
    max_extra_macs: float = said(
        BatchOptions,
        "max_extra_macs",
        "With tile or remat in --allow: multiply-accumulates that may be added to each stage, in percent of its own.",
    )
    time_limit: float | Literal["auto"] | None = said(
        Options, "time_limit", "Limit of the whole command: the search leaves time to run the stages."
    )
    effort: float | None = said(Options, "effort")
    memory_limit: int | None = said(Options, "memory_limit")
    tflm_plan: bool | None = said(
        Options, "tflm_plan", "Write the tensors' offsets into each stage's file; by default where that helps."
    )
    verify: bool = said(BatchOptions, "verify", "Run the stages one after the other and compare the outputs.")
    seed: int = said(BatchOptions, "seed")


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderOptions(CommandOptions):
    """The options of `memsched.features.decoder.decoder.decode_in_place`."""

    tokens: int = option(
        1024, "Length of a text, that of its prompt included: of the buffers.", "number", metavar="N", least=16
    )
    chunk: int = option(128, "Tokens of a prompt that are computed at a time.", "number", metavar="N", least=1)
    length: str | None = option(
        None, "The dimension that is the number of new tokens, where it can't be seen which.", metavar="NAME"
    )
    dims: Mapping[str, int] = said(_ModelOptions, "dims", "Value of another dimension, such as a batch; else 1.")
    budget: int | str | None = option(
        None,
        "What the process may take beyond what it has before, such as 2GB; if a text of --tokens takes more, no file "
        "is written, and the exit code is 3.",
        "size",
        metavar="SIZE",
    )
    keep_best: bool = said(BatchOptions, "keep_best")
    seed: int = said(Options, "seed", "Seed of the inputs.", least=0, most=2**31 - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class DistributeOptions(CommandOptions):
    """The options of `memsched.features.distribute.distribute.distribute`."""

    cluster: str | os.PathLike[str] | Cluster = option(  # noqa: RUF009 - it returns a field
        REQUIRED, "The devices and the network that connects them.", metavar="NAME|FILE.toml"
    )
    method: Literal["auto", "genetic", "exact", "even", "single"] = option(
        "auto",
        "How to find a plan; even: equal shares; single: the fastest device alone.",
        choices=("auto", "genetic", "exact", "even", "single"),
    )
    metric: Literal["peak", "sum"] = option(
        "peak",
        "What the order needs least of before shares are searched: bytes live at one time, or summed over all ops.",
        choices=("peak", "sum"),
    )
    drop: Sequence[str | int] = option(
        (), "A device that has dropped out, by name.", "texts", flag="--without", metavar="DEVICE"
    )
    home: str | int = option("0", "The device that gets the outputs, by name or number.", metavar="DEVICE")
    input_shapes: Mapping[str, Sequence[int]] = said(Options, "input_shapes")
    dims: Mapping[str, int] = said(Options, "dims")
    time_limit: float | Literal["auto"] | None = said(Options, "time_limit")
    effort: float | None = said(Options, "effort")
    memory_limit: int | None = said(Options, "memory_limit")
    seed: int = said(Options, "seed")
    workers: int = said(Options, "workers", "Processes that search.")


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocateOptions(CommandOptions):
    """The options of `memsched.allocate_buffers`."""

    capacity: int | str | None = option(
        None,
        "Room for the buffers, such as 1MB; the search ends when all fit. If they do not, no file is written, and the "
        "exit code is 3.",
        "size",
        metavar="SIZE",
    )
    keep_best: bool = option(
        False, "Write the best addresses even if they exceed the capacity; exit code 3 all the same.", "flag"
    )
    minimize: bool = option(False, "Go on to the smallest height; without --capacity it is always sought.", "flag")
    alignment: int = option(1, "Alignment in bytes of buffers that state none.", "number", metavar="N", least=1)
    time_limit: float | Literal["auto"] | None = said(Options, "time_limit")
    effort: float | None = said(Options, "effort")
    memory_limit: int | None = said(Options, "memory_limit")
    seed: int = said(Options, "seed")
    workers: int = said(Options, "workers", "Processes that search side by side.")


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOptions(CommandOptions):
    """The options of `memsched.verify`."""

    runs: int = option(3, "Random inputs to compare on.", "number", metavar="N", least=1)
    rtol: float = option(0.0, "Relative tolerance of outputs.", "number", least=0)
    atol: float = option(0.0, "Absolute tolerance of outputs.", "number", least=0)
    seed: int = said(Options, "seed", "Seed of the inputs.", least=0, most=2**31 - 1)
    input_shapes: Mapping[str, Sequence[int]] = said(Options, "input_shapes")
    dims: Mapping[str, int] = said(Options, "dims")
    runtime: Literal["onnxruntime", "litert", "tflm"] | None = option(
        None,
        "Where to run both; by default ONNX Runtime or LiteRT. tflm: TensorFlow Lite Micro, which measures arenas.",
        choices=("onnxruntime", "litert", "tflm"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffOptions(CommandOptions):
    """The options of `memsched.compare_reports`."""

    fail_percent: float | None = option(
        None,
        "Exit with 3 where a peak, or what is required, grew by more than PCT percent, a budget is missed that was "
        "met, or a model fails that did not.",
        "percentage",
        flag="--fail-on-regression",
        metavar="PCT",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorOptions(CommandOptions):
    """The options of `memsched.features.doctor.doctor.diagnose`."""

    input_shapes: Mapping[str, Sequence[int]] = said(Options, "input_shapes")
    dims: Mapping[str, int] = said(Options, "dims")
    time_limit: float | Literal["auto"] | None = said(
        Options, "time_limit", "No further session is opened after it; the best so far is shown."
    )
    effort: int | None = option(None, "Number of sessions to open, instead.", "count", metavar="N", least=1)
    max_slowdown: float = option(
        10.0,
        "Processor time, in percent of a session without options, that a session worth choosing may take beyond it.",
        "percentage",
        metavar="PCT",
    )
    seed: int = said(Options, "seed", "Seed of the inputs.", least=0, most=2**31 - 1)
