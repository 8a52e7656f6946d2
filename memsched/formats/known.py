"""The formats that memsched reads and writes."""

from __future__ import annotations

from typing import Final, TypeVar

from memsched.formats.capabilities import Capability
from memsched.formats.format import Format
from memsched.formats.module import FormatName, Module
from memsched.formats.onnx.format import OnnxFormat
from memsched.formats.tflite.format import TfliteFormat

__all__ = ["FORMATS", "capability", "format_in", "format_named", "format_of"]

FORMATS: Final[tuple[Format, ...]] = (TfliteFormat(), OnnxFormat())
"""In the order in which they are asked; the last takes what no other recognizes."""

_CapabilityT = TypeVar("_CapabilityT", bound=Capability)


def format_in(data: bytes) -> Format:
    """Return the format of a file, by its content, not by its name.

    What begins as no file of any format is for the reader of the last one to refuse.
    """
    return next((one for one in FORMATS if one.begins(data)), FORMATS[-1])


def format_named(name: FormatName) -> Format:
    """Return the format of that name."""
    return next(one for one in FORMATS if one.name == name)


def format_of(module: Module) -> Format:
    """Return the format that ``module`` was read from."""
    return format_named(module.format)


def capability(of: Module | Format, kind: type[_CapabilityT]) -> _CapabilityT:
    """Return what a format, or the format of a module, has of a kind; if it has none, what holds for all others."""
    form = format_of(of) if isinstance(of, Module) else of
    found = next((one for one in form.capabilities if isinstance(one, kind)), None)
    return kind(form.traits.title) if found is None else found
