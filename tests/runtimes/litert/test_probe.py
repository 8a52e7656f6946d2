from __future__ import annotations

import importlib.util
import os
import re
import signal
import struct
from typing import Any

import pytest

from memsched.formats.module import LoadOptions
from memsched.formats.tflite import reader, writer
from memsched.runtimes.child import ChildResult
from memsched.runtimes.litert import session, verification
from memsched.runtimes.litert.answers import CompareRequest
from memsched.runtimes.litert.probe import probe
from memsched.runtimes.values import Verification
from tests.failures import fails
from tests.formats.tflite_builder import (
    MODELS,
    O,
    Sub,
    T,
    best_order,
    branches,
    build,
    options,
    some_order,
)


def reordered(data: bytes, order: list[int] | None = None, **choices: bool) -> bytes:
    module = reader.read(data, "model.tflite", LoadOptions())
    order = some_order(module.graph, 1) if order is None else order
    return writer.serialize(module, {0: order}, **choices)


def look(data: bytes, mode: str) -> tuple[tuple[int, ...] | None, int]:
    interpreter, operators = session._load(data, mode)
    return probe(interpreter, operators).order, operators


@pytest.fixture(scope="module")
def nasnet() -> bytes:
    return (MODELS / "nasnetmobile_int8.tflite").read_bytes()


def test_a_reordered_real_model_gives_the_same_outputs(nasnet: bytes) -> None:
    found = verification.verify(nasnet, reordered(nasnet), runs=1)
    assert found.runtime.startswith("litert 2.")
    assert (found.runs, found.outputs_equal, found.max_abs_error, found.reason) == (1, True, 0.0, None)
    assert found.executed_order_matches is True
    # LiteRT keeps the graph's input (150,528 bytes) to the end, and rounds places up to 64 bytes.
    before = found.measured_peak_before_bytes
    assert before is not None
    assert 1_019_904 + 150_528 <= before <= 1_019_904 + 150_528 + 1024
    assert found.measured_peak_after_bytes != before
    assert any("another order" in note for note in found.notes)


def test_a_better_order_is_measured_as_one() -> None:
    data = build(branches(4, 4096))
    found = verification.verify(data, reordered(data, best_order()))
    before, after = found.measured_peak_before_bytes, found.measured_peak_after_bytes
    assert before is not None
    assert after is not None
    # Four wide tensors beside the input live at once in the file's order, one in the best.
    assert before - after > 2.9 * 4 * 4096
    assert (found.outputs_equal, found.executed_order_matches) == (True, True)


def test_without_delegates_litert_executes_the_files_order(nasnet: bytes) -> None:
    """The rule that all of this rests on: fails when a release of LiteRT changes it."""
    for data in (nasnet, reordered(nasnet)):
        order, operators = look(data, "plain")
        assert order == tuple(range(operators))


def test_with_delegates_the_order_holds_only_with_control_dependencies(nasnet: bytes) -> None:
    order, operators = look(reordered(nasnet), "default")
    assert order is not None
    assert order != tuple(range(operators))
    order, operators = look(reordered(nasnet, control_dependencies=True), "default")
    assert order == tuple(range(operators))


def test_a_file_out_of_order_is_run_by_litert_but_refused_by_us() -> None:
    sub = Sub([T("x"), T("y"), T("z")], [O("EXP", [1], [2]), O("NEG", [0], [1])], [0], [2])
    right = Sub(sub.tensors, list(reversed(sub.ops)), [0], [2])
    found = verification.verify(build(right), build(sub))
    assert found.outputs_equal is False
    assert found.reason is not None
    with fails("read-too-early", "'y'"):
        reader.read(build(sub), "model.tflite", LoadOptions())


def test_other_outputs_are_found() -> None:
    first = Sub([T("x"), T("y")], [O("EXP", [0], [1])], [0], [1])
    second = Sub([T("x"), T("y")], [O("NEG", [0], [1])], [0], [1])
    found = verification.verify(build(first), build(second))
    assert found.outputs_equal is False
    assert found.max_abs_error is not None
    assert found.max_abs_error > 0.1
    assert found.reason is not None
    assert found.reason.endswith(verification.PLAIN)


