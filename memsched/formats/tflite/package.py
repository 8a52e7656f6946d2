"""What the package ``tflite`` says of the schema: the members of enumerations, and the fields of tables.

The package is generated from schema.fbs and holds no description of it, only code that writes and reads tables. So
that code is asked: what adds a field is called with a builder that notes slot, kind and default, and what reads a
reference is called with a table that notes what is looked for there. Nothing is loaded before something is asked.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType, SimpleNamespace
from typing import Any, Final, Literal

from memsched.base.errors import InternalError
from memsched.base.frozen import FrozenValue
from memsched.formats.tflite.assembly import Kind

__all__ = ["NEWER_FIELDS", "NEWER_MEMBERS", "UNIONS", "Field", "TableSchema", "field", "members", "number_of"]
__all__ += ["table"]

_NUMBERS: Final[Mapping[str, Kind]] = {
    "Bool": "uint8",
    "Float32": "float32",
    "Int32": "int32",
    "Int64": "int64",
    "Int8": "int8",
    "Uint32": "uint32",
    "Uint64": "uint64",
    "Uint8": "uint8",
}
_REFERENCE: Final = "UOffsetTRelative"


class Field(FrozenValue, frozen=True):
    """A field of a table.

    Attributes:
        slot: Its place in the table's vtable, counted from 0.
        holds: A number or what it refers to: a string, a vector of numbers, a table, a vector of tables, or a table
            of the kind that the field of the same name and "Type" says.
        kind: Of the number.
        truth: The number is a truth value.
        default: The number where the table lacks the field.
        width: Bytes of each of the vector's numbers.
        table: Name of the table, of each of the tables, or of the enumeration of the tables that it may be.
    """

    slot: int
    holds: Literal["number", "text", "numbers", "table", "tables", "union"]
    kind: Kind | None = None
    truth: bool = False
    default: float = 0
    width: int = 0
    table: str = ""


class TableSchema(FrozenValue, frozen=True):
    """A table: how many slots it has, those of fields that are no longer used included, and its fields by slot."""

    name: str
    slots: int
    fields: Mapping[int, Field]
    names: Mapping[str, int]

    def selector(self, union: Field) -> int:
        """Return the slot that says which table ``union`` is."""
        name = next(name for name, slot in self.names.items() if slot == union.slot)
        return self.names[f"{name}Type"]


UNIONS: Final[Mapping[tuple[str, str], str]] = {
    ("DimensionMetadata", "ArrayIndices"): "SparseIndexVector",
    ("DimensionMetadata", "ArraySegments"): "SparseIndexVector",
    ("Operator", "BuiltinOptions"): "BuiltinOptions",
    ("Operator", "BuiltinOptions2"): "BuiltinOptions2",
    ("QuantizationParameters", "Details"): "QuantizationDetails",
}
"""Table and field to the enumeration of the tables that it may refer to: the one thing that the package does not
tell."""

NEWER_MEMBERS: Final[Mapping[str, Mapping[int, str]]] = {
    "BuiltinOperator": {209: "STABLEHLO_CASE"},
    "BuiltinOptions2": {23: "StablehloCaseOptions"},
    "QuantizationDetails": {2: "BlockwiseQuantization", 3: "MultiAxisQuantization"},
    "TensorType": {19: "INT2", 20: "UINT4", 21: "FLOAT8_E4M3FN", 22: "FLOAT8_E5M2"},
}
"""Members of enumerations that came after the package's lowest version, 2.18."""

NEWER_FIELDS: Final[Mapping[str, Mapping[str, Field]]] = {
    "BlockwiseQuantization": {
        "Scales": Field(0, "number", "int32"),
        "ZeroPoints": Field(1, "number", "int32"),
        "BlockSize": Field(2, "number", "int32"),
        "BlockShape": Field(3, "numbers", width=4),
    },
    "ExternalBuffer": {
        "Id": Field(0, "number", "uint32"),
        "Group": Field(1, "number", "uint32"),
        "Offset": Field(2, "number", "uint64"),
        "Length": Field(3, "number", "uint64"),
        "Packing": Field(4, "text"),
    },
    "ExternalBufferGroup": {"Name": Field(0, "text")},
    "FullyConnectedOptions": {"QuantSpec": Field(5, "numbers", width=1)},
    "Model": {
        "ExternalBufferGroups": Field(8, "tables", table="ExternalBufferGroup"),
        "ExternalBuffers": Field(9, "tables", table="ExternalBuffer"),
    },
    "MultiAxisQuantization": {
        "Scales": Field(0, "number", "int32"),
        "ZeroPoints": Field(1, "number", "int32"),
        "BlockSize": Field(2, "number", "int32"),
        "QuantizedDimensions": Field(3, "numbers", width=4),
    },
    "StablehloCaseOptions": {"BranchSubgraphIndices": Field(0, "numbers", width=4)},
    "Tensor": {"ExternalBuffer": Field(10, "number", "uint32")},
}
"""Fields that came after it, and tables that it does not have."""


