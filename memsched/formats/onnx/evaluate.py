"""What a single node computes of values that are known, by ONNX's reference evaluator."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any, Final

from onnx import NodeProto, helper

from memsched.ops.table import FROM_NUMBERS, families

__all__ = ["GROWING", "evaluate", "stays_within"]

GROWING: Final = FROM_NUMBERS | families("expansion", "repetition")
"""Operators of which a few bytes may state a result of any size."""


def evaluate(node: NodeProto, opset: int, inputs: Sequence[Any]) -> list[Any] | None:
    """Return the outputs of a node; None where the evaluator cannot compute them.

    Args:
        opset: The version of the operator set that the model imports: what attributes and inputs say depends on it.
        inputs: An array for each input; whatever stands for those left out is ignored.
    """
    from onnx.reference import ReferenceEvaluator

    names = [name for name in node.input if name]
    function = helper.make_function(
        "memsched", "one", list(dict.fromkeys(names)), list(node.output), [node], [helper.make_opsetid("", opset)]
    )
    feeds = {name: value for name, value in zip(node.input, inputs, strict=True) if name}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results = ReferenceEvaluator(function).run(None, feeds, attributes={})
    except Exception:  # of any implementation of an operator
        return None
    return list(results) if len(results) == len(node.output) else None


def stays_within(kind: str, inputs: Sequence[Any], most: int) -> bool:
    """Return whether a node of one of the operators `GROWING` makes at most so many elements."""
    try:
        if kind == "Range":
            start, limit, delta = (float(value) for value in inputs)
            return delta != 0 and (limit - start) / delta <= most
        if inputs[-1].dtype.kind == "c":
            return False
        factors = [int(length) for length in inputs[-1].reshape(-1)]
        size = math.prod(max(1, length) for length in factors)
        return bool(size * (1 if kind == "ConstantOfShape" else inputs[0].size) <= most)
    except (TypeError, ValueError, IndexError, AttributeError, OverflowError):
        return False
