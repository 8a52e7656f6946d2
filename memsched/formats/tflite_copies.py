"""Whole copies of a TFLite file's tables for another file: nothing in them refers to the old one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from memsched.errors import ModelError
from memsched.formats.tflite_assembly import Blob, Item, RawTable, References, Scalar, Text
from memsched.formats.tflite_flatbuffer import FlatFile, Table
from memsched.formats.tflite_schema import OperatorSlot, QuantizationSlot, TensorSlot

__all__ = ["Copier"]

_TEXT: Final = 0
"""In the place of an element's width: a string, which has a zero byte behind it."""

_Union = tuple[int, Mapping[int, str]]
_Reference = int | str | _Union
"""What a field refers to: a vector of numbers, by the width of one; a vector of tables, by their name; one table, by
the slot that says which and the names that this means."""


@dataclass(frozen=True, slots=True)
class _Schema:
    """How many slots a table has, and what those of them refer to that are references."""

    slots: int
    references: Mapping[int, _Reference]


# BuiltinOptions and BuiltinOptions2 of the schema: per number the slots of that table.
_OPTION_SLOTS: Final = (
    "0 7 7 3 1 6 3 2 6 1 2 2 1 4 5 4 1 1 3 1 1 1 0 2 0 0 0 1 2 1 1 3 6 0 0 1 0 2 0 0 1 0 0 0 0 0 0 0 0 5 1 0 0 0 0 1 "
    "0 1 4 2 0 1 0 0 2 0 0 0 0 6 4 6 0 0 2 1 0 1 0 1 1 0 0 0 0 0 0 2 0 0 0 0 2 2 1 0 0 0 0 0 0 3 2 1 0 0 8 3 0 0 0 2 "
    "0 0 2 1 1 0 0 0 0 0 0 0 0 0 0"
)
_OPTION_2_SLOTS: Final = "0 1 1 3 17 6 2 7 2 1 3 1 5 6 3 2 6 1 0 1 1 5 0 1"
_OPTION_REFERENCES: Final[Mapping[int, Mapping[int, int]]] = {
    3: {1: 4, 2: 4},  # ConcatEmbeddingsOptions
    8: {5: 1},  # FullyConnectedOptions
    17: {0: 4},  # ReshapeOptions
    30: {0: 4},  # SqueezeOptions
    111: {0: _TEXT, 1: _TEXT},  # VarHandleOptions
    115: {0: 4},  # BucketizeOptions
}
_OPTION_2_REFERENCES: Final[Mapping[int, Mapping[int, int]]] = {
    2: {0: 8},  # StablehloBroadcastInDimOptions
    3: {0: 8, 1: 8, 2: 8},  # StablehloSliceOptions
    4: {0: 8, 1: 8, 2: 8, 3: 8, 4: 1, 7: 8, 10: 8, 13: 8, 16: 4},  # StablehloConvolutionOptions
    5: {0: _TEXT, 2: _TEXT, 4: 4, 5: 1},  # StablehloCustomCallOptions
    6: {0: 8},  # StablehloReduceOptions
    7: {1: 8, 2: 8, 3: 8},  # StablehloScatterOptions
    9: {0: 8},  # StablehloDynamicSliceOptions
    10: {0: 8, 1: 8, 2: 8},  # StablehloPadOptions
    12: {0: 8, 1: 8, 2: 8, 3: 8, 4: 4},  # StablehloDotGeneralOptions
    13: {0: 8, 1: 8, 2: 8, 3: 8, 4: 8},  # StablehloReduceWindowOptions
    16: {0: 8, 1: 8, 2: 8, 4: 8},  # StablehloGatherOptions
    17: {0: 8},  # StablehloTransposeOptions
    21: {0: _TEXT, 2: 1},  # StableHLOCompositeOptions
    23: {0: 4},  # StablehloCaseOptions
}


def _options(prefix: str, slots: str, references: Mapping[int, Mapping[int, int]]) -> dict[str, _Schema]:
    return {
        f"{prefix}{number}": _Schema(int(count), references.get(number, {}))
        for number, count in enumerate(slots.split())
        if number
    }


