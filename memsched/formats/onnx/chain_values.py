"""Which operator computes what a part of a model computes, told by the numbers that both make of many points."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

from memsched.formats.onnx.standard import Opset

__all__ = ["Activation", "activation_of"]

Activation = tuple[str, tuple[tuple[str, "float | str"], ...]]
"""An operator, as `memsched.graph.model.Op.type` has it, and its attributes."""

_MOST: Final = 12.0
_POINTS: Final = 769
_FAR: Final = (-400.0, -80.0, -25.0, 25.0, 80.0, 400.0)
_CLOSE: Final = 2e-6
"""The largest difference, where results are larger than 1 relative to them: files round the root of two, say."""


def activation_of(
    nodes: Sequence[NodeProto], constants: Mapping[str, float], version: int, read: str, made: str
) -> Activation | None:
    """Return the operator that makes of every number what ``nodes`` make of it; None where there is none.

    HardSwish and Swish are none of them: ONNX Runtime has no kernel for either, and needs as much as for the chain.

    Args:
        nodes: In order; each computes every element by itself.
        constants: The numbers that they read beside ``read``, by name.
        version: That of the operator set.
    """
    points = np.concatenate([np.linspace(-_MOST, _MOST, _POINTS), [1.0], _FAR])
    found = _computed(nodes, constants, version, read, made, points)
    if found is None or found.shape != points.shape:
        return None
    standard = version >= Opset.GELU
    known: list[tuple[Activation, Callable[[Any], Any]]] = [
        (("Gelu" if standard else "com.microsoft.Gelu", ()), _gelu),
        (("Gelu", (("approximate", "tanh"),)) if standard else ("com.microsoft.FastGelu", ()), _gelu_by_tanh),
    ]
    at_one = float(found[_POINTS])
    if 0 < at_one < 1 and at_one != 1 / 2:
        alpha = float(np.float32(np.log(at_one / (1 - at_one))))
        known.append((("com.microsoft.QuickGelu", (("alpha", alpha),)), lambda x: x * _sigmoid(alpha * x)))
    for activation, definition in known:
        wanted = definition(points)
        if np.all(np.abs(found - wanted) <= _CLOSE * np.maximum(1, np.abs(wanted))):
            return activation
    return None


def _computed(
    nodes: Sequence[NodeProto], constants: Mapping[str, float], version: int, read: str, made: str, points: Any
) -> Any:
    """Return what nodes make of points, in double precision; None where they cannot be executed."""
    from onnx.reference import ReferenceEvaluator

    ends = [helper.make_tensor_value_info(name, TensorProto.DOUBLE, None) for name in (read, made)]
    stored = [numpy_helper.from_array(np.array(value, np.float64), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], stored)
    part = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)])
    try:
        with np.errstate(all="ignore"):
            result: Any = ReferenceEvaluator(part).run(None, {read: points})
    except Exception:  # of any class: what cannot be executed is not replaced
        return None
    return np.asarray(result[0])


def _sigmoid(x: Any) -> Any:
    return 0.5 * (1 + np.tanh(0.5 * x))


def _gelu(x: Any) -> Any:
    import math

    return np.array([0.5 * float(one) * math.erfc(-float(one) / math.sqrt(2)) for one in x])


def _gelu_by_tanh(x: Any) -> Any:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
