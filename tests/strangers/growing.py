"""A graph whose sizes are unknowns of a solver: operators state what holds of them, and the solver chooses."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from ortools.sat.python import cp_model

__all__ = ["OPSET", "Growing", "Value", "Where"]

OPSET = 21
_MOST = {0: 1, 1: 256, 2: 48, 3: 24, 4: 16, 5: 6}
"""By rank, the largest dimension."""

Expr = Any
"""An int, or a linear expression of the solver's variables."""

Where = Callable[[Any], int]
"""What an expression is in the solver's answer."""


class UnfitError(Exception):
    """An operator finds no operands."""


@dataclass(frozen=True)
class Value:
    """A tensor of known type and rank."""

    name: str
    dtype: str
    dims: tuple[Expr, ...]

    @property
    def rank(self) -> int:
        return len(self.dims)


@dataclass(frozen=True)
class _Node:
    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    domain: str


class Growing:
    """Operators, their operands, and what the solver must respect."""

    def __init__(self) -> None:
        self.model = cp_model.CpModel()
        self.rng = random.Random(0)
        self.values: list[Value] = []
        self.inputs: list[Value] = []
        self.nodes: list[_Node] = []
        self.stated: list[tuple[str, Callable[[Where], Any]]] = []
        self.unknowns: list[tuple[Any, int, int]] = []
        self.read: set[str] = set()

    def var(self, low: int, high: int) -> Expr:
        """Return an unknown of the solver."""
        unknown = self.model.new_int_var(low, high, f"u{len(self.unknowns)}")
        self.unknowns.append((unknown, low, high))
        return unknown

    def require(self, *conditions: Any) -> None:
        """State what must hold."""
        for condition in conditions:
            if condition is False:
                raise UnfitError
            if condition is not True:
                self.model.add(condition)

    def product(self, factors: Sequence[Expr], most: int = 1 << 16) -> Expr:
        """Return the product of all factors."""
        result: Expr = 1
        for factor in factors:
            made = self.model.new_int_var(1, most, "")
            self.model.add_multiplication_equality(made, [result, factor])
            result = made
        return result

    def quotient(self, whole: Expr, part: Expr, most: int = 1 << 12) -> Expr:
        """Return ``whole`` divided by ``part``, rounded down."""
        result = self.model.new_int_var(0, most, "")
        self.model.add_division_equality(result, whole, part)
        return result

    def fresh(self, dtype: str, rank: int) -> Value:
        """Return a new input of the graph."""
        low = 1 if rank < 4 else 2
        dims = [self.var(1, 2) if rank > 2 and place == 0 else self.var(low, _MOST[rank]) for place in range(rank)]
        value = Value(f"x{len(self.inputs)}", dtype, tuple(dims))
        self.inputs.append(value)
        self.values.append(value)
        return value

    def pick(self, dtypes: Sequence[str] = ("float32",), ranks: Sequence[int] = (1, 2, 3, 4)) -> Value:
        """Return an operand: mostly one that is there, of the last ones rather than of the first."""
        fits = [value for value in self.values if value.dtype in dtypes and value.rank in ranks]
        if fits and self.rng.random() < 0.93:
            chosen = fits[max(self.rng.randrange(len(fits)) for _ in range(2))]
        else:
            chosen = self.fresh(self.rng.choice(dtypes), self.rng.choice(ranks))
        self.read.add(chosen.name)
        return chosen

    def constant(self, make: Callable[[Where], Any]) -> str:
        """Return a constant that is made when the sizes are known."""
        name = f"k{len(self.stated)}"
        self.stated.append((name, make))
        return name

    def ints(self, *numbers: Expr) -> str:
        """Return a constant list of int64."""
        return self.constant(lambda at: np.array([at(number) for number in numbers], np.int64))

    def weights(self, *dims: Expr, low: float = -0.5, high: float = 0.5, dtype: str = "float32") -> str:
        """Return constants drawn from a range."""
        seed = self.rng.randrange(1 << 30)

        def make(at: Where) -> Any:
            return np.random.default_rng(seed).uniform(low, high, [at(dim) for dim in dims]).astype(dtype)

        return self.constant(make)

    def emit(
        self,
        kind: str,
        inputs: Sequence[Value | str],
        *made: tuple[str, Sequence[Expr]],
        domain: str = "",
        **attributes: Any,
    ) -> list[Value]:
        """Add an operator; its outputs are stated by type and dimensions."""
        outputs = []
        for dtype, dims in made:
            for dim in dims:
                self.require(dim >= 1, dim <= _MOST[len(dims)])
            outputs.append(Value(f"v{len(self.values)}", dtype, tuple(dims)))
            self.values.append(outputs[-1])
        names = tuple(value if isinstance(value, str) else value.name for value in inputs)
        self.nodes.append(_Node(kind, names, tuple(value.name for value in outputs), attributes, domain))
        return outputs

    def solve(self, targets: random.Random | None = None) -> Where | None:
        """Return a solution near drawn sizes, the same one on every machine; None where there is none."""
        if targets is not None:
            distances = []
            for unknown, low, high in self.unknowns:
                distance = self.model.new_int_var(0, high, "")
                self.model.add_abs_equality(distance, unknown - targets.randint(low, high))
                distances.append(distance)
            self.model.minimize(sum(distances))
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.max_deterministic_time = 0.5
        if solver.solve(self.model) not in {cp_model.OPTIMAL, cp_model.FEASIBLE}:
            return None
        return lambda expr: expr if isinstance(expr, int) else int(solver.value(expr))

    def built(self, at: Where) -> bytes:
        """Return the model with the sizes of a solution."""
        outputs = [value for value in self.values if value.name not in self.read]
        nodes = [
            helper.make_node(
                node.kind,
                node.inputs,
                node.outputs,
                f"{node.outputs[0]}.{node.kind}",
                domain=node.domain,
                **{name: _resolved(value, at) for name, value in node.attributes.items()},
            )
            for node in self.nodes
        ]
        graph = helper.make_graph(
            nodes,
            "generated",
            [_info(value, at) for value in self.inputs],
            [_info(value, at) for value in outputs],
            [numpy_helper.from_array(np.asarray(make(at)), name) for name, make in self.stated],
        )
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
        return bytes(model.SerializeToString(deterministic=True))


def _resolved(value: Any, at: Where) -> Any:
    if isinstance(value, (list, tuple)):
        return [_resolved(item, at) for item in value]
    return value if isinstance(value, (int, float, str, bytes, onnx.GraphProto)) else at(value)


def _info(value: Value, at: Where) -> Any:
    element = helper.np_dtype_to_tensor_dtype(np.dtype(value.dtype))
    return helper.make_tensor_value_info(value.name, element, [at(dim) for dim in value.dims])
