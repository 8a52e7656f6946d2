"""Sizes of ONNX's element types."""

from __future__ import annotations

from onnx import TensorProto

from memsched.formats.onnx.types import element_bits, element_name, tensor_bytes


def test_every_element_type_of_the_installed_onnx_has_a_size() -> None:
    for name, number in TensorProto.DataType.items():
        if name not in {"UNDEFINED", "STRING"}:
            assert element_bits(number) > 0
            assert element_name(number)
    assert (tensor_bytes(TensorProto.BFLOAT16, [3]), tensor_bytes(TensorProto.COMPLEX128, [2])) == (6, 32)
