"""Parts of a TFLite model as models of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from memsched.errors import ModelError
from memsched.formats.module import Module

if TYPE_CHECKING:
    from memsched.formats.segments import Segment

__all__ = ["TfliteCutter"]


class TfliteCutter:
    """Makes models of parts of one module."""

    def __init__(self, module: Module) -> None:
        self._module = module

    def cut(self, segment: Segment, metadata: Mapping[str, str]) -> bytes:
        """Return what `memsched.formats.segments.extract` returns."""
        del segment, metadata
        raise ModelError(f"{self._module.path}: TFLite models cannot be cut yet")
