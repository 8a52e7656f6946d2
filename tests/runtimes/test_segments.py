from __future__ import annotations

import importlib.util
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from memsched.runtimes import segments as runner
from memsched.runtimes.child import ChildResult
from memsched.runtimes.litert.runner import LiteRtRunner
from memsched.runtimes.onnxruntime import row
from memsched.runtimes.onnxruntime.runner import OnnxRuntimeRunner
from memsched.runtimes.segments import run_in_a_row
from memsched.runtimes.special import SPECIALS, WORDS
from tests.failures import fails
from tests.formats.onnx.test_segments import branching, constant, node
from tests.formats.tflite.test_segments import stateful
from tests.formats.tflite_builder import MODELS, O, Sub, T, build, int32s, options
from tests.runtimes.test_special import IDENTITY, ONNX, tflite_net
from tests.segment_cuts import cut, load, random_stages, segments_of
from tests.small_models import floats, model_of


def cut_at(data: bytes, stages: list[int], **options: Any) -> tuple[Any, list[bytes]]:
    module = load(data, **options)
    return module, cut(module, segments_of(module, stages))


def normalised(last: str = "BatchNormalization") -> bytes:
    """A convolution and its normalisation, which graph optimisation makes one where nothing is cut between them."""
    rng = np.random.default_rng(0)
    held = [constant("w", rng.standard_normal((8, 3, 3, 3)))]
    held += [constant(name, rng.uniform(0.5, 1.5, 8)) for name in ("scale", "shift", "mean", "variance")]
    statistics = [tensor.name for tensor in held[1:]] if last == "BatchNormalization" else []
    nodes = [node("Conv", ["x", "w"], ["a"]), node(last, ["a", *statistics], ["y"])]
    return model_of(nodes, [floats("x", [1, 3, 9, 9])], [floats("y", [1, 8, 7, 7])], held)


def test_without_optimisation_onnx_segments_are_bit_equal() -> None:
    data = normalised()
    found = run_in_a_row(*_args(data, [0, 1]), runs=2)
    assert (found.runs, found.outputs_equal, found.max_abs_error, found.relative_error) == (2, True, 0.0, 0.0)
    assert found.runtime.startswith("onnxruntime 1.")
    # Optimisation folds the normalisation into the weights, which the cut prevents: last bits differ.
    (note,) = found.notes
    assert note.startswith(f"{OnnxRuntimeRunner.other_mode}, ")
    assert 0 < float(note.rpartition(" ")[2]) < 1e-3
    data = normalised("Neg")
    assert run_in_a_row(*_args(data, [0, 1])).notes == (f"{OnnxRuntimeRunner.other_mode}{runner.EQUAL_TOO}",)


def _args(data: bytes, stages: list[int], **options: Any) -> tuple[Any, bytes, list[bytes]]:
    module, files = cut_at(data, stages, **options)
    return module, data, files


def test_bodies_integers_and_open_dimensions_are_fed() -> None:
    assert run_in_a_row(*_args(branching(), [0, 1, 2, 3])).outputs_equal
    table = constant("table", np.arange(2.0).reshape(2, 1))
    places = helper.make_tensor_value_info("places", TensorProto.INT64, ["n"])
    nodes = [node("Gather", ["table", "places"], ["a"]), node("Neg", ["a"], ["y"])]
    data = model_of(nodes, [places], [floats("y", ["n", 1])], [table])
    # Places 2 and 3 do not exist, so smaller integers have to be drawn.
    assert run_in_a_row(*_args(data, [0, 1], dims={"n": 5})).outputs_equal


def test_external_data_is_found(tmp_path: Path) -> None:
    from memsched.formats.files import load_module
    from memsched.formats.module import LoadOptions
    from memsched.formats.segments import extract

    model = onnx.load_model_from_string(normalised())
    path = tmp_path / "model.onnx"
    onnx.save_model(model, str(path), save_as_external_data=True, location="weights.bin", size_threshold=0)
    module = load_module(path.read_bytes(), str(path), LoadOptions())
    files = [extract(module, segment, {}) for segment in segments_of(module, [0, 1])]
    assert run_in_a_row(module, path, files).outputs_equal


def test_a_wrong_segment_is_found() -> None:
    data = normalised()
    module, files = cut_at(data, [0, 1])
    changed = onnx.load_model_from_string(files[1])
    changed.graph.initializer[0].raw_data = np.full(8, 2, np.float32).tobytes()
    found = run_in_a_row(module, data, [files[0], changed.SerializeToString()])
    assert found.outputs_equal is False
    assert found.max_abs_error is not None
    assert found.max_abs_error > 0.01
    assert found.reason is not None
    assert float(found.reason.rpartition(" ")[2]) == pytest.approx(found.max_abs_error, rel=1e-5)
    found = run_in_a_row(module, data, [files[1]])
    assert found.outputs_equal is False
    assert re.fullmatch("segment 1 .*: 'a'", found.reason or "")
    found = run_in_a_row(module, b"no model", files)
    assert found.outputs_equal is None


def test_segments_draw_the_numbers_that_the_model_draws() -> None:
    nodes = [node("RandomNormalLike", ["x"], ["a"]), node("Neg", ["a"], ["y"])]
    data = model_of(nodes, [floats("x", [3])], [floats("y", [3])])
    module, files = cut_at(data, [0, 1])
    assert run_in_a_row(module, data, files).outputs_equal is True
    found = run_in_a_row(module, data, [files[0], files[0], files[1]])
    assert found.outputs_equal is False
    assert re.findall(r"\d|Random\w+", found.reason or "") == ["2", "RandomNormalLike", "1"]


