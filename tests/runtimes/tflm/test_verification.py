"""Models verified in the real TensorFlow Lite Micro: outputs, second runs, refusals in its own words, arenas."""

from __future__ import annotations

import importlib.util
import struct

import pytest

import memsched
from memsched.formats.tflite.metadata import OFFLINE_PLAN
from memsched.report.refusals import refusal_lines
from memsched.runtimes.tflm import session, verification
from tests.failures import fails
from tests.formats.tflite_builder import MODELS, O, Sub, T, build, int32s, options
from tests.runtimes.tflm.interpreter import needs_tflm
from tests.runtimes.tflm.test_limits import join, softmax

pytestmark = needs_tflm


def sums(*values: float) -> bytes:
    """Return a model that adds ``values`` to its input."""
    tensors = [T("x"), T("c", data=struct.pack("<4f", *values)), T("y")]
    return build(Sub(tensors, [O("ADD", [0, 1], [2], options("AddOptions"))], [0], [2]))


def state(offset: int | None) -> bytes:
    """Return an SVDF and two layers behind it; a plan lays its state at ``offset``, where those lie as well."""
    tensors = [T("x", (1, 4)), T("f", (8, 4), data=struct.pack("<32f", *range(32)))]
    tensors += [T("t", (8, 2), data=struct.pack("<16f", *range(16))), T("b", (4,), data=bytes(16))]
    tensors += [T("state", (1, 16), variable=True), T("y", (1, 4)), T("z", (1, 4)), T("w", (1, 4))]
    ops = [O("SVDF", [0, 1, 2, 3, 4], [5], options("SVDFOptions", rank=2)), O("ABS", [5], [6]), O("NEG", [6], [7])]
    offsets = [-1] * len(tensors) if offset is None else [-1, -1, -1, -1, offset, 256, 0, 256]
    plan = struct.pack(f"<3I{len(offsets)}i", 1, 1, len(offsets), *offsets)
    return build(Sub(tensors, ops, [0], [7]), metadata=[(OFFLINE_PLAN, plan)])


@pytest.mark.parametrize("name", ["person_detect", "hello_world_int8", "micro_speech_quantized"])
def test_what_is_written_runs_there_and_its_arena_is_the_one_predicted(name: str) -> None:
    data = (MODELS / f"{name}.tflite").read_bytes()
    result = memsched.optimize(data, target="tflm", tflm_plan=True, effort=1)
    found = result.report["sections"]["verification"]
    assert found["runtime"].startswith("tflite-micro ")
    assert (found["outputs_equal"], found["outputs_vary"], found["runs"]) == (True, True, 3)
    for arena in (found["arena_before"], found["arena_after"]):
        assert arena["as_predicted"] is True
        assert arena["measured_head_bytes"] == arena["predicted_head_bytes"]
        assert arena["measured_tail_bytes"] == arena["predicted_tail_bytes"]
    assert found["arena_after"]["measured_head_bytes"] == result.report["sections"]["tflm"]["head_bytes"]
    assert found["measured_peak_after_bytes"] == found["arena_after"]["measured_least_bytes"]


@pytest.mark.parametrize("subgraphs", [0, 4])
def test_the_arena_told_is_the_smallest_that_runs(subgraphs: int) -> None:
    """Planning takes more for a moment than head and tail of small models; it holds an offset for each subgraph."""
    branches = [Sub([T("x"), T("y")], [O("NEG", [0], [1])], [0], [1]) for _ in range(subgraphs)]
    ops = [
        O("IF", [0, n + 1], [n + 2], options("IfOptions", thenSubgraphIndex=n + 1, elseSubgraphIndex=n + 1))
        for n in range(subgraphs)
    ]
    tensors = [T("c", (1,), "BOOL"), *(T(f"t{n}") for n in range(subgraphs + 2))]
    ops.append(O("NEG", [subgraphs + 1], [len(tensors)]))
    tensors.append(T("y"))
    data = build(Sub(tensors, ops, [0, 1], [len(tensors) - 1]), *branches)
    found = verification.verify(data, data)
    assert found.outputs_equal is True
    peaks = (found.measured_peak_before_bytes, found.measured_peak_after_bytes)
    for arena, peak in zip(found.arenas, peaks, strict=True):
        assert peak == arena.measured_least == arena.predicted_least
        assert arena.measured_total is not None
        assert arena.measured_least is not None
        assert arena.measured_least > arena.measured_total
        once = session.InputDraws(1, 0)
        assert session.attempt(data, arena.measured_least, once).outputs is not None
        assert session.attempt(data, arena.measured_least - 16, once).outputs is None


def test_an_arena_that_planning_does_not_fill_is_head_and_tail() -> None:
    data = (MODELS / "person_detect.tflite").read_bytes()
    for arena in verification.verify(data, data).arenas:
        assert arena.measured_least == arena.predicted_least == arena.measured_total == 85_264


def test_other_outputs_are_told() -> None:
    found = verification.verify(sums(1, 2, 3, 4), sums(1, 2, 3, 5))
    assert (found.outputs_equal, found.max_abs_error) == (False, 1.0)
    assert found.within(0.5) is False
    assert found.within(1.5) is True


def test_a_state_that_is_overwritten_shows_in_the_second_run_alone() -> None:
    """TFLM lets another tensor lie over a state that a plan names: its first run is right, its second is not."""
    found = verification.verify(state(None), state(0))
    assert found.outputs_equal is False
    assert verification.verify(state(None), state(None)).outputs_equal is True


