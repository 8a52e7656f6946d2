"""Sizes of ONNX's element types."""

from __future__ import annotations

from onnx import TensorProto

from memsched.formats.onnx.types import element_bits, element_name, length_of, tensor_bytes


def test_every_element_type_of_the_installed_onnx_has_a_size() -> None:
    for name, number in TensorProto.DataType.items():
        if name not in {"UNDEFINED", "STRING"}:
            assert element_bits(number) > 0
            assert element_name(number)
    assert (tensor_bytes(TensorProto.BFLOAT16, [3]), tensor_bytes(TensorProto.COMPLEX128, [2])) == (6, 32)


def test_sums_of_dimensions_have_a_length() -> None:
    known = {"past": 3, "length": 4, "a + b": 9}
    assert [length_of(name, known) for name in ("past", "past + length", "past+1", "a + b")] == [3, 7, 4, 9]
    assert [length_of(name, known) for name in ("", "+", "past + other", "2 * past", "past - 1")] == [None] * 5
    assert [length_of(name, known) for name in (b"past + 1", "past + " + "9" * 5000)] == [None, None]