def test_elements_of_less_than_a_byte_cannot_be_handed_over_in_python() -> None:
    nodes = [node("Cast", ["x"], ["q"], to=TensorProto.INT4), node("Cast", ["q"], ["y"], to=TensorProto.FLOAT)]
    graph = helper.make_graph(nodes, "m", [floats("x", [3])], [floats("y", [3])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    found = run_in_a_row(*_args(model.SerializeToString(), [0, 1]))
    assert found.outputs_equal is None
    assert "tensor(int4)" in (found.reason or "")


def test_constants_that_no_segment_hands_out_are_said() -> None:
    nodes = [node("Relu", ["x"], ["a"]), node("Neg", ["a"], ["y"]), node("Neg", ["w"], ["c"])]
    outputs = [floats("y", [3]), floats("c", [1])]
    found = run_in_a_row(*_args(model_of(nodes, [floats("x", [3])], outputs, [constant("w", [1.0])]), [0, 1]))
    assert found.outputs_equal
    assert any("'c'" in note for note in found.notes)


def test_tflite_segments_are_bit_equal_with_delegates_too() -> None:
    data = (MODELS / "mobilenetv2_035_96_int8.tflite").read_bytes()
    module = load(data)
    files = cut(module, segments_of(module, random_stages(module, 4, random.Random(0))))
    found = run_in_a_row(module, data, files, runs=2)
    assert (found.runs, found.outputs_equal, found.relative_error) == (2, True, 0.0)
    assert found.runtime.startswith("litert 2.")
    assert found.notes == (f"{LiteRtRunner.other_mode}{runner.EQUAL_TOO}",)
    found = run_in_a_row(module, data, [files[0], files[0]])
    assert found.outputs_equal is True
    assert len(found.notes) == 2


def test_state_lives_on_from_run_to_run() -> None:
    data = stateful()
    found = run_in_a_row(*_args(data, [0, 0, 0, 0, 0, 0]))
    assert (found.outputs_equal, found.reason) == (True, None)


def test_integer_inputs_of_tflite_models_are_indices() -> None:
    table = np.arange(2, dtype=np.float32).tobytes()
    tensors = [T("place", (1,), "INT32"), T("table", (2,), data=table), T("a", (1,)), T("y", (1,))]
    gather = options("GatherOptions", axis=0)
    data = build(Sub(tensors, [O("GATHER", [1, 0], [2], gather), O("NEG", [2], [3])], [0], [3]))
    assert run_in_a_row(*_args(data, [0, 1])).outputs_equal


def test_segments_draw_the_numbers_that_the_tflite_model_draws() -> None:
    tensors = [T("shape", (2,), "INT32", int32s(1, 4)), T("a"), T("x"), T("y")]
    ops = [O("RANDOM_UNIFORM", [0], [1], options("RandomOptions")), O("ADD", [1, 2], [3], options("AddOptions"))]
    assert run_in_a_row(*_args(build(Sub(tensors, ops, [2], [3])), [0, 1])).outputs_equal is True


@pytest.mark.parametrize("kind", SPECIALS)
def test_segments_of_which_only_special_values_differ_are_not_equal(kind: Any) -> None:
    module = load(IDENTITY)
    found = run_in_a_row(module, IDENTITY, [IDENTITY])
    assert (found.outputs_equal, found.special_values) == (True, tuple(WORDS.values()))
    found = run_in_a_row(module, IDENTITY, [ONNX[kind]])
    assert found.outputs_equal is False
    assert WORDS[kind] in (found.special_wrong or "")


def test_tflite_segments_of_which_only_special_values_differ_are_not_equal() -> None:
    data = tflite_net("MUL", "MulOptions", 1.0)
    found = run_in_a_row(load(data), data, [tflite_net("DIV", "DivOptions", 1.0)])
    assert (found.outputs_equal, found.special_values) == (True, tuple(WORDS.values()))
    found = run_in_a_row(load(data), data, [tflite_net("ADD", "AddOptions", 0.0)])
    assert found.outputs_equal is False
    assert WORDS["tiny"] in (found.special_wrong or "")


def test_it_says_which_side_crashes(monkeypatch: pytest.MonkeyPatch) -> None:
    module, files = cut_at(normalised(), [0, 1])
    answers = [ChildResult("crash", reason="killed"), ChildResult("ok", value={})]
    monkeypatch.setattr(runner, "run_in_child", lambda *_: answers.pop(0))
    found = run_in_a_row(module, normalised(), files)
    assert found.outputs_equal is False
    assert re.fullmatch("the segments .*: killed", found.reason or "")
    answers = [ChildResult("crash", reason="killed")] * 2
    assert run_in_a_row(module, normalised(), files).outputs_equal is None
    answers = [ChildResult("timeout", reason="after 1 s")]
    assert run_in_a_row(module, normalised(), files).reason == "after 1 s"


def test_a_missing_runtime_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    module, files = cut_at(normalised(), [0, 1])
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with fails("runtime-missing", "pip install onnxruntime"):
        run_in_a_row(module, normalised(), files)


def test_the_child_runs_in_this_process_too() -> None:
    module, files = cut_at(normalised(), [0, 1])
    request: dict[str, Any] = {
        "model": normalised(),
        "segments": files,
        "folder": None,
        "input_shapes": {},
        "runs": 1,
        "seed": 0,
    }
    answer = row.run(request)
    assert answer["plain"]["equal"] is True
    assert answer["other"]["equal"] is False
    assert module.format == "onnx"
