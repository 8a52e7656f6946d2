"""A single ONNX layer with its data, and what random ones are drawn from."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = Any


@dataclass
class Layer:
    """A node: activations are given as arrays under names that begin with 'x', constants under others.

    Attributes:
        exact: Results are equal to the last bit; else up to rounding.
    """

    kind: str
    inputs: list[str] = field(default_factory=list)
    attributes: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Array] = field(default_factory=dict)
    constants: dict[str, Array] = field(default_factory=dict)
    domain: str = ""
    opset: int = 19
    exact: bool = True

    def give(self, array: Array) -> None:
        """Add an activation."""
        name = f"x{len(self.inputs)}"
        self.inputs.append(name)
        self.data[name] = array

    def state(self, array: Array) -> None:
        """Add a constant."""
        name = f"c{len(self.inputs)}"
        self.inputs.append(name)
        self.constants[name] = array

    def skip(self) -> None:
        """Leave an optional input out."""
        self.inputs.append("")


R = random.Random


def whole_numbers(r: R, shape: tuple[int, ...], low: int = -4, high: int = 4) -> Array:
    seed = np.random.default_rng(r.randrange(1 << 30))
    return seed.integers(low, high + 1, shape).astype(np.float32)


def shape_of(r: R, rank: int, low: int = 1, high: int = 12) -> tuple[int, ...]:
    return tuple(r.randint(low, high) for _ in range(rank))
