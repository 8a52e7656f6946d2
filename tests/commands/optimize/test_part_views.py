"""Part views from the file to the report: pieces inside their concatenation, slices and splits inside their source."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

import memsched
from tests.formats.tflite_builder import O, Sub, T, build, int32s, options
from tests.small_models import floats, model_of

PARTS = """
extends = "paper"
name = "parts"
alignment_bytes = {alignment}
align_parts = {align}
[[part_views]]
ops = ["Concat", "CONCATENATION"]
kind = "concatenation"
[[part_views]]
ops = ["Slice", "SLICE", "STRIDED_SLICE"]
kind = "slice"
[[part_views]]
ops = ["Split"]
kind = "split"
[[part_views]]
ops = ["SPLIT"]
kind = "split"
input = 1
"""


def rows_of(model: bytes, folder: Path, alignment: int = 4, align: str = "true") -> tuple[dict[str, Any], int]:
    """Return the report's rows by tensor, and the arena."""
    target = folder / "parts.toml"
    target.write_text(PARTS.format(alignment=alignment, align=align))
    result = memsched.optimize(model, target=str(target), verify=False)
    return {row["tensor"]: row for row in result.report["written"]["buffers"]}, result.allocation.arena


def distances(rows: dict[str, Any], base: str, names: Sequence[str]) -> list[int]:
    return [rows[name]["offset_bytes"] - rows[base]["offset_bytes"] for name in names]


def ints(name: str, *values: int) -> Any:
    return numpy_helper.from_array(np.array(values, np.int64), name)


def onnx_model() -> bytes:
    """The rows of (a 2, b 3) are c; of c, d = (p 1, c) the rest: s = c[2:], and e and f are d[:4] and d[4:]."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Exp", ["w"], ["b"]),
        helper.make_node("Concat", ["a", "b"], ["c"], axis=1),
        helper.make_node("Slice", ["c", "two", "end", "one"], ["s"]),
        helper.make_node("Neg", ["v"], ["p"]),
        helper.make_node("Concat", ["p", "c"], ["d"], axis=1),
        helper.make_node("Split", ["d", "rows"], ["e", "f"], axis=1),
        helper.make_node("ReduceSum", ["s"], ["y"]),
        helper.make_node("Tanh", ["e"], ["z"]),
        helper.make_node("Tanh", ["f"], ["u"]),
    ]
    inputs = [floats("x", [1, 2, 3]), floats("w", [1, 3, 3]), floats("v", [1, 1, 3])]
    outputs = [floats("y", [1, 1, 1]), floats("z", [1, 4, 3]), floats("u", [1, 2, 3])]
    constants = [ints("two", 2), ints("end", 2**31), ints("one", 1), ints("rows", 4, 2)]
    return model_of(nodes, inputs, outputs, constants)


def test_parts_of_an_onnx_model(tmp_path: Path) -> None:
    rows, _ = rows_of(onnx_model(), tmp_path)
    assert distances(rows, "d", ["p", "c", "a", "b", "s", "e", "f"]) == [0, 12, 12, 36, 36, 0, 48]
    assert rows["d"]["consists_of"] == ["p", "c"]
    assert rows["c"]["consists_of"] == ["a", "b"]
    assert (rows["s"]["view_of"], rows["f"]["view_of"]) == ("c", "d")


def test_parts_off_the_alignment_are_copies(tmp_path: Path) -> None:
    rows, copied = rows_of(onnx_model(), tmp_path, 16)
    assert not any(row["consists_of"] for row in rows.values())
    # f begins at row 4 of d, which is byte 48.
    assert (rows["e"]["view_of"], rows["f"]["view_of"], rows["s"]["view_of"]) == ("d", "d", None)
    rows, loose = rows_of(onnx_model(), tmp_path, 16, "false")
    assert distances(rows, "d", ["p", "c", "a", "b", "s", "e", "f"]) == [0, 12, 12, 36, 36, 0, 48]
    assert rows["d"]["offset_bytes"] % 16 == 0
    assert loose <= copied


def tflite_model(begin: Sequence[int]) -> bytes:
    tensors = [
        T("x", (1, 2, 4)),
        T("a", (1, 2, 4)),
        T("b", (1, 2, 4)),
        T("c", (1, 4, 4)),
        T("begin", (3,), "INT32", int32s(*begin)),
        T("size", (3,), "INT32", int32s(1, 2, 4)),
        T("s", (1, 2, 4)),
        T("axis", (), "INT32", int32s(1)),
        T("e", (1, 2, 4)),
        T("f", (1, 2, 4)),
        T("y", (1, 2, 4)),
        T("z", (1, 2, 4)),
    ]
    ops = [
        O("EXP", [0], [1]),
        O("NEG", [0], [2]),
        O("CONCATENATION", [1, 2], [3], options("ConcatenationOptions", axis=1)),
        O("SLICE", [3, 4, 5], [6], options("SliceOptions")),
        O("SPLIT", [7, 3], [8, 9], options("SplitOptions", numSplits=2)),
        O("ADD", [6, 8], [10], options("AddOptions")),
        O("EXP", [9], [11]),
    ]
    return build(Sub(tensors, ops, [0], [10, 11]))


@pytest.mark.parametrize("row", [0, 1, 2])
def test_parts_of_a_tflite_model(tmp_path: Path, row: int) -> None:
    rows, arena = rows_of(tflite_model((0, row, 0)), tmp_path)
    assert distances(rows, "c", ["a", "b", "s", "e", "f"]) == [0, 32, 16 * row, 0, 32]
    # a and b are c, which is needed until z is made; y is an output.
    assert arena == 4 * 32
