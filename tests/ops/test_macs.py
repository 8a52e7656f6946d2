"""Multiply-accumulates of operators of both formats."""

from __future__ import annotations

from typing import Any

import pytest

from memsched.ops.macs import macs_of

CASES: list[tuple[str, dict[str, Any], list[Any], list[Any], int]] = [
    ("Conv", {}, [(1, 8, 6, 6), (16, 4, 3, 3), (16,)], [(1, 16, 4, 4)], 16 * 16 * 4 * 9),
    ("QLinearConv", {}, [(1, 8, 6, 6), (), (), (16, 8, 1, 1)], [(1, 16, 6, 6)], 16 * 36 * 8),
    ("ConvTranspose", {}, [(1, 8, 4, 4), (8, 2, 3, 3)], [(1, 2, 6, 6)], 8 * 16 * 2 * 9),
    ("MatMul", {}, [(5, 2, 3), (3, 4)], [(5, 2, 4)], 5 * 2 * 3 * 4),
    ("QLinearMatMul", {}, [(2, 3), (), (), (3, 4)], [(2, 4)], 24),
    ("Gemm", {}, [(2, 3), (3, 4)], [(2, 4)], 24),
    ("Gemm", {"transA": 1}, [(3, 2), (3, 4)], [(2, 4)], 24),
    ("Einsum", {"equation": "bij, bjk -> bik"}, [(5, 2, 3), (5, 3, 4)], [(5, 2, 4)], 120),
    ("Einsum", {"equation": "...ij,jk"}, [(5, 2, 3), (3, 4)], [(5, 2, 4)], 0),
    ("LSTM", {}, [(7, 2, 3), (1, 20, 3), (1, 20, 5)], [(7, 1, 2, 5)], 7 * 2 * 4 * 5 * (3 + 5)),
    ("GRU", {}, [(7, 2, 3), (2, 15, 3), (2, 15, 5)], [(7, 2, 2, 5)], 2 * 7 * 2 * 3 * 5 * (3 + 5)),
    ("CONV_2D", {}, [(1, 6, 6, 8), (16, 3, 3, 8), (16,)], [(1, 4, 4, 16)], 16 * 16 * 9 * 8),
    ("DEPTHWISE_CONV_2D", {}, [(1, 6, 6, 8), (1, 3, 3, 16), (16,)], [(1, 4, 4, 16)], 16 * 16 * 9),
    ("FULLY_CONNECTED", {}, [(5, 3), (4, 3)], [(5, 4)], 60),
    ("TRANSPOSE_CONV", {}, [(4,), (2, 3, 3, 8), (1, 4, 4, 8)], [(1, 6, 6, 2)], 16 * 8 * 2 * 9),
    ("CONV_3D", {}, [(1, 4, 4, 4, 2), (3, 3, 3, 2, 5)], [(1, 2, 2, 2, 5)], 8 * 5 * 27 * 2),
    ("BATCH_MATMUL", {"adj_x": 1}, [(5, 3, 2), (5, 3, 4)], [(5, 2, 4)], 120),
    ("CONV_2D", {}, [(1, 6, 6, 8), (16,)], [(1, 4, 4, 16)], 0),
    ("CONV_3D_TRANSPOSE", {}, [(5,), (3, 3, 3, 2, 4), (1, 2, 2, 2, 4)], [(1, 4, 4, 4, 2)], 8 * 4 * 27 * 2),
    ("MatMulInteger", {}, [(5, 2, 3), (3, 4)], [(5, 2, 4)], 5 * 2 * 3 * 4),
    ("ConvInteger", {}, [(1, 8, 6, 6), (16, 8, 3, 3)], [(1, 16, 4, 4)], 16 * 16 * 8 * 9),
    ("com.microsoft.nchwc.Conv", {}, [(1, 8, 6, 6), (16, 8, 3, 3)], [(1, 16, 4, 4)], 16 * 16 * 8 * 9),
    ("RNN", {}, [(7, 2, 3), (1, 5, 3), (1, 5, 5)], [(7, 1, 2, 5)], 7 * 2 * 5 * (3 + 5)),
    ("Einsum", {"equation": "ij,jk,kl->il"}, [(2, 3), (3, 4), (4, 5)], [(2, 5)], 2 * 3 * 4 * 5 * 2),
    ("Relu", {}, [(4,)], [(4,)], 0),
    ("Conv", {}, [(1, 8, 6, 6), None], [(1, 16, 4, 4)], 0),
    ("Conv", {}, [(1, 8, 6, 6)], [(1, 16, 4, 4)], 0),
    ("LSTM", {}, [(7, 2), (1, 20, 3), (1, 20, 5)], [(7, 1, 2, 5)], 0),
]


@pytest.mark.parametrize(("kind", "attributes", "inputs", "outputs", "expected"), CASES)
def test_counts(kind: str, attributes: dict[str, Any], inputs: list[Any], outputs: list[Any], expected: int) -> None:
    assert macs_of(kind, attributes, inputs, outputs) == expected
