"""Paths and links: nothing outside the model's folder is read, nothing but the outputs is written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.small_models import branches, floats, model_of
from tests.trust.conftest import Warm, one_line, snapshot


def with_external(location: str) -> bytes:
    weight = numpy_helper.from_array(np.zeros((1, 8), np.float32), "w")
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", "0"), ("length", "32")):
        weight.external_data.add(key=key, value=value)
    node = helper.make_node("Add", ["x", "w"], ["y"])
    return model_of([node], [floats("x", [1, 8])], [floats("y", [1, 8])], [weight])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder for models beside a file that is none of their business, with links of every kind to it."""
    (tmp_path / "secret").write_bytes(b"s" * 64)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/w.bin").write_bytes(b"s" * 64)
    inside = tmp_path / "models"
    inside.mkdir()
    (inside / "link").symlink_to("../secret")
    (inside / "absolute-link").symlink_to(tmp_path / "secret")
    (inside / "folder-link").symlink_to("../outside")
    (inside / "loop").symlink_to("loop")
    (inside / "chain").symlink_to("link")
    (inside / "up").symlink_to("..")
    return inside


LOCATIONS = ["../secret", "a/../../secret", "/etc/passwd", "./../secret", "link", "absolute-link", "folder-link/w.bin"]
LOCATIONS += ["chain", "up/secret", "loop", "C:\\secret", "..\\secret", "\\\\host\\share\\w", "a\\..\\..\\secret", ""]
LOCATIONS += ["w\0.bin", "../models/../secret", "//etc/passwd", "a" * 5000 + "/../../secret", "/proc/self/environ"]


@pytest.mark.parametrize("location", LOCATIONS, ids=range(len(LOCATIONS)))
def test_external_data_that_leaves_the_folder(warm: Warm, folder: Path, location: str) -> None:
    (folder / "net.onnx").write_bytes(with_external(location))
    before = snapshot(folder.parent)
    for command in (["analyze"], ["optimize", "--effort", "1"]):
        one_line(warm(folder, *command, "net.onnx"), 1, "external")
        assert snapshot(folder.parent) == before


def test_a_link_to_a_model_is_read_and_not_replaced(warm: Warm, folder: Path) -> None:
    (folder.parent / "real.onnx").write_bytes(branches())
    (folder / "net.onnx").symlink_to("../real.onnx")
    done = warm(folder, "optimize", "net.onnx", "--no-verify", "--quiet")
    assert (done.code, done.err) == (0, "")
    assert (folder / "net_memsched.onnx").is_file()
    assert (folder / "net.onnx").is_symlink()
    assert (folder.parent / "real.onnx").read_bytes() == branches()


def test_an_output_that_links_to_the_input_is_refused(warm: Warm, folder: Path) -> None:
    (folder / "net.onnx").write_bytes(branches())
    (folder / "out.onnx").symlink_to("net.onnx")
    (folder / "hard.onnx").hardlink_to(folder / "net.onnx")
    before = snapshot(folder)
    for name in ("out.onnx", "hard.onnx", "./net.onnx", "../models/net.onnx", "up/models/net.onnx"):
        done = warm(folder, "optimize", "net.onnx", "--no-verify", "-o", name)
        assert done.code in {1, 2}, done
        one_line(done, done.code)
        assert snapshot(folder) == before


def test_outputs_through_links(warm: Warm, folder: Path) -> None:
    """A link that was named as the output stays one: what it leads to is written, as every tool does."""
    (folder / "net.onnx").write_bytes(branches())
    (folder / "dangling.onnx").symlink_to("made.onnx")
    assert warm(folder, "optimize", "net.onnx", "--no-verify", "--quiet", "-o", "dangling.onnx").code == 0
    assert (folder / "dangling.onnx").is_symlink()
    assert (folder / "made.onnx").is_file()
    before = snapshot(folder)
    one_line(warm(folder, "optimize", "net.onnx", "--no-verify", "-o", "loop"), 1, "loop")
    one_line(warm(folder, "optimize", "net.onnx", "--no-verify", "-o", "net.onnx/out.onnx"), 1, "net.onnx/out.onnx")
    assert snapshot(folder) == before


@pytest.mark.parametrize("name", ["loop", "folder-link", "/dev/null", "/proc/self/mem", "a" * 300, "a/" * 3000])
def test_models_that_are_none(warm: Warm, folder: Path, name: str) -> None:
    before = snapshot(folder.parent)
    one_line(warm(folder, "analyze", name), 1)
    one_line(warm(folder, "optimize", name, "--no-verify", "-o", "out.onnx"), 1)
    assert snapshot(folder.parent) == before