@cache
def members(enumeration: str) -> Mapping[int, str]:
    """Return the names of an enumeration's members by number, such as {0: "SAME", 1: "VALID"} for "Padding"."""
    stated = vars(getattr(importlib.import_module("tflite"), enumeration))
    found = {number: name for name, number in stated.items() if isinstance(number, int) and not name.startswith("_")}
    return MappingProxyType({**NEWER_MEMBERS.get(enumeration, {}), **found})


def number_of(enumeration: str, member: str) -> int:
    """Return the number of an enumeration's member."""
    return next(number for number, name in members(enumeration).items() if name == member)


@cache
def table(name: str) -> TableSchema:
    """Return the fields of a table, such as "Tensor"; names are spelt as in the package: "ShapeSignature".

    Raises:
        InternalError: The package has code of a kind that it had not in any version that is known.
    """
    newer = NEWER_FIELDS.get(name, {})
    slots, found = _generated(name)
    known = {**newer, **found}
    return TableSchema(
        name=name,
        slots=max([slots, *(1 + one.slot for one in newer.values())]),
        fields=MappingProxyType({one.slot: one for one in known.values()}),
        names=MappingProxyType({one: known[one].slot for one in known}),
    )


@cache
def field(table_name: str, name: str) -> Field:
    """Return a field by its name in the schema, such as "shape_signature"."""
    schema = table(table_name)
    return schema.fields[schema.names["".join(part[:1].upper() + part[1:] for part in name.split("_"))]]


def _generated(name: str) -> tuple[int, dict[str, Field]]:
    """Return how many slots the package's code for a table knows, and its fields."""
    # The package puts the class in the place of the module of the same name, so that the module has to be asked for.
    try:
        module = importlib.import_module(f"tflite.{name}")
    except ModuleNotFoundError:
        if name in NEWER_FIELDS:
            return 0, {}
        raise
    starts: list[int] = []
    getattr(module, f"{name}Start")(SimpleNamespace(StartObject=starts.append))
    adds = re.compile(rf"{name}Add(\w+)")
    found = {}
    for function, one in vars(module).items():
        match = adds.fullmatch(function)
        if match is not None:
            found[match[1]] = _field(getattr(module, name), match[1], one)
    return starts[0], found


class _SlotRecorder:
    """A flatbuffers builder that notes the slot, the kind and the default of the field that is added."""

    def __init__(self) -> None:
        self.noted: list[tuple[str, int, float]] = []

    def __getattr__(self, name: str) -> Callable[[int, object, float], None]:
        match = re.fullmatch(r"Prepend(\w+)Slot", name)
        if match is None:
            raise InternalError(
                f"the package tflite adds fields by {name}, which is not known here", code="package-unknown"
            )
        kind = match[1]
        return lambda slot, _, default: self.noted.append((kind, slot, default))


def _field(owner: type, name: str, add: Callable[[Any, int], None]) -> Field:
    builder = _SlotRecorder()
    add(builder, 0)
    ((kind, slot, default),) = builder.noted
    if kind in _NUMBERS:
        return Field(slot, "number", _NUMBERS[kind], truth=kind == "Bool", default=default)
    if kind == _REFERENCE:
        return _reference(owner, name, slot)
    raise InternalError(
        f"the package tflite has fields of the kind {kind}, which is not known here", code="package-unknown"
    )


def _reference(owner: type, name: str, slot: int) -> Field:
    """Return what a field refers to, by reading it from a table that notes what is looked for."""
    looked: dict[str, int] = {}
    reader: Any = owner()
    reader._tab = SimpleNamespace(
        Bytes=b"",
        Pos=0,
        Offset=lambda _: 4,
        Vector=lambda _: 0,
        Indirect=lambda _: 0,
        Get=lambda flags, _: looked.update(numbers=flags.bytewidth),
        String=lambda _: looked.update(text=0),
        Union=lambda *_: looked.update(union=0),
    )
    vector = hasattr(owner, f"{name}Length")
    found = getattr(reader, name)(*([0] if vector else []))
    if "numbers" in looked and vector:
        return Field(slot, "numbers", width=looked["numbers"])
    if "text" in looked and not vector:
        return Field(slot, "text")
    if "union" in looked:
        return Field(slot, "union", table=UNIONS[owner.__name__, name])
    if type(found).__module__.startswith("tflite."):
        return Field(slot, "tables" if vector else "table", table=type(found).__name__)
    raise InternalError(
        f"the package tflite reads {owner.__name__}.{name} in a way that is not known here", code="package-unknown"
    )
