"""How sessions are opened: the options to choose from."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Final, Literal

__all__ = ["DEFAULT", "EXECUTED", "LISTED", "PATTERNLESS", "SessionPoint", "described"]


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


def described(model: str | Path | bytes, data_folder: str | Path | None) -> dict[str, Any]:
    """Describe a model to a child process; "folder" is where its external data lies."""
    if isinstance(model, bytes):
        return {"bytes": model, "folder": None if data_folder is None else str(Path(data_folder).absolute())}
    path = Path(model).absolute()
    return {"path": str(path), "folder": str(path.parent)}
