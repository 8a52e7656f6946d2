from __future__ import annotations

import jsonschema

import memsched
from memsched.formats.tflite.metadata import OFFLINE_PLAN, with_metadata
from memsched.formats.tflite.model import parse
from memsched.formats.tflite.schema import operator_types
from memsched.report.header import arena_header
from memsched.report.schema import json_schema
from memsched.runtimes.tflm.firmware import firmware_needs
from memsched.runtimes.tflm.plan import encode_plan
from memsched.runtimes.tflm.resolver import BUILTIN, resolver
from tests.formats.tflite_builder import MODELS, O, Sub, T, build, options
from tests.runtimes.tflm.loop_models import LoopModel, looped
from tests.small_models import branches as onnx_branches


def test_every_operator_of_the_table_is_one_of_the_schema() -> None:
    assert BUILTIN.keys() <= set(operator_types().values())
    assert len(set(BUILTIN.values())) == len(BUILTIN) == 100


def test_calls_for_a_real_model() -> None:
    found = resolver(parse((MODELS / "person_detect.tflite").read_bytes()))
    assert found.calls == (
        "AddAveragePool2D()", "AddConv2D()", "AddDepthwiseConv2D()", "AddReshape()", "AddSoftmax()",
    )  # fmt: skip
    assert found.unsupported == found.custom == ()


def test_what_tflm_lacks_and_what_it_has_as_custom_operators() -> None:
    kinds = ["GELU", "EXP", "CUSTOM:SignalRfft", 'CUSTOM:my "op"', "BUILTIN_999"]
    ops = [O(999 if kind == "BUILTIN_999" else kind, [0], [1 + index]) for index, kind in enumerate(kinds)]
    tensors = [T("x"), *(T(f"y{index}") for index in range(len(kinds)))]
    found = resolver(parse(build(Sub(tensors, ops, [0], range(1, 6)))))
    assert found.calls == ("AddRfft()", 'AddCustom("my \\"op\\"", registration)', "AddExp()")
    assert found.unsupported == ("BUILTIN_999", "GELU")
    assert found.custom == ('my "op"',)


def test_the_section_of_a_report() -> None:
    report = memsched.optimize(MODELS / "person_detect.tflite", target="tflm", verify=False).report.data
    jsonschema.validate(dict(report), json_schema("report"))
    section = report["sections"]["firmware"]
    assert section["persistent_bytes_estimate"] == {"64": 29728, "32": 27004}
    assert section["scratch"] == []
    assert len(section["resolver_calls"]) == 5


def test_scratch_is_listed_with_its_operator() -> None:
    needs = firmware_needs(memsched.load(MODELS / "mobilenetv2_035_96_int8.tflite"))
    assert needs is not None
    (entry,) = needs.scratch
    assert (entry.type, entry.requests) == ("MEAN", (5120, 16, 8))


def test_the_header_tells_for_how_many_variables_there_must_be_room() -> None:
    handles = [
        O("VAR_HANDLE", [], [number], options("VarHandleOptions", sharedName=name))
        for number, name in ((2, b"a"), (3, b"b"), (4, b"a"))
    ]
    tensors = [T("x"), T("y"), *(T(f"h{number}", (), "RESOURCE") for number in range(3))]
    assigned = [O("ASSIGN_VARIABLE", [number, 0], []) for number in (2, 3, 4)]
    data = build(Sub(tensors, [*handles, *assigned, O("NEG", [0], [1])], [0], [1]))
    needs = firmware_needs(memsched.load(data))
    assert needs is not None
    assert needs.variables == 2
    assert "MicroResourceVariables" in needs.assumptions[-1]
    assert "2" in needs.assumptions[-1]
    report = memsched.optimize(data, target="tflm", verify=False).report
    assert "#define NET_RESOURCE_VARIABLES 2\n" in arena_header(report.values, "net.tflite")
    whole = memsched.optimize(MODELS / "hello_world_int8.tflite", target="tflm", verify=False).report
    assert "RESOURCE_VARIABLES" not in arena_header(whole.values, "net.tflite")


def test_kernels_without_figures_are_named_among_the_assumptions() -> None:
    needs = firmware_needs(memsched.load(build(Sub([T("x"), T("y")], [O("CUSTOM:fft", [0], [1])], [0], [1]))))
    assert needs is not None
    assert "CUSTOM:fft" in needs.assumptions[-1]


def test_a_loop_needs_a_release_that_has_its_operators() -> None:
    data = looped(LoopModel())
    needs = firmware_needs(memsched.load(data))
    assert needs is not None
    assert sum("10 November 2025" in one for one in needs.assumptions) == 1
    assert not any("20 July 2026" in one for one in needs.assumptions)
    model = parse(data)
    written = with_metadata(data, model, OFFLINE_PLAN, encode_plan(model, {}))[0]
    needs = firmware_needs(memsched.load(written))
    assert needs is not None
    assert any("20 July 2026" in one for one in needs.assumptions)


def test_onnx_models_have_no_such_section() -> None:
    assert firmware_needs(memsched.load(onnx_branches())) is None
