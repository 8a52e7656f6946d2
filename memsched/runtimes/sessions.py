"""Sessions, in which a runtime optimizes a model before it runs it: how one is opened, and what one takes.

ONNX Runtime opens files so; TFLite files are executed as they are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

from memsched.formats.module import LoadOptions

__all__ = ["DEFAULT", "EXECUTED", "LISTED", "PATTERNLESS"]
__all__ += ["ExecutedModel", "Level", "MappedModel", "MemorySplit", "SessionPoint"]

Level = Literal["basic", "extended", "all"]


@dataclasses.dataclass(frozen=True, slots=True)
class SessionPoint:
    """How a session is opened; the defaults are those of one without options.

    Attributes:
        level: Of graph optimisation.
        order: "file": ``PRIORITY_BASED``.
        reuse: ``enable_mem_reuse``.
        pattern: ``enable_mem_pattern``.
        arena: ``enable_cpu_mem_arena``.
        shrinkage: The arena gives back what a run no longer needs, after each run.
        prepacking: Weights are stored again as kernels want them.
        threads: Of one operator; 0 for as many as there are cores.
        disabled: ``disabled_optimizers``.
        quant_qdq: Without ``session.disable_quant_qdq``: what is between quantised values is moved and doubled.
    """

    level: Literal["disabled", "basic", "extended", "all"] = "all"
    order: Literal["file", "default"] = "default"
    reuse: bool = True
    pattern: bool = True
    arena: bool = True
    shrinkage: bool = False
    prepacking: bool = True
    threads: int = 0
    disabled: tuple[str, ...] = ()
    quant_qdq: bool = True


DEFAULT: Final = SessionPoint()
"""A session without options."""

PATTERNLESS: Final = SessionPoint(pattern=False)
"""The one option that takes less of most processes and costs no time."""

EXECUTED: Final = SessionPoint("disabled", "file", reuse=False, pattern=False)
"""For files that hold what is executed, in its order."""

LISTED: Final = SessionPoint(
    "basic",
    "file",
    reuse=False,
    pattern=False,
    # They merge what was computed again on purpose, or number nodes anew.
    disabled=(
        *("CommonSubexpressionElimination", "MatMulAddFusion", "ReshapeFusion"),
        *("GeluFusionL1", "LayerNormFusionL1"),
    ),
    # Weights would be dequantised in each run, once for each of their readers, behind all nodes of the file.
    quant_qdq=False,
)
"""The options that ``--order-guarantee session`` lists."""


@dataclasses.dataclass(frozen=True, slots=True)
class MemorySplit:
    """Where the memory of a process with a session lies, bytes.

    Code, weights, copies and the arena are counted; structures and buffers are the rest, before runs and after them.

    Attributes:
        code: Pages of the runtime's library and of mapped files that the session touched.
        weights: Of the graph that the session makes of the file, less what the copies replace, as far as the process
            grew by so much when the session was opened.
        prepacked: Copies of weights in the layout that kernels want: the arena in use at rest.
        structures: The rest of what opening the session took: graph, kernels, plans, and what it left freed.
        arena_in_use: What runs took from the arena at most, beyond the prepacked copies.
        arena_slack: What the arena holds beyond that, as far as it was ever touched.
        buffers: What runs left outside the arena: outputs, what kernels, threads and the C library keep.
    """

    code: int
    weights: int
    prepacked: int
    structures: int
    arena_in_use: int
    arena_slack: int
    buffers: int

    @property
    def total(self) -> int:
        """Return the sum of all parts."""
        return sum(dataclasses.astuple(self))


@dataclasses.dataclass(frozen=True, slots=True)
class MappedModel:
    """A model with mapped weights: they are packed for the kernels in a second file.

    Attributes:
        model: The model file.
        weights: The weight file, in the same folder.
        point: Session options for the model.
        processor: The kind of processor that the weights are packed for.
        block: Number of channels in a block, if tensors are stored in blocks: processors with another block size refuse
            the model. None if the model is correct on every processor.
    """

    model: Path
    weights: Path
    point: SessionPoint
    processor: str
    block: int | None


@dataclasses.dataclass(frozen=True, slots=True)
class ExecutedModel:
    """A model as sessions of a level execute it.

    Attributes:
        data: The file, weights inside.
        options: How to read it: the sizes that one run showed.
        level: Of graph optimisation.
        block: Channels that blocked tensors are padded to a multiple of; None where no tensor is blocked.
        processor: On which it was made, in words.
        fixed: Dimensions that the model as given leaves open, with their sizes in this one.
    """

    data: bytes
    options: LoadOptions
    level: Level
    block: int | None
    processor: str
    fixed: Mapping[str, int]

    def holds_for(self) -> str:
        """Return in words where the file is of use."""
        if self.block is None:
            return f"as ONNX Runtime optimises it at level {self.level}: for any processor"
        return (
            f"as ONNX Runtime optimises it at level {self.level}, in blocks of {self.block} channels: for processors "
            f"of that block, such as this one ({self.processor}); for others it must be made again there"
        )
