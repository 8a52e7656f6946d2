"""External data: never loaded, never outside the model's folder, and still found from another folder."""

from __future__ import annotations

import resource
from pathlib import Path

import numpy as np
import onnx
import pytest

from memsched.formats.module import Module
from memsched.formats.onnx import external as onnx_external
from memsched.formats.onnx import reader, writer
from tests.failures import fails
from tests.formats.onnx_builder import INT64, constant, make, node, value


def external(tensor: onnx.TensorProto, location: str, offset: int | None = None) -> onnx.TensorProto:
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    if offset is not None:
        tensor.external_data.add(key="offset", value=str(offset))
    return tensor


def saved(folder: Path, location: str, *, content: bytes | None = b"\0" * 4096) -> Module:
    weight = external(constant("w", np.zeros(1024, np.float32)), location)
    model = make([node("Add", "x w", "y")], [value("x", [1024])], [value("y", None)], [weight])
    path = folder / "net.onnx"
    path.write_bytes(model.SerializeToString())
    if content is not None:
        (folder / location).parent.mkdir(parents=True, exist_ok=True)
        (folder / location).write_bytes(content)
    return reader.read(path.read_bytes(), str(path))


def test_references_are_kept_and_resolve_from_another_folder(tmp_path: Path) -> None:
    source, target = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    target.mkdir()
    module = saved(source, "parts/weights.bin", content=bytes(range(256)) * 16)
    assert (module.weights_bytes, module.notes) == (4096, ())
    assert onnx_external.external_files(module) == ("parts/weights.bin",)
    created = onnx_external.copy_external_files(module, target)
    assert created == (target / "parts", target / "parts/weights.bin")
    (target / "net.onnx").write_bytes(writer.serialize(module, {}, {"key": "value"}))
    loaded = onnx.load(target / "net.onnx")
    assert loaded.graph.initializer[0].raw_data == bytes(range(256)) * 16
    assert onnx_external.copy_external_files(module, target) == ()
    assert onnx_external.copy_external_files(module, source) == ()


def test_copies_are_no_hard_links_and_leave_no_temporary_files(tmp_path: Path) -> None:
    module = saved(tmp_path, "weights.bin")
    target = tmp_path / "out"
    target.mkdir()
    onnx_external.copy_external_files(module, target)
    assert (target / "weights.bin").read_bytes() == b"\0" * 4096
    assert not (target / "weights.bin").samefile(tmp_path / "weights.bin")
    assert sorted(path.name for path in target.iterdir()) == ["weights.bin"]


def test_different_files_are_never_overwritten(tmp_path: Path) -> None:
    module = saved(tmp_path, "weights.bin")
    target = tmp_path / "out"
    target.mkdir()
    (target / "weights.bin").write_bytes(b"mine")
    with fails("other-file-there", "weights.bin"):
        onnx_external.copy_external_files(module, target)
    assert (target / "weights.bin").read_bytes() == b"mine"


def test_failures_leave_nothing_behind(tmp_path: Path) -> None:
    first = external(constant("w", np.zeros(1024, np.float32)), "a.bin")
    second = external(constant("v", np.zeros(1024, np.float32)), "b.bin")
    nodes = [node("Add", "x w", "a"), node("Add", "a v", "y")]
    model = make(nodes, [value("x", [1024])], [value("y", None)], [first, second])
    for name in ("a.bin", "b.bin"):
        (tmp_path / name).write_bytes(b"\0" * 4096)
    module = reader.read(model.SerializeToString(), str(tmp_path / "net.onnx"))
    target = tmp_path / "out"
    target.mkdir()
    (target / "b.bin").write_bytes(b"mine")
    with fails("other-file-there", "b.bin"):
        onnx_external.copy_external_files(module, target)
    assert [path.name for path in target.iterdir()] == ["b.bin"]


@pytest.mark.parametrize(
    "location",
    ["/etc/passwd", "../weights.bin", "a/../../b", "C:\\weights", "a\\..\\..\\b", "\\\\host\\share", "", "a\0b"],
)
def test_locations_outside_the_folder_are_refused(tmp_path: Path, location: str) -> None:
    with fails("external-data"):
        saved(tmp_path, location, content=None)


def test_links_out_of_the_folder_are_refused(tmp_path: Path) -> None:
    inside = tmp_path / "in"
    inside.mkdir()
    (tmp_path / "secret").write_bytes(b"\0" * 4096)
    (inside / "weights.bin").symlink_to(tmp_path / "secret")
    with fails("external-data-link", "'weights.bin'"):
        saved(inside, "weights.bin", content=None)
    (inside / "self").symlink_to("self")
    with fails("external-data", "'self'"):
        saved(inside, "self", content=None)


def test_missing_and_short_files_are_noted(tmp_path: Path) -> None:
    module = saved(tmp_path, "gone.bin", content=None)
    assert any("gone.bin" in note for note in module.notes)
    assert onnx_external.copy_external_files(module, tmp_path) == ()
    assert any("short.bin" in note for note in saved(tmp_path, "short.bin", content=b"\0").notes)


@pytest.mark.parametrize("offset", [-1, None])
def test_offsets_must_be_numbers(tmp_path: Path, offset: int | None) -> None:
    weight = external(constant("w", np.zeros(4, np.float32)), "w.bin", offset)
    if offset is None:
        weight.external_data.add(key="length", value="many")
    model = make([node("Add", "x w", "y")], [value("x", [4])], [value("y", None)], [weight])
    with fails("external-data-offset", "'w'"):
        reader.read(model.SerializeToString(), str(tmp_path / "net.onnx"))


def test_shapes_in_external_data_are_read(tmp_path: Path) -> None:
    (tmp_path / "shapes.bin").write_bytes(b"\0" * 8 + np.array([6, 2], np.int64).tobytes())
    shape = external(constant("s", np.zeros(2, np.int64)), "shapes.bin", 8)
    model = make([node("Reshape", "x s", "y")], [value("x", [3, 4])], [value("y", None)], [shape])
    module = reader.read(model.SerializeToString(), str(tmp_path / "net.onnx"))
    assert module.graph.tensors[1].shape == (6, 2)


def test_three_gigabytes_of_weights_are_never_loaded(tmp_path: Path) -> None:
    elements = 768 * 1024 * 1024
    with (tmp_path / "weights.bin").open("wb") as stream:
        stream.truncate(4 * elements)
    weight = onnx.TensorProto(name="w", data_type=onnx.TensorProto.FLOAT, dims=[elements // 1024, 1024])
    model = make(
        [node("Gather", "w x", "y")], [value("x", [2], INT64)], [value("y", None)], [external(weight, "weights.bin")]
    )
    path = tmp_path / "net.onnx"
    path.write_bytes(model.SerializeToString())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    module = reader.read(path.read_bytes(), str(path))
    data = writer.serialize(module, {}, {"key": "value"})
    assert len(data) < 1024
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024  # kilobytes
    assert module.weights_bytes == 4 * elements
    assert module.graph.tensors[1].shape == (2, 1024)
