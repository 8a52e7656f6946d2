"""The effects of ONNX's operators and of ONNX Runtime's own, by type: "Conv", or "com.microsoft.Gelu"."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal

from memsched.graph.effects import PURE, UNKNOWN, Effects

__all__ = ["SEEDS", "TRAINING_INPUT", "SeedType", "by_type", "foreign", "in_training"]

SeedType = Literal["float", "int"]

DOMAINS: Final = frozenset({"ai.onnx", "ai.onnx.ml", "com.microsoft", "com.microsoft.nchwc"})
"""The domains whose operators are known; those of ONNX's own have no prefix in a type."""

SEEDS: Final[Mapping[str, SeedType]] = MappingProxyType(
    {
        "Bernoulli": "float",
        "Dropout": "int",
        "Multinomial": "float",
        "RandomNormal": "float",
        "RandomNormalLike": "float",
        "RandomUniform": "float",
        "RandomUniformLike": "float",
    }
)
"""The operators that draw from a generator of their own if they have the attribute ``seed``, and its type.

ONNX Runtime's kernels read it when a session is opened. Without it Dropout draws from one generator of the process,
and the others from one that is seeded with the process's seed and the number of the node.
"""

TRAINING_INPUT: Final[Mapping[str, int]] = MappingProxyType(
    {
        "Dropout": 2,
        "com.microsoft.BiasDropout": 4,
        "com.microsoft.BitmaskBiasDropout": 4,
        "com.microsoft.BitmaskDropout": 2,
    }
)
"""The operators that draw only in training mode, and the position of the input that switches it on."""

_DRAWS: Final = frozenset(SEEDS) - frozenset(TRAINING_INPUT) | {
    "com.microsoft.Sampling",
    "com.microsoft.SoftmaxDropout",
    "com.microsoft.BiasSoftmaxDropout",
    "com.microsoft.TrainableDropout",
}

_STATES: Final = frozenset(
    f"com.microsoft.{name}"
    for name in (
        *("AdamOptimizer", "AdamWOptimizer", "LambOptimizer", "SGDOptimizer", "SGDOptimizerV2"),
        *("InPlaceAccumulator", "InPlaceAccumulatorV2", "GradientAccumulator", "ZeroGradient"),
        *("AdasumAllReduce", "AllGather", "AllReduce", "AllToAll"),
        *("NcclAllGather", "NcclAllReduce", "NcclReduceScatter", "Recv", "Send"),
        *("RecordEvent", "WaitEvent", "YieldOp"),
    )
)
"""Operators that change their inputs in place, or exchange data with other processes and threads."""

_UNKNOWN: Final = frozenset({"com.microsoft.EPContext", "com.microsoft.PythonOp", "com.microsoft.PythonOpGrad"})
"""Operators that execute code from outside the model."""


def foreign(kind: str) -> bool:
    """Whether an operator is of a domain that memsched does not know."""
    domain, dot, _ = kind.rpartition(".")
    return bool(dot) and domain not in DOMAINS


def by_type(kind: str) -> Effects:
    """Return the effects that all ops of a type have, bodies and training mode aside."""
    if kind in _DRAWS:
        return Effects(random=True)
    if kind in _STATES:
        return Effects(stateful=True)
    return UNKNOWN if kind in _UNKNOWN or foreign(kind) else PURE


def in_training(*, seeded: bool) -> Effects:
    """Return the effects of an op of a type in `TRAINING_INPUT` in training mode."""
    return Effects(random=True, shared=not seeded)
