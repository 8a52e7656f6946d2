"""Weights in a file of their own: with a permission they are written, without one they are named as measured."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import memsched
from memsched.base.units import KIB
from memsched.report.verdict import change_of
from tests.cli.conftest import Run
from tests.cli.written import names
from tests.needs import recent_onnxruntime
from tests.runtimes.onnxruntime.test_mapped import digest, layers

pytestmark = recent_onnxruntime


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight megabytes of weights, whose sessions keep little else."""
    path = tmp_path_factory.mktemp("mapped") / "net.onnx"
    path.write_bytes(layers("MatMul", count=8, width=128))
    return path


def test_sessions_map_the_weights_if_callers_accept_another_file(network: Path, tmp_path: Path) -> None:
    result = memsched.optimize(network, may_change=("opening",), effort=0.5)
    section = result.report.values.sections.mapped
    assert section is not None
    [(name, weights)] = result.files.items()
    assert (section.weights, section.weights_bytes) == (name, len(weights))
    # Half of the weights at least: what a process of this size keeps is partly chance.
    assert section.given.private_bytes - section.written.private_bytes > 4 * KIB * KIB
    change = change_of(result.report.values)
    assert (change.before, change.after) == (section.given.private_bytes, section.written.private_bytes)
    result.save(tmp_path / "other.onnx")
    assert names(tmp_path) == sorted((name, "other.onnx"))
    assert digest(tmp_path / "other.onnx") == digest(network)
    again = memsched.optimize(network, may_change=("opening",), effort=0.5)
    assert (again.model, dict(again.files)) == (result.model, dict(result.files))


def test_what_mapping_would_save_is_named_with_its_command(run: Run, network: Path, tmp_path: Path) -> None:
    shutil.copyfile(network, tmp_path / "net.onnx")
    out = tmp_path / "out.onnx"
    done = run("optimize", tmp_path / "net.onnx", "-o", out, "--effort", 0.5)
    assert done.code == 0
    [command] = [line.strip() for line in done.out.splitlines() if "--may-change opening" in line]
    assert names(tmp_path) == ["net.onnx", "out.json", "out.onnx"]
    written = run(*shlex.split(command)[1:], "--force")
    assert written.code == 0
    assert len([name for name in names(tmp_path) if name.startswith("out.") and name.endswith(".weights")]) == 1
    assert digest(out) == digest(network)


def test_external_data_and_open_batches(tmp_path: Path) -> None:
    model = onnx.load_model_from_string(layers("MatMul", count=8, width=128))
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "rows"
    (tmp_path / "given").mkdir()
    given = tmp_path / "given" / "net.onnx"
    onnx.save(model, given, save_as_external_data=True, location="net.data", size_threshold=0)
    result = memsched.optimize(given, may_change=("opening",), dims={"rows": 4}, effort=0.5)
    assert result.report.values.sections.mapped is not None
    result.save(tmp_path / "net.onnx")
    assert "net.data" not in names(tmp_path)
    feed = {"x": np.random.default_rng(0).standard_normal((7, 512)).astype(np.float32)}
    files = (given, tmp_path / "net.onnx")
    before, after = (onnxruntime.InferenceSession(file).run(None, feed)[0] for file in files)
    assert np.array_equal(before, after)


def test_a_file_for_a_range_of_sizes_maps_its_weights(run: Run, tmp_path: Path) -> None:
    model = onnx.load_model_from_string(layers("MatMul", count=8, width=128))
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "rows"
    onnx.save(model, tmp_path / "net.onnx")
    asked = ("--dim", "rows=1..8", "--may-change", "opening", "--effort", 0.5)
    done = run("optimize", tmp_path / "net.onnx", "-o", tmp_path / "out.onnx", *asked)
    assert done.code == 0
    assert "bit-equal" in done.out
    assert [name for name in names(tmp_path) if name.startswith("out.") and name.endswith(".weights")]
    feed = {"x": np.random.default_rng(0).standard_normal((5, 512)).astype(np.float32)}
    files = (tmp_path / "net.onnx", tmp_path / "out.onnx")
    before, after = (onnxruntime.InferenceSession(file).run(None, feed)[0] for file in files)
    assert np.array_equal(before, after)


def test_no_file_is_mapped_that_saves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "small.onnx"
    path.write_bytes(layers("MatMul", count=1, width=8))
    result = memsched.optimize(path, may_change=("opening",), effort=0.5)
    assert not result.files
    assert result.report.values.sections.mapped is None
    assert any("weights are not mapped" in note for note in result.report.values.verdict.notes)
