"""The schema's names and slots: read off the package tflite, next to another package's code, and what is newer."""

from __future__ import annotations

import inspect
import re
import sys
import types
from collections.abc import Iterator, Mapping
from typing import Any

import ai_edge_litert.schema_py_generated as other
import pytest
import tflite

from memsched.formats.tflite import options as tflite_options
from memsched.formats.tflite import package as tflite_package
from memsched.formats.tflite.package import NEWER_FIELDS, NEWER_MEMBERS, UNIONS, Field, members, table
from memsched.formats.tflite.schema import element_types, operator_types, unsized_types
from memsched.runtimes.tflm.resolver import BUILTIN
from tests.failures import fails

ENUMERATIONS = [
    "ActivationFunctionType",
    "BuiltinOperator",
    "BuiltinOptions",
    "BuiltinOptions2",
    "Padding",
    "QuantizationDetails",
    "SparseIndexVector",
    "TensorType",
]
TABLES = sorted(name for name, one in vars(other).items() if hasattr(one, "GetRootAs"))


def stated(name: str) -> dict[str, tuple[int, str]]:
    """Return the fields of a table in the other package: slot, and how the source of its accessor reads it."""
    found = {}
    for method, one in vars(getattr(other, name)).items():
        source = inspect.getsource(one) if inspect.isfunction(one) else ""
        offset = re.search(r"_tab\.Offset\((\d+)\)", source)
        if offset is not None and not re.fullmatch(r"\w+(AsNumpy|Length|IsNone)", method):
            found[method] = ((int(offset[1]) - 4) // 2, source)
    return found


def how(field: Field) -> str:
    """Return what the source of an accessor of such a field holds."""
    match field.holds:
        case "number":
            kind = "Bool" if field.truth else (field.kind or "").capitalize()
            return rf"_tab\.Get\(flatbuffers\.number_types\.{kind}Flags, o \+ self\._tab\.Pos\)"
        case "text":
            return r"_tab\.String\("
        case "union":
            return r"_tab\.Union\("
        case "table":
            return rf"_tab\.Indirect\([^)]*\)\s.*obj = {field.table}\(\)"
        case "tables":
            return rf"_tab\.Vector\(.*obj = {field.table}\(\)"
        case _:
            return rf"_tab\.Vector\(.*UOffsetTFlags\.py_type\(j \* {field.width}\)"


@pytest.mark.parametrize("name", TABLES)
def test_fields_are_those_of_another_package(name: str) -> None:
    if name not in NEWER_FIELDS and not hasattr(tflite, name):
        pytest.skip("a table that came later than both the package and the supplement")
    schema, theirs = table(name), stated(name)
    # An old release of the other package lacks some of the supplement's fields.
    assert schema.names.keys() - NEWER_FIELDS.get(name, {}).keys() <= theirs.keys()
    for field_name, slot in schema.names.items():
        if field_name not in theirs:
            continue
        there, source = theirs[field_name]
        assert there == slot, field_name
        assert re.search(how(schema.fields[slot]), source, re.DOTALL), (field_name, schema.fields[slot], source)
        default = re.findall(r"return (\S+)\s*$", source)[-1]
        if schema.fields[slot].holds == "number":
            assert float({"True": 1, "False": 0}.get(default, default)) == schema.fields[slot].default


@pytest.mark.parametrize("name", ENUMERATIONS)
def test_members_are_those_of_another_package(name: str) -> None:
    theirs = {number: one for one, number in vars(getattr(other, name)).items() if isinstance(number, int)}
    assert members(name).items() <= theirs.items()


def newer() -> Iterator[tuple[str, str, object]]:
    """Yield each entry of the supplement: where, what, and its number or field."""
    for enumeration, entries in NEWER_MEMBERS.items():
        yield from ((enumeration, name, number) for number, name in entries.items())
    for owner, fields in NEWER_FIELDS.items():
        yield from ((owner, name, field) for name, field in fields.items())


def in_the_package(where: str, name: str) -> object:
    if where in NEWER_MEMBERS:
        return getattr(getattr(tflite, where), name, None)
    return tflite_package._generated(where)[1].get(name)


@pytest.mark.parametrize(("where", "name", "said"), newer())
def test_the_supplement_holds_what_the_package_lacks(where: str, name: str, said: object) -> None:
    found, package = in_the_package(where, name), f"tflite {tflite.__version__}"
    assert found is None or found == said, f"{package} has {found} for {where}.{name}, not {said}: mend it"
    assert found is None, f"{package} has {where}.{name}: make it the lower bound in pyproject.toml and drop the entry"


def test_an_entry_that_became_superfluous_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    first = next(newer())
    monkeypatch.setattr(tflite.BuiltinOperator, "STABLEHLO_CASE", 209, raising=False)
    with pytest.raises(AssertionError, match=r"BuiltinOperator\.STABLEHLO_CASE"):
        test_the_supplement_holds_what_the_package_lacks(*first)
    monkeypatch.setattr(tflite.BuiltinOperator, "STABLEHLO_CASE", 210, raising=False)
    with pytest.raises(AssertionError, match=r"210 .*STABLEHLO_CASE.* 209"):
        test_the_supplement_holds_what_the_package_lacks(*first)


def test_unions_are_those_that_the_package_has() -> None:
    found = {
        (name, field_name)
        for name in TABLES
        if name in NEWER_FIELDS or hasattr(tflite, name)
        for field_name, slot in table(name).names.items()
        if table(name).fields[slot].holds == "union"
    }
    assert found == UNIONS.keys()
    for (owner, field_name), enumeration in UNIONS.items():
        schema = table(owner)
        selector = schema.fields[schema.selector(schema.fields[schema.names[field_name]])]
        assert selector.kind == "uint8"
        for number, name in members(enumeration).items():
            assert number == 0 or table(name).name == name


def test_the_package_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    before = table("Tensor")
    monkeypatch.setattr(tflite_package, "_generated", None)
    assert table("Tensor") is before


@pytest.mark.parametrize(
    ("code", "about"),
    [
        ("def XAddY(builder, y): builder.PrependStructSlot(0, y, 0)", "Struct"),
        ("def XAddY(builder, y): builder.AddSlot(0, y)", "AddSlot"),
        ("def XAddY(builder, y): builder.PrependUOffsetTRelativeSlot(0, y, 0)", "X.Y"),
    ],
)
def test_a_package_of_another_kind_is_said_to_be_so(code: str, about: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = types.ModuleType("tflite.X")
    exec(f"class X:\n    def Y(self): return 0\ndef XStart(builder): builder.StartObject(1)\n{code}", vars(module))  # noqa: S102
    monkeypatch.setitem(sys.modules, "tflite.X", module)
    with fails("package-unknown", about):
        tflite_package._generated("X")


def test_every_option_that_is_read_exists() -> None:
    for name, (options, attributes) in tflite_options._OPTIONS.items():
        assert name in operator_types().values()
        for fields in attributes.values():
            for one in (fields,) if isinstance(fields, str) else fields:
                found = tflite_package.field(options, one)
                assert isinstance(fields, str) or found.kind == "int32"
                assert found.holds in {"number", "text", "numbers"}
    for name in tflite_options._SUBGRAPHS:
        assert name in operator_types().values()
        slot, named = tflite_options.subgraph_fields(name)
        assert slot in {4, 12}
        assert all(one.kind in {"int32", "uint32"} or one.width == 4 for one in named)


def test_operators_named_elsewhere_exist() -> None:
    known = set(operator_types().values())
    assert tflite_options.CONSTANT_INPUTS.keys() <= known
    assert BUILTIN.keys() <= known


def test_element_types_have_the_bits_of_their_names() -> None:
    bits: Mapping[str, int] = dict(element_types().values())
    assert bits["float32"] == 32
    assert bits["bool"] == bits["int8"] == bits["float8_e4m3fn"] == 8
    assert bits["int2"] == 2
    assert bits["bfloat16"] == 16
    assert bits["complex128"] == 128
    assert set(unsized_types().values()) == {"string", "resource", "variant"}
    assert not element_types().keys() & unsized_types().keys()