def test_a_model_that_litert_refuses_as_given() -> None:
    data = (MODELS / "person_detect.tflite").read_bytes()
    found = verification.verify(data, reordered(data, control_dependencies=True))
    assert (found.runs, found.outputs_equal, found.executed_order_matches) == (0, None, None)
    assert found.reason is not None
    assert "quantized_dimension" in found.reason
    assert "\n" not in found.reason
    assert len(found.reason) < 300


def test_custom_operators_are_refused_by_name() -> None:
    data = build(Sub([T("x"), T("y"), T("z")], [O("CUSTOM:fft", [0], [1]), O("EXP", [0], [2])], [0], [1, 2]))
    found = verification.verify(data, reordered(data, [1, 0]))
    assert found.outputs_equal is None
    assert found.reason is not None
    assert "fft" in found.reason


def test_a_model_that_only_the_writing_spoiled() -> None:
    data = build(branches())
    found = verification.verify(data, data[: len(data) // 2])
    assert found.outputs_equal is False
    assert found.reason


def _state_model(kept: int = 3) -> bytes:
    """The sum of everything given so far, in a resource variable that begins as 0; ``kept`` is what it becomes."""
    handle = options("VarHandleOptions", sharedName=b"sum")
    assign = options("AssignVariableOptions")
    tensors = [T("x", (1, 4)), T("h", (), "RESOURCE"), T("old", (1, 4)), T("new", (1, 4)), T("free", (1, 4))]
    ops = [
        O("CALL_ONCE", [], [], options("CallOnceOptions", initSubgraphIndex=1)),
        O("VAR_HANDLE", [], [1], handle),
        O("READ_VARIABLE", [1], [2], options("ReadVariableOptions")),
        O("ADD", [2, 0], [3], options("AddOptions")),
        O("EXP", [0], [4]),
        O("ASSIGN_VARIABLE", [1, kept], [], assign),
    ]
    begin = Sub(
        [T("h", (), "RESOURCE"), T("zero", (1, 4), data=bytes(16))],
        [O("VAR_HANDLE", [], [0], handle), O("ASSIGN_VARIABLE", [0, 1], [], assign)],
        [],
        [],
    )
    return build(Sub(tensors, ops, [0], [3, 4]), begin)


def test_state_is_carried_from_run_to_run() -> None:
    data = _state_model()
    module = reader.read(data, "model.tflite", LoadOptions())
    assert module.graph.dependencies == ((0, 2), (2, 5))
    found = verification.verify(data, reordered(data, [4, 0, 1, 2, 3, 5]))
    assert (found.runs, found.outputs_equal, found.executed_order_matches) == (3, True, True)
    # The arena of one subgraph is not all there is.
    assert found.measured_peak_after_bytes is None
    assert found.reason is not None
    assert "several subgraphs" in found.reason


def test_a_difference_in_state_shows_in_the_next_run() -> None:
    assert verification.verify(_state_model(), _state_model(kept=4)).outputs_equal is False


def test_models_that_draw_are_compared_with_the_same_seeds() -> None:
    from tests.formats.tflite_builder import int32s

    shape = T("shape", (2,), "INT32", int32s(1, 64))
    random_op = O("RANDOM_UNIFORM", [1], [2], options("RandomOptions"))
    sub = Sub([T("x", (1, 64)), shape, T("r", (1, 64)), T("y", (1, 64))], [random_op, O("ADD", [0, 2], [3])], [0], [3])
    found = verification.verify(build(sub), build(sub))
    assert (found.outputs_equal, found.max_abs_error) == (True, 0.0)
    assert any("once" in note and "seeds" in note for note in found.notes)
    again = O("RANDOM_UNIFORM", [1], [4], options("RandomOptions"))
    doubled = Sub([*sub.tensors, T("r2", (1, 64))], [again, *sub.ops], [0], [3])
    found = verification.verify(build(sub), build(doubled))
    assert found.outputs_equal is False
    assert re.findall(r"\d|RANDOM\w+", found.reason or "") == ["2", "RANDOM_UNIFORM", "1"]


def test_integer_inputs_stay_in_the_range_of_small_axes() -> None:
    table = T("table", (1, 4), data=bytes(16))
    op = O("GATHER", [1, 0], [2], options("GatherOptions", axis=0))
    data = build(Sub([T("index", (3,), "INT32"), table, T("y", (3, 4))], [op], [0], [2]))
    assert verification.verify(data, data).outputs_equal is True


def test_litert_says_nothing_on_the_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    data = (MODELS / "hello_world_int8.tflite").read_bytes()
    verification.verify(data, data)
    assert capfd.readouterr() == ("", "")


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "ai_edge_litert" else find(name, *rest)
    )
    with fails("runtime-missing", "pip install ai-edge-litert"):
        verification.verify(b"", b"")


def test_a_model_that_takes_too_long_is_given_up() -> None:
    data = build(branches())
    found = verification.verify(data, data, timeout_seconds=0.01)
    assert found.outputs_equal is None
    assert found.reason is not None
    assert " 0.01 s" in found.reason


@pytest.mark.parametrize(
    ("crashes", "equal", "words"),
    [
        ("always", None, "LiteRT crashes on the model as given"),
        ("after", False, "LiteRT crashes on the optimised model only"),
        ("probe", True, ""),
    ],
)
def test_crashes_are_blamed_on_who_causes_them(
    monkeypatch: pytest.MonkeyPatch, crashes: str, equal: bool | None, words: str
) -> None:
    given = build(branches())

    def child(_: str, request: dict[str, Any], __: float | None) -> ChildResult:
        blamed = {"always": True, "after": request["after"] != given, "probe": request["probe"]}[crashes]
        if blamed:
            return ChildResult("crash", reason=f"the process was killed by {signal.SIGSEGV.name}")
        return ChildResult("ok", value=session.run(request))

    monkeypatch.setattr(verification, "run_in_child", child)
    found: Verification = verification.verify(given, reordered(given, best_order()))
    assert found.outputs_equal is equal
    assert words in (found.reason or "")
    if crashes == "probe":
        assert found.executed_order_matches is None
        assert found.reason is not None


def test_a_real_crash_does_not_reach_us(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "_SESSION", "tests.runtimes.litert.test_probe:die")
    found = verification.verify(b"", b"")
    assert found.outputs_equal is None
    assert found.reason is not None
    assert "SIGKILL" in found.reason


def die(_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def shifted(distance: float, factor: float = 1.0) -> bytes:
    """Return a model that gives ``factor`` times what its input exceeds ``distance`` by."""
    constants = [T(name, (), data=struct.pack("<f", value)) for name, value in (("d", distance), ("f", factor))]
    ops = [
        O("SUB", [0, 1], [3], options("SubOptions")),
        O("RELU", [3], [4]),
        O("MUL", [4, 2], [5], options("MulOptions")),
    ]
    return build(Sub([T("x"), *constants, T("a"), T("b"), T("y")], ops, (0,), (5,)))


@pytest.mark.parametrize(("distance", "draw"), [(0.0, "noise"), (10.0, "large")])
def test_inputs_are_drawn_with_which_outputs_vary(distance: float, draw: str) -> None:
    data = shifted(distance)
    request = CompareRequest(before=data, after=data, runs=3, seed=0, probe=False)
    expected, drawn = session._run_as_given(request, "plain")
    assert (drawn.draw, drawn.vary) == (draw, True)
    assert any(output.any() for output in expected)
    assert verification.verify(data, data).outputs_vary is True


def test_outputs_that_never_vary_are_told_of() -> None:
    data = shifted(0.0, factor=0.0)
    found = verification.verify(data, data)
    assert (found.outputs_equal, found.outputs_vary) == (True, False)
    assert verification.verify(data, data, runs=1).outputs_vary is None


@pytest.mark.parametrize("name", ["hello_world_int8", "micro_speech_quantized", "mobilenetv2_035_96_int8"])
def test_the_outputs_of_the_models_vary(name: str) -> None:
    data = (MODELS / f"{name}.tflite").read_bytes()
    assert verification.verify(data, data).outputs_vary is True
