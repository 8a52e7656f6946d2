"""Metadata of an ONNX file, read and written without the graph: a model is a row of fields, one after the other."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO, Final

from memsched.base.errors import ModelError

__all__ = ["read_metadata", "with_metadata"]

_ENTRIES: Final = 14
"""Number of the field with an entry of the metadata."""

_LENGTHS: Final = {1: 8, 5: 4}
"""Bytes of a value by its wire type; 0 and 2 state their own."""


def with_metadata(data: bytes, entries: Mapping[str, str]) -> bytes:
    """Return a model with more metadata; keys that it has already must not be among them."""
    from onnx import ModelProto

    added = ModelProto()
    for key, value in entries.items():
        added.metadata_props.add(key=key, value=value)
    encoded: bytes = added.SerializeToString()
    return data + encoded


def read_metadata(path: Path) -> dict[str, str]:
    """Return the metadata of a file.

    Raises:
        ModelError: It is no ONNX file.
        OSError: It cannot be read.
    """
    from google.protobuf.message import DecodeError
    from onnx import StringStringEntryProto

    found: dict[str, str] = {}
    with path.open("rb") as file:
        size = file.seek(0, io.SEEK_END)
        file.seek(0)
        while file.tell() < size:
            number, kind = divmod(_varint(file), 8)
            length = _varint(file) if kind == 2 else _LENGTHS.get(kind, 0)
            if kind not in {0, 2, *_LENGTHS} or file.tell() + length > size:
                raise ModelError("this is no ONNX file", location=str(path), code="not-onnx")
            if kind == 0:
                _varint(file)
            elif number == _ENTRIES:
                try:
                    entry = StringStringEntryProto.FromString(file.read(length))
                except DecodeError as error:
                    raise ModelError(f"metadata: {error}", location=str(path), code="not-onnx") from None
                found[entry.key] = entry.value
            else:
                file.seek(length, io.SEEK_CUR)
    return found


def _varint(file: BinaryIO) -> int:
    value = shift = 0
    while shift < 64:
        byte = file.read(1)
        if not byte:
            break
        value |= (byte[0] & 127) << shift
        shift += 7
        if byte[0] < 128:
            return value
    raise ModelError("this is no ONNX file", code="not-onnx")
