"""The formats that memsched reads and writes."""

from __future__ import annotations

from typing import Final

from memsched.formats.format import Format
from memsched.formats.module import Module
from memsched.formats.onnx.format import OnnxFormat
from memsched.formats.tflite.format import TfliteFormat

__all__ = ["FORMATS", "format_in", "format_of"]

FORMATS: Final[tuple[Format, ...]] = (TfliteFormat(), OnnxFormat())
"""In the order in which they are asked: ONNX files begin with nothing of their own."""


def format_in(data: bytes) -> Format:
    """Return the format of a file, which is told by its content, not by its name."""
    return next(one for one in FORMATS if one.recognises(data))


def format_of(module: Module) -> Format:
    """Return the format that ``module`` was read from."""
    return next(one for one in FORMATS if one.name == module.format)
