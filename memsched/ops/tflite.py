"""The effects of TFLite's operators, by type: "CONV_2D", or "CUSTOM:TFLite_Detection_PostProcess"."""

from __future__ import annotations

from typing import Final

from memsched.graph.effects import PURE, UNKNOWN, Effects

__all__ = ["HANDLES", "READERS", "RESOURCES", "SEEDED", "WRITERS", "by_type", "foreign"]

SEEDED: Final = frozenset({"MULTINOMIAL", "RANDOM_STANDARD_NORMAL", "RANDOM_UNIFORM"})
"""The operators that draw from a generator of their own, seeded by the options ``seed`` and ``seed2`` unless both are
0."""

_DRAWS: Final = SEEDED | {"STABLEHLO_RNG_BIT_GENERATOR"}

HANDLES: Final = frozenset({"HASHTABLE", "VAR_HANDLE"})
"""The operators that name a resource and make its handle."""

READERS: Final = frozenset({"HASHTABLE_FIND", "HASHTABLE_SIZE", "READ_VARIABLE"})
"""The operators that read a resource and do not change it."""

WRITERS: Final = frozenset({"ASSIGN_VARIABLE", "HASHTABLE_IMPORT"})
"""The operators that change one resource and nothing else."""

RESOURCES: Final = frozenset({"resource", "variant"})
"""The element types of handles."""

_STATES: Final = (
    HANDLES
    | READERS
    | WRITERS
    | {"CALL_ONCE", "CUSTOM:CIRCULAR_BUFFER", "CUSTOM:SignalDelay", "CUSTOM:SignalFilterBankSpectralSubtraction"}
    | {"CUSTOM:SignalFramer", "CUSTOM:SignalOverlapAdd", "CUSTOM:SignalStacker"}
)
"""Operators with a state: resources, and kernels of TensorFlow Lite Micro that keep samples (its signal/micro/kernels
and circular_buffer.cc). SVDF and LSTMs keep theirs in variable tensors."""

_FOREIGN: Final = ("CUSTOM:", "BUILTIN_", "STABLEHLO_CUSTOM_CALL")


def foreign(kind: str) -> bool:
    """Whether an operator is none that memsched knows."""
    return kind.startswith(_FOREIGN)


def by_type(kind: str) -> Effects:
    """Return the effects that all operators of a type have, bodies and variable tensors aside."""
    if kind in _DRAWS:
        return Effects(random=True)
    if kind in _STATES:
        return Effects(stateful=True)
    return UNKNOWN if foreign(kind) else PURE
