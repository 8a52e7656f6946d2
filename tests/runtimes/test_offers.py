"""Which targets the runtimes offer for a file, and which one is chosen if the user names none."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec import structs

import memsched
from memsched.runtimes.known import offers_for, usual_offer
from tests import small_models
from tests.cli.conftest import Run
from tests.formats.tflite_builder import MODELS, O, Sub, T, build


def one(kind: str, dtype: str = "INT8", *, data: int = 0) -> bytes:
    """A model of one operator, and of so many bytes that no operator reads."""
    tensors = [T("x", dtype=dtype), T("y", dtype=dtype)]
    tensors += [T("table", (data,), "INT8", bytes(data))] if data else []
    return build(Sub(tensors, [O(kind, [0], [1])], [0], [1]))


@pytest.mark.parametrize(
    ("data", "target", "about"),
    [
        (one("RELU"), "tflm", ("int8", "--target litert")),
        (one("RELU", "FLOAT32"), "litert", ("float32", "--target tflm")),
        (one("RELU", data=2 << 20), "litert", ("KB", "--target tflm")),
        (one("CUSTOM:mine"), "litert", ("mine", "--target tflm")),
        (one("RELU", "UINT8"), "litert", ("uint8",)),
    ],
)
def test_the_runtime_is_chosen_from_the_file(data: bytes, target: str, about: Sequence[str]) -> None:
    section = memsched.analyze(data).report.values.target
    assert section.name == target
    assert all(one in section.reason for one in about)
    assert memsched.analyze(data, target=target).report.values.target == structs.replace(section, reason="")


def test_files_of_the_repository() -> None:
    names = {path.stem: usual_offer(memsched.load(path)).target for path in MODELS.glob("*.tflite")}
    assert {name for name, target in names.items() if target == "litert"} == {"nasnetmobile_int8"}


def test_each_offer_is_a_built_in_target_that_takes_the_file() -> None:
    for data in (one("RELU"), small_models.branches()):
        for offer in offers_for(memsched.load(data)):
            assert memsched.analyze(data, target=offer.target).report.values.target.name == offer.target


def test_the_first_line_says_what_was_chosen(run: Run, tmp_path: Path) -> None:
    path, out = tmp_path / "net.tflite", tmp_path / "out.tflite"
    path.write_bytes(one("RELU"))
    for words in (("analyze", path), ("optimize", path, "-o", out, "--no-verify")):
        assert run(*words).out.startswith("target tflm: ")
        assert not run(*words, "--target", "tflm").out.startswith("target")
    model = tmp_path / "net.onnx"
    model.write_bytes(small_models.branches())
    assert not run("analyze", model).out.startswith("target")
