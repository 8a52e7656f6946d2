"""memsched: order, place and prove the activation memory of neural networks.

The commands as functions: `optimize`, `analyze`, `verify`, `allocate_buffers`, `compare_reports`. For passes of your
own: `load` gives a model's graph, `Storage` and `evaluate` say what an order costs, and `reorder` writes one back.
`memsched.features.pipeline.pipeline` and `memsched.features.distribute.distribute` share a model out to several
devices. A function takes its options as one value, such as `Options` for `optimize`, or each as a keyword, and `Hooks`
for what it tells and asks while it runs.

All of them, and what they return, are imported on first use, so that importing the package costs nothing.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

from memsched.base.errors import BudgetError, MemschedError

if TYPE_CHECKING:
    from memsched.commands.allocate import AllocateResult, allocate_buffers
    from memsched.commands.calls import Hooks
    from memsched.commands.diff import compare_reports, load_report
    from memsched.commands.optimize.analysis import analyze
    from memsched.commands.optimize.optimize import load, optimize, verify
    from memsched.commands.options import AllocateOptions, AnalyzeOptions, Options, VerifyOptions
    from memsched.commands.results import AnalyzeResult, OptimizeResult, OutputsDifferError, Report
    from memsched.commands.verify import ModelComparison
    from memsched.formats.module import Module
    from memsched.graph.liveness import Profile, Storage
    from memsched.graph.model import Allocation, Graph, Op, Schedule, Tensor
    from memsched.plan.write import evaluate, reorder

__version__ = "0.1.0"

# ONNX Runtime from 1.29 on sends names and figures of models to its maker, unless this is set before it starts.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

__all__ = [
    "AllocateOptions",
    "AllocateResult",
    "Allocation",
    "AnalyzeOptions",
    "AnalyzeResult",
    "BudgetError",
    "Graph",
    "Hooks",
    "MemschedError",
    "ModelComparison",
    "Module",
    "Op",
    "OptimizeResult",
    "Options",
    "OutputsDifferError",
    "Profile",
    "Report",
    "Schedule",
    "Storage",
    "Tensor",
    "VerifyOptions",
    "__version__",
    "allocate_buffers",
    "analyze",
    "compare_reports",
    "evaluate",
    "load",
    "load_report",
    "optimize",
    "reorder",
    "verify",
]

_HOMES = {
    "memsched.commands.diff": ("compare_reports", "load_report"),
    "memsched.commands.optimize.analysis": ("analyze",),
    "memsched.commands.optimize.optimize": ("load", "optimize", "verify"),
    "memsched.formats.module": ("Module",),
    "memsched.graph.liveness": ("Profile", "Storage"),
    "memsched.graph.model": ("Allocation", "Graph", "Op", "Schedule", "Tensor"),
    "memsched.commands.allocate": ("AllocateResult", "allocate_buffers"),
    "memsched.commands.calls": ("Hooks",),
    "memsched.commands.options": ("AllocateOptions", "AnalyzeOptions", "Options", "VerifyOptions"),
    "memsched.commands.results": ("AnalyzeResult", "OptimizeResult", "OutputsDifferError", "Report"),
    "memsched.commands.verify": ("ModelComparison",),
    "memsched.plan.write": ("evaluate", "reorder"),
}
"""Module to what is taken from it."""

_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'memsched' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
