"""The list of a TFLite file's operator codes, which operators that a rewrite adds refer to by number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from memsched.formats.tflite.assembly import Item, OldObject, Scalar, TableItem
from memsched.formats.tflite.file_numbers import FileNumbers
from memsched.formats.tflite.flatbuffer import FlatbufferTable
from memsched.formats.tflite.package import number_of
from memsched.formats.tflite.schema import ModelSlot, OperatorCodeSlot

__all__ = ["OperatorCodes"]

# The first version of each operator that takes a type; version 1 takes float32, uint8, int32 and int64.
_VERSIONS: Final[Mapping[str, Mapping[str, int]]] = {
    "ADD": {},
    "CONCATENATION": {"int8": 2, "int16": 3},
    "DYNAMIC_UPDATE_SLICE": {},
    # From version 5 on, GATHER compares batches.
    "GATHER": dict.fromkeys(("bool", "float32", "int16", "int32", "int64", "int8", "uint8"), 5),
    "IF": {},
    "LESS": {},
    "MAXIMUM": {"int8": 2, "int16": 4},
    "MINIMUM": {"int8": 2, "int16": 4},
    "PAD": {"int8": 2, "int16": 3},
    "RESHAPE": {},
    "SLICE": {"int8": 2, "int16": 4},
    "STRIDED_SLICE": {"int8": 2, "int16": 4},
    "WHILE": {},
}


class OperatorCodes:
    """The file's operator codes, and new ones behind them.

    Attributes:
        items: All of them.
    """

    def __init__(self, root: FlatbufferTable) -> None:
        self._given = root.tables(ModelSlot.OPERATOR_CODES)
        self._new: dict[tuple[str, int], int] = {}
        self.items: list[Item] = [OldObject(table.position) for table in self._given]

    @staticmethod
    def known(kind: str) -> bool:
        """Return whether operators of this kind can be added."""
        return kind in _VERSIONS

    def number(self, kind: str, dtype: str) -> int:
        """Return the number of an operator's code for a type of data, added where the file has none of the version."""
        version, code = _VERSIONS[kind].get(dtype, 1), number_of("BuiltinOperator", kind)
        for index, table in enumerate(self._given):
            builtin = max(
                table.number(OperatorCodeSlot.DEPRECATED_BUILTIN_CODE, "int8"),
                table.number(OperatorCodeSlot.BUILTIN_CODE, "int32"),
            )
            if builtin == code and table.number(OperatorCodeSlot.VERSION, "int32", 1) >= version:
                return index
        if (kind, version) not in self._new:
            self._new[kind, version] = len(self.items)
            self.items.append(
                TableItem(
                    {
                        OperatorCodeSlot.DEPRECATED_BUILTIN_CODE: Scalar("int8", min(code, FileNumbers.LAST_OLD_CODE)),
                        OperatorCodeSlot.VERSION: Scalar("int32", version),
                        OperatorCodeSlot.BUILTIN_CODE: Scalar("int32", code),
                    }
                )
            )
        return self._new[kind, version]