_DETAILS: Final = {1: "CustomQuantization", 2: "BlockwiseQuantization", 3: "MultiAxisQuantization"}
_INDICES: Final = {1: "Int32Vector", 2: "Uint16Vector", 3: "Uint8Vector"}
_TABLES: Final[Mapping[str, _Schema]] = {
    **_options("options", _OPTION_SLOTS, _OPTION_REFERENCES),
    **_options("options_2.", _OPTION_2_SLOTS, _OPTION_2_REFERENCES),
    "BlockwiseQuantization": _Schema(4, {3: 4}),
    "CustomQuantization": _Schema(1, {0: 1}),
    "DimensionMetadata": _Schema(6, {3: (2, _INDICES), 5: (4, _INDICES)}),
    "ExternalBuffer": _Schema(5, {4: _TEXT}),
    "ExternalBufferGroup": _Schema(1, {0: _TEXT}),
    "Int32Vector": _Schema(1, {0: 4}),
    "MultiAxisQuantization": _Schema(4, {3: 4}),
    "Operator": _Schema(
        14,
        {
            **dict.fromkeys((OperatorSlot.INPUTS, OperatorSlot.OUTPUTS, OperatorSlot.INTERMEDIATES), 4),
            OperatorSlot.OPTIONS: (
                OperatorSlot.OPTIONS_TYPE,
                {number: f"options{number}" for number in range(1, len(_OPTION_SLOTS.split()))},
            ),
            OperatorSlot.CUSTOM_OPTIONS: 1,
            OperatorSlot.MUTATING_VARIABLES: 1,
            OperatorSlot.OPTIONS_2: (
                OperatorSlot.OPTIONS_2_TYPE,
                {number: f"options_2.{number}" for number in range(1, len(_OPTION_2_SLOTS.split()))},
            ),
        },
    ),
    "OperatorCode": _Schema(4, {1: _TEXT}),
    "QuantizationParameters": _Schema(
        7,
        {
            QuantizationSlot.MINIMUM: 4,
            QuantizationSlot.MAXIMUM: 4,
            QuantizationSlot.SCALE: 4,
            QuantizationSlot.ZERO_POINT: 8,
            QuantizationSlot.DETAILS: (QuantizationSlot.DETAILS_TYPE, _DETAILS),
        },
    ),
    "SparsityParameters": _Schema(3, {0: 4, 1: 4, 2: "DimensionMetadata"}),
    "Tensor": _Schema(
        11,
        {
            TensorSlot.SHAPE: 4,
            TensorSlot.NAME: _TEXT,
            TensorSlot.QUANTIZATION: (-1, {0: "QuantizationParameters"}),
            TensorSlot.SPARSITY: (-1, {0: "SparsityParameters"}),
            TensorSlot.SHAPE_SIGNATURE: 4,
            TensorSlot.VARIANT_TENSORS: "VariantSubType",
        },
    ),
    "Uint16Vector": _Schema(1, {0: 2}),
    "Uint8Vector": _Schema(1, {0: 1}),
    "VariantSubType": _Schema(3, {0: 4}),
}


class Copier:
    """Copies tables of one file; what several tables share is copied once."""

    def __init__(self, file: FlatFile) -> None:
        self._file = file
        self._made: dict[tuple[str, int], Item] = {}

    def references(self, table: Table, kind: str) -> dict[int, Item]:
        """Return copies of all that ``table``, of ``kind`` in the schema, refers to, by slot.

        Raises:
            ModelError: Something has fields of a later schema, of which nobody knows whether they are references.
        """
        schema = _TABLES[kind]
        for slot in range(schema.slots, table.slots):
            if table.place(slot) is not None:
                raise ModelError(f"a table {kind} has fields of a later schema (slot {slot})")
        return {
            slot: self._referred(table, slot, reference)
            for slot, reference in schema.references.items()
            if table.place(slot) is not None
        }

    def table(self, table: Table, kind: str, changed: Mapping[int, Scalar | Item] | None = None) -> Item:
        """Return a copy of ``table``, of ``kind`` in the schema, with some of its fields changed.

        Raises:
            ModelError: As `references`; or a field that has to change is not there.
        """
        key = (kind, table.position)
        if not changed and key in self._made:
            return self._made[key]
        fields: dict[int, Scalar | Item] = {**self.references(table, kind), **(changed or {})}
        inline, offsets = table.raw()
        if table.position % 4 or any(slot >= len(offsets) or not offsets[slot] for slot in fields):
            raise ModelError(f"a table {kind} cannot be changed; the file is damaged or of an odd writer")
        made = RawTable(inline, offsets, table.position % 8, fields)
        if not changed:
            self._made[key] = made
        return made

    def _referred(self, table: Table, slot: int, reference: _Reference) -> Item:
        if isinstance(reference, int):
            return self._vector(table, slot, reference)
        if isinstance(reference, str):
            return References([self.table(one, reference) for one in table.tables(slot)])
        selector, names = reference
        chosen = table.number(selector, "uint8") if selector >= 0 else 0
        found = table.table(slot)
        if found is None or chosen not in names:
            raise ModelError(f"a table is of a kind of a later schema ({chosen})")
        return self.table(found, names[chosen])

    def _vector(self, table: Table, slot: int, width: int) -> Item:
        vector = table.vector(slot, width or 1)
        if vector is None:
            raise ModelError("a vector is missing; the file is damaged")
        key = (f"vector of {width}", vector.start)
        if key not in self._made:
            size = vector.count * (width or 1)
            self._file.spend(size)
            data = self._file.data[vector.start : vector.start + size]
            self._made[key] = Blob(data, width) if width else Text(data)
        return self._made[key]
