"""The runtimes that memsched knows, and what runs the files of each format."""

from __future__ import annotations

from typing import Final

from memsched.formats.module import FormatName, Module
from memsched.runtimes.litert.runner import LiteRtRunner
from memsched.runtimes.litert.runtime import LiteRt
from memsched.runtimes.onnxruntime.runner import OnnxRuntimeRunner
from memsched.runtimes.onnxruntime.runtime import OnnxRuntime
from memsched.runtimes.runner import Runner
from memsched.runtimes.runtime import AS_TOLD, Opening, Runtime
from memsched.runtimes.target_rules import TargetRules
from memsched.runtimes.tflm.runtime import TensorFlowLiteMicro
from memsched.targets.model import Target

__all__ = ["runner_of", "runtime_of"]

_RUNNERS: Final[tuple[Runner, ...]] = (OnnxRuntimeRunner(), LiteRtRunner())


def runner_of(name: FormatName) -> Runner:
    """Return what runs the files of a format."""
    return next(one for one in _RUNNERS if one.format == name)


def runtime_of(module: Module, target: Target, opening: Opening = AS_TOLD) -> Runtime:
    """Return the runtime that a target stands for, as far as it is known what that does with ``module``.

    Args:
        opening: How the file that is written will be opened; by default as people are told to.

    Raises:
        UsageError: The target's runtime does not open files like that.
    """
    for make in (TensorFlowLiteMicro, LiteRt, OnnxRuntime):
        if make.judges(module, target, opening):
            return make(target, opening)
    return TargetRules(target, opening)
