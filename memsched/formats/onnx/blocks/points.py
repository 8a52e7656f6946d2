"""What a rewrite of a model with open dimensions leads to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["BlockPoint", "BlockRow"]


@dataclass(frozen=True, slots=True)
class BlockRow:
    """One loop, or one kernel, and what it stands for.

    Attributes:
        kind: "loop" or "kernel".
        name: The name of its node.
        dimension: The open dimension that a loop is over; "" for kernels.
        ops: Names of the nodes of the model as given that are computed in it.
    """

    kind: str
    name: str
    dimension: str
    ops: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BlockPoint:
    """One way to rewrite a model, right for every size in its ranges.

    Attributes:
        name: In the words of reports: "queries in blocks".
        rows: What was rewritten.
        exact: Every element is computed as before, from the same operands in the same order.
        build: Makes the model, with the weights of the one that was given.
    """

    name: str
    rows: tuple[BlockRow, ...]
    exact: bool
    build: Callable[[], ModelProto]
