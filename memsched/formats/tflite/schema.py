"""The TFLite schema's numbers: operator codes, element types and the slots of tables, as the package tflite has them.

The schema only ever grows at its ends, so a file from a newer one is read correctly as far as these numbers go.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Final

from memsched.formats.tflite.package import field, members, table

__all__ = [
    "BufferSlot",
    "MetadataSlot",
    "ModelSlot",
    "OperatorCodeSlot",
    "OperatorSlot",
    "QuantizationSlot",
]
__all__ += [
    "SubgraphSlot",
    "TensorSlot",
    "element_types",
    "operator_type",
    "operator_types",
    "type_code",
    "unsized_types",
]

_CUSTOM: Final = "CUSTOM"
_UNSIZED: Final = frozenset({"STRING", "RESOURCE", "VARIANT"})


class _Slots:
    """The slots of a table's fields, by their names in the schema in capitals.

    Attributes:
        COUNT: How many slots the table has.
    """

    def __init__(self, table_name: str) -> None:
        self._table = table_name

    def __getattr__(self, name: str) -> int:
        """Look a slot up when it is first needed."""
        if name.startswith("_"):
            raise AttributeError(name)
        slot = table(self._table).slots if name == "COUNT" else field(self._table, name.lower()).slot
        # From now on the number itself is there: files have a hundred thousand fields.
        setattr(self, name, slot)
        return slot


BufferSlot: Final = _Slots("Buffer")
"""Offset and size state bytes of the file outside the flatbuffer."""

MetadataSlot: Final = _Slots("Metadata")
ModelSlot: Final = _Slots("Model")
OperatorCodeSlot: Final = _Slots("OperatorCode")
OperatorSlot: Final = _Slots("Operator")
QuantizationSlot: Final = _Slots("QuantizationParameters")
SubgraphSlot: Final = _Slots("SubGraph")
TensorSlot: Final = _Slots("Tensor")


@cache
def element_types() -> Mapping[int, tuple[str, int]]:
    """Return TensorType to the element type's name and bits; types of less than a byte are packed."""
    sized = {code: name for code, name in members("TensorType").items() if name not in _UNSIZED}
    return MappingProxyType({code: (name.lower(), _bits(name)) for code, name in sized.items()})


@cache
def unsized_types() -> Mapping[int, str]:
    """Return the TensorTypes whose bytes no shape states, by name."""
    return MappingProxyType({code: name.lower() for code, name in members("TensorType").items() if name in _UNSIZED})


def type_code(dtype: str) -> int:
    """Return the TensorType of an element type."""
    return next(code for code, (name, _) in element_types().items() if name == dtype)


def _bits(name: str) -> int:
    """Return the bits of an element: all names but BOOL begin with a kind and them, as FLOAT8_E5M2 does."""
    stated = re.match(r"[A-Z]+(\d+)", name)
    return int(stated[1]) if stated is not None else 8


def operator_types() -> Mapping[int, str]:
    """Return the operators' codes to their names."""
    return members("BuiltinOperator")


def operator_type(builtin_code: int, custom_code: str) -> str:
    """Return the operator's name: "CONV_2D", "CUSTOM:name", or "BUILTIN_999" for a code of a later schema."""
    name = operator_types().get(builtin_code, f"BUILTIN_{builtin_code}")
    return f"{_CUSTOM}:{custom_code}" if name == _CUSTOM else name
