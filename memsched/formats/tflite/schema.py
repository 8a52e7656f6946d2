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

__all__ = ["BufferSlot", "MetadataSlot", "ModelSlot", "OperatorCodeSlot", "OperatorSlot", "QuantizationSlot"]
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


class _Slot:
    """The slot of a field, which is looked up when it is first needed."""

    def __init__(self, table_name: str, field_name: str) -> None:
        self._table, self._field = table_name, field_name

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type) -> int:
        slot = field(self._table, self._field).slot
        # From now on the class has the number itself: files have a hundred thousand fields.
        setattr(owner, self._name, slot)
        return slot


class _Slots:
    """How many slots a table has, looked up when it is first needed."""

    def __init__(self, table_name: str) -> None:
        self._table = table_name

    def __get__(self, instance: object, owner: type) -> int:
        return table(self._table).slots


class ModelSlot:
    """Slots of the table Model."""

    VERSION = _Slot("Model", "version")
    OPERATOR_CODES = _Slot("Model", "operator_codes")
    SUBGRAPHS = _Slot("Model", "subgraphs")
    DESCRIPTION = _Slot("Model", "description")
    BUFFERS = _Slot("Model", "buffers")
    METADATA = _Slot("Model", "metadata")
    SIGNATURE_DEFS = _Slot("Model", "signature_defs")
    EXTERNAL_BUFFER_GROUPS = _Slot("Model", "external_buffer_groups")
    EXTERNAL_BUFFERS = _Slot("Model", "external_buffers")
    COUNT = _Slots("Model")


class SubgraphSlot:
    """Slots of the table SubGraph."""

    TENSORS = _Slot("SubGraph", "tensors")
    INPUTS = _Slot("SubGraph", "inputs")
    OUTPUTS = _Slot("SubGraph", "outputs")
    OPERATORS = _Slot("SubGraph", "operators")
    NAME = _Slot("SubGraph", "name")
    DEBUG_METADATA = _Slot("SubGraph", "debug_metadata_index")


class TensorSlot:
    """Slots of the table Tensor."""

    SHAPE = _Slot("Tensor", "shape")
    TYPE = _Slot("Tensor", "type")
    BUFFER = _Slot("Tensor", "buffer")
    NAME = _Slot("Tensor", "name")
    QUANTIZATION = _Slot("Tensor", "quantization")
    IS_VARIABLE = _Slot("Tensor", "is_variable")
    SPARSITY = _Slot("Tensor", "sparsity")
    SHAPE_SIGNATURE = _Slot("Tensor", "shape_signature")
    EXTERNAL_BUFFER = _Slot("Tensor", "external_buffer")


class QuantizationSlot:
    """Slots of the table QuantizationParameters."""

    MINIMUM = _Slot("QuantizationParameters", "min")
    MAXIMUM = _Slot("QuantizationParameters", "max")
    SCALE = _Slot("QuantizationParameters", "scale")
    ZERO_POINT = _Slot("QuantizationParameters", "zero_point")
    DETAILS_TYPE = _Slot("QuantizationParameters", "details_type")
    DETAILS = _Slot("QuantizationParameters", "details")
    AXIS = _Slot("QuantizationParameters", "quantized_dimension")


class OperatorSlot:
    """Slots of the table Operator."""

    OPCODE_INDEX = _Slot("Operator", "opcode_index")
    INPUTS = _Slot("Operator", "inputs")
    OUTPUTS = _Slot("Operator", "outputs")
    OPTIONS_TYPE = _Slot("Operator", "builtin_options_type")
    OPTIONS = _Slot("Operator", "builtin_options")
    CUSTOM_OPTIONS = _Slot("Operator", "custom_options")
    INTERMEDIATES = _Slot("Operator", "intermediates")
    LARGE_CUSTOM_OPTIONS_OFFSET = _Slot("Operator", "large_custom_options_offset")
    LARGE_CUSTOM_OPTIONS_SIZE = _Slot("Operator", "large_custom_options_size")
    OPTIONS_2_TYPE = _Slot("Operator", "builtin_options_2_type")
    OPTIONS_2 = _Slot("Operator", "builtin_options_2")
    DEBUG_METADATA = _Slot("Operator", "debug_metadata_index")


class OperatorCodeSlot:
    """Slots of the table OperatorCode."""

    DEPRECATED_BUILTIN_CODE = _Slot("OperatorCode", "deprecated_builtin_code")
    CUSTOM_CODE = _Slot("OperatorCode", "custom_code")
    VERSION = _Slot("OperatorCode", "version")
    BUILTIN_CODE = _Slot("OperatorCode", "builtin_code")


class BufferSlot:
    """Slots of the table Buffer; offset and size state bytes of the file outside the flatbuffer."""

    DATA = _Slot("Buffer", "data")
    OFFSET = _Slot("Buffer", "offset")
    SIZE = _Slot("Buffer", "size")


class MetadataSlot:
    """Slots of the table Metadata."""

    NAME = _Slot("Metadata", "name")
    BUFFER = _Slot("Metadata", "buffer")


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
