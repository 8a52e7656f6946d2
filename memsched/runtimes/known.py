"""The runtimes that memsched runs models in."""

from __future__ import annotations

from typing import Final

from memsched.formats.module import FormatName
from memsched.runtimes.litert.runner import LiteRtRunner
from memsched.runtimes.onnxruntime.runner import OnnxRuntimeRunner
from memsched.runtimes.runner import Runner

__all__ = ["runner_of"]

_RUNNERS: Final[tuple[Runner, ...]] = (OnnxRuntimeRunner(), LiteRtRunner())


def runner_of(name: FormatName) -> Runner:
    """Return what runs the files of a format."""
    return next(one for one in _RUNNERS if one.format == name)
