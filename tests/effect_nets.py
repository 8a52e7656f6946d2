"""Random models with effects: draws, training mode, states, captures, functions, open batches and special values."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from tests.formats.tflite_builder import O, Sub, T, build, int32s, options
from tests.small_models import floats

__all__ = ["SPECIAL", "draws_of", "onnx_model", "spoiled", "tflite_model"]

SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-40, -1e-42)
ROWS, COLUMNS = 6, 5

_UNARY = ("Relu", "Sigmoid", "Tanh", "Neg", "Abs", "Ceil", "Erf", "Softsign")
_BINARY = ("Add", "Mul", "Sub", "Max", "Min")
_REDUCTIONS = ("ReduceMax", "ReduceMin", "ReduceMean", "ReduceL1")
_MOST_CHANNELS = 16


def spoiled(values: np.ndarray[Any, Any], rng: random.Random) -> np.ndarray[Any, Any]:
    """Return a copy with a few special values in it."""
    found: np.ndarray[Any, Any] = values.copy()
    for _ in range(rng.randint(1, 3)):
        found.flat[rng.randrange(found.size)] = rng.choice(SPECIAL)
    return found


def draws_of(model: Any) -> Counter[str]:
    """Return the ops that draw by type, as often as calls of functions repeat them; knows nothing of memsched."""
    functions = {(one.domain, one.name): one for one in model.functions}

    def of(nodes: Iterable[Any], false: frozenset[str]) -> Counter[str]:
        found: Counter[str] = Counter()
        for node in nodes:
            called = functions.get((node.domain, node.op_type))
            if called is not None:
                found += of(called.node, frozenset())
            trains = node.op_type == "Dropout" and len(node.input) > 2 and node.input[2] not in false
            if trains or node.op_type.startswith("Random") or node.op_type in {"Bernoulli", "Multinomial"}:
                found[node.op_type] += 1
            for attribute in node.attribute:
                if attribute.type == attribute.GRAPH:
                    found += of(attribute.g.node, false)
        return found

    stored = {tensor.name: tensor for tensor in model.graph.initializer}
    flags = {name for name, one in stored.items() if one.data_type == TensorProto.BOOL}
    return of(model.graph.node, frozenset(name for name in flags if not numpy_helper.to_array(stored[name]).any()))


class _OnnxNet:
    """Values [batch, channels, ROWS, COLUMNS] and how they were made."""

    def __init__(self, seed: int) -> None:
        self.rng, self.numbers = random.Random(seed), np.random.default_rng(seed)
        sizes: tuple[int | str, ...] = ("n", "n", 1, 2)
        self.batch = self.rng.choice(sizes)
        self.special = self.rng.random() < 0.5
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self.functions: list[Any] = []
        self.stated: list[Any] = []
        self.values: list[tuple[str, int]] = [("x", self.rng.choice([2, 4]))]

    def name(self, base: str) -> str:
        """Return a new name."""
        return f"{base}{len(self.nodes)}_{len(self.weights)}"

    def pick(self) -> tuple[str, int]:
        """Return one of the latest values, in most cases."""
        return self.rng.choice(self.values[-self.rng.choice([1, 2, 3, 6]) :])

    def constant(self, values: np.ndarray[Any, Any]) -> str:
        """Store a constant."""
        self.weights.append(numpy_helper.from_array(values, name := self.name("w")))
        return name

    def weight(self, *shape: int) -> str:
        """Store random weights, some with special values."""
        values = (self.numbers.normal(size=shape) / 2).astype(np.float32)
        return self.constant(spoiled(values, self.rng) if self.special and self.rng.random() < 0.3 else values)

    def add(self, kind: str, inputs: Sequence[str], outputs: int = 1, **attributes: Any) -> str:
        """Add a node and return its first output."""
        made = self.name(kind.lower())
        names = [made, *(f"{made}_{place}" for place in range(1, outputs))]
        self.nodes.append(helper.make_node(kind, list(inputs), names, f"{made}_n", **attributes))
        return made

    def keep(self, name: str, channels: int) -> None:
        """Make a value one that others may read."""
        self.values.append((name, channels))

    def seed(self, kind: type = float) -> dict[str, Any]:
        """Return the attribute ``seed`` for half of all draws."""
        return {"seed": kind(self.rng.randint(1, 1000))} if self.rng.random() < 0.5 else {}

    # Steps without effects ---------------------------------------------------------------------------------------

    def unary(self) -> None:
        read, channels = self.pick()
        for _ in range(self.rng.choice([1, 1, 2])):  # equal ops, which may become one
            self.keep(self.add(self.rng.choice(_UNARY), [read]), channels)

    def twins(self) -> None:
        read, channels = self.pick()
        kind = self.rng.choice(_UNARY)
        first, second = self.add(kind, [read]), self.add(kind, [read])
        self.keep(self.add("Add", [first, self.add("Tanh", [second])]), channels)

    def binary(self) -> None:
        read, channels = self.pick()
        others = [name for name, count in self.values if count == channels]
        self.keep(self.add(self.rng.choice(_BINARY), [read, self.rng.choice(others)]), channels)

    def conv(self) -> None:
        read, channels = self.pick()
        made, side = self.rng.choice([2, 4, 4 * channels]), self.rng.choice([1, 3])
        made = min(made, _MOST_CHANNELS)
        weight = self.weight(made, channels, side, side)
        self.keep(self.add("Conv", [read, weight], pads=[side // 2] * 4, kernel_shape=[side, side]), made)

    def wide(self) -> None:
        """Make a wide value that waits while others are made, and is reduced again."""
        read, channels = self.pick()
        weight = self.weight(_MOST_CHANNELS, channels, 1, 1)
        first = self.add("Conv", [read, weight], kernel_shape=[1, 1])
        made = self.add(self.rng.choice(_UNARY), [first])
        narrow = self.add("Conv", [made, self.weight(channels, _MOST_CHANNELS, 1, 1)], kernel_shape=[1, 1])
        self.keep(first if self.rng.random() < 0.5 else made, _MOST_CHANNELS)
        self.keep(narrow, channels)

    def pool(self) -> None:
        read, channels = self.pick()
        self.keep(self.add("MaxPool", [read], kernel_shape=[3, 3], pads=[1] * 4), channels)

    def concat(self) -> None:
        (one, first), (two, second) = self.pick(), self.pick()
        if first + second <= _MOST_CHANNELS:
            self.keep(self.add("Concat", [one, two], axis=1), first + second)

    def repeat(self) -> None:
        read, channels = self.pick()
        if channels * 3 <= _MOST_CHANNELS:
            counts = self.constant(np.array([1, 3, 1, 1], np.int64))
            self.keep(self.add("Tile", [read, counts]), channels * 3)

    def softmax(self) -> None:
        read, channels = self.pick()
        self.keep(self.add("Softmax", [read], axis=self.rng.choice([1, 3])), channels)

    def reduce(self) -> None:
        read, channels = self.pick()
        axes = self.rng.choice([[1], [2], [2, 3], [1, 2, 3]])
        made = self.add(self.rng.choice(_REDUCTIONS), [read], axes=axes, keepdims=1)
        self.keep(self.add(self.rng.choice(("Add", "Sub", "Max")), [read, made]), channels)

    def quantize(self) -> None:
        read, channels = self.pick()
        scale = self.constant(np.array(self.rng.choice([0.01, 0.3]), np.float32))
        zero = self.constant(np.array(self.rng.choice([0, 3, 250]), np.uint8))
        made = self.add("QuantizeLinear", [read, scale, zero])
        self.keep(self.add("DequantizeLinear", [made, scale, zero]), channels)

    # Draws -------------------------------------------------------------------------------------------------------

    def like(self) -> None:
        read, channels = self.pick()
        for _ in range(self.rng.choice([1, 1, 2])):  # equal draws, which must stay two
            made = self.add(self.rng.choice(("RandomNormalLike", "RandomUniformLike")), [read], **self.seed())
            self.keep(self.add(self.rng.choice(("Add", "Mul")), [read, made]), channels)

    def bernoulli(self) -> None:
        read, channels = self.pick()
        chance = self.add("Sigmoid", [self.pick()[0] if self.rng.random() < 0.2 else read])
        nodes = self.add("Bernoulli", [chance], **self.seed())
        if self.nodes[-2].input[0] == read:
            self.keep(self.add("Mul", [read, nodes]), channels)
        else:
            self.keep(self.add("ReduceMax", [nodes], axes=[1], keepdims=1), 1)

    def normal(self) -> None:
        read, channels = self.pick()
        made = self.add("RandomNormal", [], shape=[1, channels, 1, 1], **self.seed())
        self.keep(self.add("Add", [read, made]), channels)

    def of_constant(self) -> None:
        read, channels = self.pick()
        chance = self.constant(np.full((1, channels, 1, 1), 0.5, np.float32))
        if self.rng.random() < 0.5:
            made = self.add("Bernoulli", [chance], **self.seed())
        else:
            made = self.add("Dropout", [chance, self.ratio(), self.flag(True)], 1, **self.seed(int))
        self.keep(self.add("Mul", [read, made]), channels)

    def ratio(self) -> str:
        return self.constant(np.array(0.4, np.float32))

    def flag(self, value: bool) -> str:
        if self.rng.random() < 0.5:
            return self.constant(np.array(value))
        tensor = numpy_helper.from_array(np.array(value), "flag")
        return self.add("Constant", [], value=tensor) if value else self.constant(np.array(value))

    def dropout(self) -> None:
        read, channels = self.pick()
        trains, masked = self.rng.random() < 0.75, self.rng.random() < 0.5
        made = self.add("Dropout", [read, self.ratio(), self.flag(trains)], 1 + masked, **self.seed(int))
        if masked:
            mask = self.add("Cast", [f"{made}_1"], to=TensorProto.FLOAT)
            copies = [self.add("Mul", [self.pick_like(channels), mask]) for _ in range(self.rng.choice([1, 2]))]
            made = self.add("Sub", [made, copies[-1]])
        self.keep(made, channels)

    def pick_like(self, channels: int) -> str:
        return self.rng.choice([name for name, count in self.values if count == channels])

    # Bodies ------------------------------------------------------------------------------------------------------

    def effect(self, read: str, label: str) -> list[Any]:
        """Return nodes that make ``label`` of ``read``, in most cases by a draw."""
        kind = self.rng.choice(["RandomNormalLike", "RandomUniformLike", "Neg", "F"])
        if kind == "F":
            return [helper.make_node(self.function(), [read], [label], domain="mine")]
        if kind == "Neg":
            return [helper.make_node("Neg", [read], [label], f"{label}_n")]
        drawn = helper.make_node(kind, [read], [f"{label}_d"], f"{label}_dn", **self.seed())
        return [drawn, helper.make_node("Add", [read, f"{label}_d"], [label], f"{label}_n")]

    def function(self) -> str:
        """Return the name of a function that draws, by itself or through another one."""
        imports = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
        if not self.functions:
            nodes = [helper.make_node("RandomNormalLike", ["a"], ["d"]), helper.make_node("Mul", ["a", "d"], ["b"])]
            self.functions.append(helper.make_function("mine", "F0", ["a"], ["b"], nodes, imports))
        elif len(self.functions) < 3 and self.rng.random() < 0.5:
            inner = self.functions[-1].name
            nodes = [
                helper.make_node(inner, ["a"], ["c"], domain="mine"),
                helper.make_node(inner, ["c"], ["b"], domain="mine"),
            ]
            self.functions.append(helper.make_function("mine", f"F{len(self.functions)}", ["a"], ["b"], nodes, imports))
        return str(self.rng.choice(self.functions).name)

    def call(self) -> None:
        read, channels = self.pick()
        made = self.name("call")
        self.nodes.append(helper.make_node(self.function(), [read], [made], f"{made}_n", domain="mine"))
        self.keep(made, channels)

    def branch(self) -> None:
        read, channels = self.pick()
        mean = self.add("ReduceMean", [self.pick()[0]], keepdims=0)
        condition = self.add("Greater", [mean, self.constant(np.array(0.1, np.float32))])
        label = self.name("branch")
        bodies = {}
        for side in ("then_branch", "else_branch"):
            made = f"{label}_{side}"
            shape = [self.batch, channels, ROWS, COLUMNS]
            bodies[side] = helper.make_graph(self.effect(read, made), made, [], [floats(made, shape)])
        self.nodes.append(helper.make_node("If", [condition], [label], f"{label}_n", **bodies))
        self.keep(label, channels)

    def loop(self) -> None:
        read, channels = self.pick()
        label, other = self.name("loop"), self.pick_like(channels)
        shape = [self.batch, channels, ROWS, COLUMNS]
        nodes = [
            *self.effect(f"{label}_c", f"{label}_e"),
            helper.make_node("Add", [f"{label}_e", other], [f"{label}_o"], f"{label}_on"),
            helper.make_node("Identity", [f"{label}_k"], [f"{label}_g"], f"{label}_gn"),
        ]
        scalar = helper.make_tensor_value_info
        body = helper.make_graph(
            *(nodes, f"{label}_body"),
            [scalar(f"{label}_i", 7, []), scalar(f"{label}_k", 9, []), floats(f"{label}_c", shape)],
            [scalar(f"{label}_g", 9, []), floats(f"{label}_o", shape)],
        )
        count = self.constant(np.array(self.rng.choice([1, 2, 3]), np.int64))
        self.nodes.append(helper.make_node("Loop", [count, "", read], [label], f"{label}_n", body=body))
        self.stated.append(floats(label, shape))
        self.keep(label, channels)

    def scan(self) -> None:
        read, channels = self.pick()
        label = self.name("scan")
        one = [self.batch, ROWS, COLUMNS]
        body = helper.make_graph(
            self.effect(f"{label}_i", f"{label}_o"),
            *(f"{label}_body", [floats(f"{label}_i", one)], [floats(f"{label}_o", one)]),
        )
        axes: dict[str, Any] = {"scan_input_axes": [1], "scan_output_axes": [1], "num_scan_inputs": 1}
        self.nodes.append(helper.make_node("Scan", [read], [label], f"{label}_n", body=body, **axes))
        self.keep(label, channels)


_PURE_STEPS = (
    "unary",
    "twins",
    "binary",
    "conv",
    "wide",
    "wide",
    "pool",
    "concat",
    "repeat",
    "softmax",
    "reduce",
    "quantize",
)
_EFFECT_STEPS = ("like", "bernoulli", "normal", "of_constant", "dropout", "dropout", "call", "branch", "loop", "scan")


def onnx_model(seed: int) -> Any:
    """Return a random model of input x; some have an open batch "n"."""
    net = _OnnxNet(seed)
    channels = net.values[0][1]
    for _ in range(net.rng.randint(5, 11)):
        getattr(net, net.rng.choice(_PURE_STEPS if net.rng.random() < 0.6 else _EFFECT_STEPS))()
    read = {name for node in net.nodes for name in node.input}
    loose = [one for one in net.values[1:] if one[0] not in read] or net.values[-1:]
    outputs = []
    for name, count in loose:
        if net.rng.random() < 0.6 and name != loose[-1][0]:
            made = net.add("ReduceMax", [name], axes=[1, 2, 3], keepdims=1)
            outputs.append(floats(made, [net.batch, 1, 1, 1]))
        else:
            outputs.append(floats(name, [net.batch, count, ROWS, COLUMNS]))
    if net.rng.random() < 0.2:
        for node in net.nodes:
            node.ClearField("name")
    inputs = [floats("x", [net.batch, channels, ROWS, COLUMNS])]
    given = {value.name for value in outputs}
    stated = [value for value in net.stated if value.name not in given]
    graph = helper.make_graph(net.nodes, "effects", inputs, outputs, net.weights, value_info=stated)
    imports = [helper.make_opsetid("", 17), *([helper.make_opsetid("mine", 1)] if net.functions else [])]
    return helper.make_model(graph, opset_imports=imports, ir_version=9, functions=net.functions)


# TFLite ----------------------------------------------------------------------------------------------------------


class _TfliteNet:
    """Values [batch, ROWS, COLUMNS, channels] and how they were made."""

    def __init__(self, seed: int) -> None:
        self.rng, self.numbers = random.Random(seed), np.random.default_rng(seed)
        self.open = self.rng.random() < 0.5
        self.special = self.rng.random() < 0.3
        self.tensors: list[T] = []
        self.ops: list[O] = []
        self.bodies: list[Sub] = []
        self.states = 0
        self.values = [(self.tensor(4), 4)]

    def tensor(self, channels: int) -> int:
        shape = (1, ROWS, COLUMNS, channels)
        signature = (-1, *shape[1:]) if self.open else None
        self.tensors.append(T(f"t{len(self.tensors)}", shape, signature=signature))
        return len(self.tensors) - 1

    def constant(self, values: np.ndarray[Any, Any], dtype: str = "FLOAT32") -> int:
        self.tensors.append(T(f"c{len(self.tensors)}", values.shape, dtype, data=values.tobytes()))
        return len(self.tensors) - 1

    def weight(self, *shape: int) -> int:
        values = (self.numbers.normal(size=shape) / 2).astype(np.float32)
        return self.constant(spoiled(values, self.rng) if self.special and self.rng.random() < 0.3 else values)

    def pick(self) -> tuple[int, int]:
        return self.rng.choice(self.values[-self.rng.choice([1, 2, 3, 6]) :])

    def unary(self) -> None:
        read, channels = self.pick()
        made = self.tensor(channels)
        self.ops.append(O(self.rng.choice(("RELU", "TANH", "LOGISTIC", "NEG", "ABS")), [read], [made]))
        self.values.append((made, channels))

    def binary(self) -> None:
        read, channels = self.pick()
        other = self.rng.choice([tensor for tensor, count in self.values if count == channels])
        kind, table = self.rng.choice((("ADD", "AddOptions"), ("MUL", "MulOptions"), ("MAXIMUM", None)))
        self._add(kind, [read, other], channels, options(table) if table else None)

    def _add(self, kind: str, inputs: Sequence[int], channels: int, table: Any = None) -> int:
        made = self.tensor(channels)
        self.ops.append(O(kind, inputs, [made], table))
        self.values.append((made, channels))
        return made

    def conv(self) -> None:
        read, channels = self.pick()
        made, side = self.rng.choice([2, 4, 16]), self.rng.choice([1, 3])
        table = options("Conv2DOptions", padding=0, strideH=1, strideW=1, dilationHFactor=1, dilationWFactor=1)
        self._add("CONV_2D", [read, self.weight(made, side, side, channels), self.weight(made)], made, table)

    def pool(self) -> None:
        read, channels = self.pick()
        table = options("Pool2DOptions", padding=0, strideH=1, strideW=1, filterHeight=3, filterWidth=3)
        self._add(self.rng.choice(("MAX_POOL_2D", "AVERAGE_POOL_2D")), [read], channels, table)

    def concat(self) -> None:
        (one, first), (two, second) = self.pick(), self.pick()
        if first + second <= 2 * _MOST_CHANNELS:
            self._add("CONCATENATION", [one, two], first + second, options("ConcatenationOptions", axis=3))

    def softmax(self) -> None:
        read, channels = self.pick()
        self._add("SOFTMAX", [read], channels, options("SoftmaxOptions", beta=1.0))

    def draw(self) -> None:
        read, channels = self.pick()
        self.tensors.append(T(f"r{len(self.tensors)}", (1, ROWS, COLUMNS, channels)))
        made = len(self.tensors) - 1
        shape = self.constant(np.array([1, ROWS, COLUMNS, channels], np.int32), "INT32")
        self.ops.append(O(self._kind(), [shape], [made], self._seeds()))
        self._add("ADD", [read, made], channels, options("AddOptions"))

    def _kind(self) -> str:
        return self.rng.choice(("RANDOM_UNIFORM", "RANDOM_STANDARD_NORMAL"))

    def _seeds(self) -> Any:
        seeded = self.rng.random() < 0.5
        return options("RandomOptions", seed=self.rng.randint(1, 99) if seeded else 0, seed2=3 if seeded else 0)

    def state(self) -> None:
        """Read a variable, write what was added to it, and read it again; the order decides what is seen."""
        read, channels = self.pick()
        self.open = False
        shape, name = (1, ROWS, COLUMNS, channels), f"state{self.states}".encode()
        self.states += 1
        handle = options("VarHandleOptions", sharedName=name)
        self.tensors.append(T(f"h{len(self.tensors)}", (), "RESOURCE"))
        resource = len(self.tensors) - 1
        self.ops.append(O("VAR_HANDLE", [], [resource], handle))
        begin = self.constant(np.zeros(shape, np.float32))
        if self.rng.random() < 0.5:
            self.ops.append(O("ASSIGN_VARIABLE", [resource, begin], [], options("AssignVariableOptions")))
        else:
            self._begin(handle, shape)
        old = self._add("READ_VARIABLE", [resource], channels, options("ReadVariableOptions"))
        new = self._add("ADD", [old, read], channels, options("AddOptions"))
        self.ops.append(O("ASSIGN_VARIABLE", [resource, new], [], options("AssignVariableOptions")))
        self._add("READ_VARIABLE", [resource], channels, options("ReadVariableOptions"))

    def _begin(self, handle: Any, shape: Sequence[int]) -> None:
        zero = T("zero", shape, data=bytes(4 * int(np.prod(shape))))
        assign = O("ASSIGN_VARIABLE", [0, 1], [], options("AssignVariableOptions"))
        self.bodies.append(Sub([T("h", (), "RESOURCE"), zero], [O("VAR_HANDLE", [], [0], handle), assign], [], []))
        once = options("CallOnceOptions", initSubgraphIndex=len(self.bodies))
        self.ops.insert(0, O("CALL_ONCE", [], [], once))

    def branch(self) -> None:
        read, channels = self.pick()
        shape = (1, ROWS, COLUMNS, channels)
        self.open = False
        axes = self.constant(np.arange(4, dtype=np.int32), "INT32")
        names = (("most", "FLOAT32"), ("which", "BOOL"))
        most, which = len(self.tensors), len(self.tensors) + 1
        self.tensors += [T(f"{name}{most}", (), dtype) for name, dtype in names]
        self.ops.append(O("REDUCE_MAX", [read, axes], [most], options("ReducerOptions", keepDims=False)))
        limit = self.constant(np.array(0.7, np.float32))
        self.ops.append(O("GREATER", [most, limit], [which], options("GreaterOptions")))
        draws = Sub(
            [T("a", shape), T("s", (4,), "INT32", int32s(*shape)), T("r", shape), T("b", shape)],
            [O(self._kind(), [1], [2], self._seeds()), O("ADD", [0, 2], [3], options("AddOptions"))],
            *([0], [3]),
        )
        plain = Sub([T("a", shape), T("b", shape)], [O("NEG", [0], [1])], [0], [1])
        self.bodies += [draws, plain] if self.rng.random() < 0.5 else [plain, draws]
        number = len(self.bodies)
        table = options("IfOptions", thenSubgraphIndex=number - 1, elseSubgraphIndex=number)
        self._add("IF", [which, read], channels, table)


_TFLITE_PURE = ("unary", "binary", "conv", "conv", "pool", "concat", "softmax")
_TFLITE_EFFECTS = ("draw", "state", "branch")


def tflite_model(seed: int) -> bytes:
    """Return a random TFLite model of one input."""
    net = _TfliteNet(seed)
    for _ in range(net.rng.randint(5, 10)):
        getattr(net, net.rng.choice(_TFLITE_PURE if net.rng.random() < 0.65 else _TFLITE_EFFECTS))()
    if not net.open:
        for tensor in net.tensors:
            tensor.signature = None
    read = {tensor for op in net.ops for tensor in op.inputs}
    loose = [tensor for tensor, _ in net.values[1:] if tensor not in read] or [net.values[-1][0]]
    return build(Sub(net.tensors, net.ops, [0], loose), *net.bodies)
