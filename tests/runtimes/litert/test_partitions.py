"""Predictions for LiteRT's default delegate: partitions, as the interpreter makes them, and the memory of a process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from ai_edge_litert.interpreter import Interpreter

import memsched
from memsched.formats.files import load_module
from memsched.formats.module import LoadOptions
from memsched.lowering.apply import apply_target
from memsched.runtimes.child import ChildResult
from memsched.runtimes.litert import verification
from memsched.runtimes.litert.answers import ModeAnswer, ModeAnswers
from memsched.runtimes.litert.default_interpreter import DefaultInterpreter
from memsched.runtimes.litert.partitions import parts_of
from memsched.targets.load import load_target
from tests.formats.tflite_builder import MODELS, O, Sub, T, build, options
from tests.formats.tflite_networks import NETWORKS, audio, classifier, dense, segmenter

SMALL = {
    "classifier": classifier(32, 8),
    "dense": dense(64, 8),
    "audio": audio(4_000, 4),
    "segmenter": segmenter(65, 4),
}


def partitions(data: bytes) -> int:
    """Return the number of partitions that LiteRT delegates."""
    interpreter = Interpreter(model_content=data, num_threads=1)
    interpreter.allocate_tensors()
    details: Any = interpreter._get_ops_details()
    return sum(op["op_name"] == "DELEGATE" for op in details)


def predicted(data: bytes) -> int:
    module = load_module(data, "model", LoadOptions())
    graph = apply_target(module.graphs[0], load_target("litert"))
    return sum(part.delegated for part in parts_of(graph, range(len(graph.ops))))


def mixed() -> bytes:
    """Return a model that alternates between ops that XNNPACK accepts and refuses."""
    tensors = [T("x", (1, 8)), *(T(f"y{number}", (1, 8)) for number in range(6))]
    kinds = ["RELU", "SIGN", "TANH", "SIGN", "LOGISTIC"]
    ops = [O(kind, [number], [number + 1]) for number, kind in enumerate(kinds)]
    ops.append(O("ADD", [1, 5], [6], options("AddOptions")))
    return build(Sub(tensors, ops, [0], [6]))


@pytest.mark.parametrize("name", sorted(SMALL))
def test_partitions_of_networks_equal_the_interpreter_s(name: str) -> None:
    assert predicted(SMALL[name]) == partitions(SMALL[name])


def test_partitions_between_refused_ops_equal_the_interpreter_s() -> None:
    data = mixed()
    assert predicted(data) == partitions(data) > 1


@pytest.mark.parametrize("name", ["micro_speech_quantized", "mobilenetv2_035_96_int8", "nasnetmobile_int8"])
def test_partitions_of_shipped_models_equal_the_interpreter_s(name: str) -> None:
    data = (MODELS / f"{name}.tflite").read_bytes()
    assert predicted(data) == partitions(data)


@pytest.mark.usefixtures("timed")
@pytest.mark.parametrize("name", ["audio", "classifier", "dense"])
def test_the_predicted_process_is_within_five_percent(name: str, tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(NETWORKS[name]())
    report = memsched.analyze(str(path), target="litert").report.values
    seen = DefaultInterpreter().measure(path, seed=0)
    assert not isinstance(seen, str)
    graph = memsched.load(str(path)).graphs[0]
    inputs = sum(graph.tensors[tensor].size for tensor in graph.inputs)
    assert seen.private_bytes - inputs == pytest.approx(report.verdict.bytes, rel=0.05, abs=300_000)
    parts = report.sections.requirement.parts
    assert isinstance(parts.tables_bytes, int)
    assert isinstance(parts.activations_bytes, int)
    assert parts.tables_bytes > parts.activations_bytes


def answers(plain: ModeAnswer, default: ModeAnswer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let LiteRT answer so."""
    value = msgspec.to_builtins(ModeAnswers(plain=plain, default=default))
    monkeypatch.setattr(verification, "_run", lambda *_: ChildResult("ok", value))
    monkeypatch.setattr(verification, "with_special_values", lambda found, *_: found)


def test_outputs_with_delegates_decide_where_people_open_files_so(monkeypatch: pytest.MonkeyPatch) -> None:
    data, other = SMALL["audio"], mixed()
    same = ModeAnswer(runs=3, equal=True, vary=True)
    apart = ModeAnswer(runs=3, equal=False, relative_error=1e-6, vary=True)
    far = ModeAnswer(runs=3, equal=False, relative_error=1e-3, vary=True)
    refused = ModeAnswer(before_error="no delegate")
    for plain, default, plain_tolerance, equal in (
        (apart, same, 1e-5, True),
        (apart, same, None, False),
        (far, same, 1e-5, False),
        (same, apart, 1e-5, False),
        (apart, refused, 1e-5, False),
    ):
        answers(plain, default, monkeypatch)
        found = verification.verify(data, other, plain_tolerance=plain_tolerance)
        assert found.outputs_equal is equal
        assert any("without delegates" in note for note in found.notes) is (equal and plain is apart)