@pytest.mark.parametrize("place", [16, 20, 24, 28])
def test_arenas_are_those_predicted_wherever_the_planned_part_ends(place: int) -> None:
    """A plan may end off a multiple of 16: the arena of the trial, by which the tail is aligned, must not."""
    plan = struct.pack("<3I3i", 1, 1, 3, 0, -1, place)
    tensors = [T("x"), T("c", data=bytes(16)), T("y")]
    data = build(Sub(tensors, [O("NEG", [0], [2])], [0], [2]), metadata=[(OFFLINE_PLAN, plan)])
    found = verification.verify(data, data)
    assert found.outputs_equal is True
    assert [arena.as_predicted for arena in found.arenas] == [True, True]
    assert found.arenas[0].measured_head == place + 16


def test_refusals_are_told_in_its_own_words() -> None:
    found = verification.verify(join(11), join(11))
    assert found.outputs_equal is None
    assert found.reason is not None
    assert "kMaxInputNum" in found.reason
    found = verification.verify(join(10), join(11))
    assert found.outputs_equal is False
    assert found.reason is not None
    assert "kMaxInputNum" in found.reason
    assert found.arenas[0].as_predicted is True
    assert len(found.arenas) == 1


def test_a_check_that_aborts_without_a_word_is_told_with_ours() -> None:
    found = verification.verify(softmax("INT8", 7e-9), softmax("INT8", 7e-9))
    assert found.reason is not None
    assert "SIGABRT" in found.reason
    assert "7e-09" in found.reason


def test_integer_inputs_that_are_indices() -> None:
    table = T("table", (1, 4), data=bytes(16))
    op = O("GATHER", [1, 0], [2], options("GatherOptions", axis=0))
    data = build(Sub([T("index", (3,), "INT32"), table, T("y", (3, 4))], [op], [0], [2]))
    assert verification.verify(data, data).outputs_equal is True


def test_outputs_that_never_vary_are_told() -> None:
    tensors = [T("x"), T("axes", (2,), "INT32", int32s(4, 1)), T("y", (4, 1)), T("z", (2,), "INT32")]
    data = build(Sub(tensors, [O("SHAPE", [0], [3], options("ShapeOptions"))], [0], [3]))
    found = verification.verify(data, data)
    assert (found.outputs_equal, found.outputs_vary) == (True, False)


def test_a_model_that_takes_too_long_is_given_up() -> None:
    data = (MODELS / "hello_world_int8.tflite").read_bytes()
    found = verification.verify(data, data, timeout_seconds=0.01)
    assert found.outputs_equal is None
    assert found.reason is not None
    assert " 0.01 s" in found.reason


def test_tflm_says_nothing_on_the_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    data = (MODELS / "hello_world_int8.tflite").read_bytes()
    verification.verify(data, data)
    assert capfd.readouterr() == ("", "")


def missing(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "tflite_micro" else find(name))


def test_without_the_package_litert_takes_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    missing(monkeypatch)
    with fails("runtime-missing", "pip install tflite-micro"):
        verification.verify(b"", b"")
    data = (MODELS / "micro_speech_quantized.tflite").read_bytes()
    report = memsched.optimize(data, target="tflm", effort=1).report
    assert report["sections"]["verification"]["runtime"].startswith("litert ")
    assert report["sections"]["verification"]["arena_after"] is None
    assert any("tflite-micro" in note for note in report["verdict"]["notes"])


def test_litert_takes_its_place_where_it_refuses_the_model_as_given() -> None:
    report = memsched.optimize(join(11), target="tflm", effort=1).report
    assert report["sections"]["verification"]["runtime"].startswith("litert ")
    assert report["sections"]["verification"]["outputs_equal"] is True
    assert "kMaxInputNum" in report["sections"]["verification"]["notes"][0]


def test_what_it_refuses_is_said_in_its_words_before_anything_is_written() -> None:
    for report in (memsched.analyze(join(11), target="tflm").report, memsched.optimize(join(11), target="tflm").report):
        assert "kMaxInputNum" in report["sections"]["tflm"]["refusal"]
        (line, style) = refusal_lines(report.values)[0]
        assert style == "red"
        assert " 10 " in line
        assert " 11" in line
        assert "kMaxInputNum" in line
    data = (MODELS / "person_detect.tflite").read_bytes()
    assert memsched.analyze(data, target="tflm").report["sections"]["tflm"]["refusal"] is None


def test_what_no_table_has_is_told_in_its_words_alone() -> None:
    sub = Sub([T("x"), T("y")], [O("CUSTOM:SignalFilterBankLog", [0], [1])], [0], [1])
    report = memsched.analyze(build(sub), target="tflm").report
    assert report["sections"]["tflm"]["refused"] == []
    (line, _) = refusal_lines(report.values)[0]
    assert report["sections"]["tflm"]["refusal"]
    assert line.endswith(f": {report['sections']['tflm']['refusal']}")


def test_operators_that_a_firmware_brings_are_not_refused() -> None:
    data = build(Sub([T("x"), T("y")], [O("CUSTOM:unheard-of", [0], [1])], [0], [1]))
    for report in (memsched.analyze(data, target="tflm").report, memsched.optimize(data, target="tflm").report):
        assert report["sections"]["tflm"]["refusal"] is None
        assert refusal_lines(report.values) == []


def test_other_targets_are_run_elsewhere() -> None:
    data = (MODELS / "hello_world_int8.tflite").read_bytes()
    assert (
        memsched.optimize(data, target="litert", effort=1)
        .report["sections"]["verification"]["runtime"]
        .startswith("litert ")
    )
