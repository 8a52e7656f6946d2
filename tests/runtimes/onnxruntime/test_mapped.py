"""Models whose sessions map their weights: the same outputs on every processor, or a refusal, and less memory."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import memsched
from memsched.runtimes.onnxruntime.block_guard import add_block_guard
from memsched.runtimes.onnxruntime.executed_child import block_here
from memsched.runtimes.onnxruntime.mapped import mapped_model
from memsched.runtimes.sessions import DEFAULT, MappedModel
from tests.runtimes.old_processor import built, needs_old_processor, run_on_old

RUN = """
import hashlib, sys
import numpy as np, onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1])
shape = session.get_inputs()[0].shape
feed = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
print(hashlib.sha256(session.run(None, {"x": feed})[0].tobytes()).hexdigest())
"""


def layers(kind: str, count: int = 4, width: int = 64) -> bytes:
    """Return a chain of layers with random weights: convolutions, which are computed in blocks, or products."""
    rng = np.random.default_rng(0)
    nodes, weights, value = [], [], "x"
    for number in range(count):
        shape = (width, width, 3, 3) if kind == "Conv" else (4 * width, 4 * width)
        array = rng.standard_normal(shape).astype(np.float32) / 16
        weights.append(numpy_helper.from_array(array, f"w{number}"))
        made: dict[str, Any] = {"pads": [1, 1, 1, 1]} if kind == "Conv" else {}
        nodes.append(helper.make_node(kind, [value, f"w{number}"], [f"h{number}"], f"layer{number}", **made))
        nodes.append(helper.make_node("Relu", [f"h{number}"], [f"r{number}"], f"relu{number}"))
        value = f"r{number}"
    nodes[-1].output[0] = "y"
    shape = (1, width, 12, 12) if kind == "Conv" else (8, 4 * width)
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy"]
    graph = helper.make_graph(nodes, "layers", ends[:1], ends[1:], weights)
    return bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()
    )


def mapped(kind: str, folder: Path) -> tuple[Path, MappedModel]:
    given = folder / "given.onnx"
    given.write_bytes(layers(kind))
    return given, mapped_model(given, None, DEFAULT, folder, "net")


def digest(file: Path) -> str:
    session = onnxruntime.InferenceSession(file)
    feed = np.random.default_rng(0).standard_normal(session.get_inputs()[0].shape).astype(np.float32)
    output: Any = session.run(None, {"x": feed})[0]
    return hashlib.sha256(output.tobytes()).hexdigest()


@pytest.mark.parametrize("kind", ["Conv", "MatMul"])
def test_outputs_keep_their_bits_and_bytes_do_not_change(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "again").mkdir()
    given, found = mapped(kind, tmp_path)
    _, again = mapped(kind, tmp_path / "again")
    assert digest(found.model) == digest(given)
    assert (found.block is not None) == (kind == "Conv" and block_here(onnx) is not None)
    assert found.model.read_bytes() == again.model.read_bytes()
    assert found.weights.read_bytes() == again.weights.read_bytes()
    assert found.processor in found.weights.name
    stored = onnx.load(found.model, load_external_data=False)
    assert {one.value for tensor in stored.graph.initializer for one in tensor.external_data[:1]} == {
        found.weights.name
    }


@pytest.mark.parametrize("kind", ["Conv", "MatMul"])
def test_verify_compares_files_in_the_session_that_they_are_for(kind: str, tmp_path: Path) -> None:
    given, found = mapped(kind, tmp_path)
    seen = memsched.verify(str(given), str(found.model))
    assert seen.same
    assert seen.verification.outputs_equal
    if found.block is not None:
        # Sessions that optimize less compute the original without blocks.
        assert seen.verification.relative_error


def test_verify_finds_another_weight_in_a_mapped_file(tmp_path: Path) -> None:
    given, found = mapped("Conv", tmp_path)
    weights = np.fromfile(found.weights, np.float32)
    weights[np.flatnonzero(weights)[100]] += 1
    weights.tofile(found.weights)
    assert memsched.verify(str(given), str(found.model)).same is False


def test_a_file_for_blocks_of_another_size_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    here = block_here(onnx)
    if here is None:
        pytest.skip("this processor does not compute in blocks")
    given = tmp_path / "given.onnx"
    given.write_bytes(layers("Conv"))
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "stored.onnx")
    onnxruntime.InferenceSession(given, options)
    for block in (8, 16):
        model = onnx.load(tmp_path / "stored.onnx")
        add_block_guard(model, block)
        once = model.SerializeToString()
        add_block_guard(model, block)
        assert model.SerializeToString() == once
        file = tmp_path / f"for{block}.onnx"
        file.write_bytes(once)
        if block == here:
            assert digest(file) == digest(given)
        else:
            with pytest.raises(Exception, match=f"blocks_of_{block}_channels"):
                digest(file)


@needs_old_processor
def test_an_older_processor_computes_the_same_as_with_the_original_or_refuses_the_file(tmp_path: Path) -> None:
    library = built(tmp_path)
    outcomes = {}
    for kind in ("Conv", "MatMul"):
        (tmp_path / kind).mkdir()
        given, found = mapped(kind, tmp_path / kind)
        runs = [run_on_old(library, [sys.executable, "-c", RUN, str(file)]) for file in (given, found.model)]
        assert runs[0].returncode == 0, runs[0].stderr
        outcomes[kind] = runs[1].stdout == runs[0].stdout, f"blocks_of_{found.block}_channels" in runs[1].stderr
    assert outcomes == {"Conv": (False, True), "MatMul": (True, False)}
