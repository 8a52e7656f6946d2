"""Small decoders with caches, in the forms in which exporters write them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

HEADS, DEPTH, WORDS = 2, 4, 11
WIDTH = HEADS * DEPTH


@dataclass
class _Net:
    nodes: list[NodeProto] = field(default_factory=list)
    constants: list[TensorProto] = field(default_factory=list)
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def op(self, kind: str, *inputs: str, name: str = "", domain: str = "", **attributes: Any) -> str:
        output = name or f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [output], domain=domain, **attributes))
        return output

    def integers(self, *numbers: int) -> str:
        return self._constant(np.array(numbers, np.int64))

    def number(self, number: float) -> str:
        return self._constant(np.array(number, np.float32))

    def weight(self, *shape: int) -> str:
        return self._constant(self.rng.standard_normal(shape).astype(np.float32))

    def _constant(self, array: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        return name


def decoder(
    *,
    layers: int = 2,
    tokens_first: bool = False,
    mask: str | None = None,
    length: str | int = "length",
    identity: bool = False,
    branch: bool = False,
    turned: bool = False,
    handed: str | None = None,
    opset: int = 17,
) -> ModelProto:
    """Return a decoder: embedded tokens, attention to all tokens so far, the words' scores of every token.

    Args:
        tokens_first: Caches are [batch, tokens, heads, depth]; else heads come first.
        mask: The name of the dimension of an input that masks past and new tokens; None for none.
        length: The dimension of new tokens.
        identity: Caches become outputs by an Identity.
        branch: Values are read in the bodies of an If as well.
        turned: The number of tokens is taken from transposed keys.
        handed: What hands a cache on before new tokens are put behind it: "Identity", or "Concat" as PyTorch exports
            the first update of an empty cache.
    """
    net = _Net()
    inputs = [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", length])]
    outputs: list[str] = []
    if mask is not None:
        inputs.append(helper.make_tensor_value_info("attention_mask", TensorProto.INT64, ["batch", mask]))
    axis = 1 if tokens_first else 2
    shape = _shape(tokens_first, "past")
    pasts = [f"past.{layer}.{what}" for layer in range(layers) for what in ("key", "value")]
    inputs += [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in pasts]
    held = [_handed(net, name, handed, axis) for name in pasts]
    start = net.op("Gather", net.op("Shape", held[0]), net.integers(axis), axis=0)
    count = net.op("Gather", net.op("Shape", "input_ids"), net.integers(1), axis=0)
    x = net.op("Gather", net.weight(WORDS, WIDTH), "input_ids")
    places = net.op("Range", *(net.op("Squeeze", one) for one in (start, net.op("Add", start, count))), _one(net))
    x = net.op("Add", x, net.op("Gather", net.weight(64, WIDTH), places))
    for layer in range(layers):
        keys, values = (
            _joined(net, x, (pasts[number], held[number]), axis, identity, tokens_first, outputs)
            for number in (2 * layer, 2 * layer + 1)
        )
        x = net.op("Add", x, _attention(net, x, keys, values, places, tokens_first, mask, branch, turned))
    net.op("MatMul", x, net.weight(WIDTH, WORDS), name="logits")
    results = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", length, WORDS])]
    results += [helper.make_tensor_value_info(name, TensorProto.FLOAT, _shape(tokens_first, "all")) for name in outputs]
    graph = helper.make_graph(net.nodes, "decoder", inputs, results, net.constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def _one(net: _Net) -> str:
    return net.op("Squeeze", net.integers(1))


def _shape(tokens_first: bool, length: str) -> list[str | int]:
    return ["batch", length, HEADS, DEPTH] if tokens_first else ["batch", HEADS, length, DEPTH]


def _heads(net: _Net, x: str, tokens_first: bool) -> str:
    split = net.op("Reshape", net.op("MatMul", x, net.weight(WIDTH, WIDTH)), net.integers(0, 0, HEADS, DEPTH))
    return split if tokens_first else net.op("Transpose", split, perm=[0, 2, 1, 3])


def _handed(net: _Net, past: str, kind: str | None, axis: int) -> str:
    if kind is None:
        return past
    return net.op("Identity", past) if kind == "Identity" else net.op("Concat", net.op("Identity", past), axis=axis)


def _joined(
    net: _Net, x: str, pasts: tuple[str, str], axis: int, identity: bool, tokens_first: bool, outputs: list[str]
) -> str:
    past, held = pasts
    present = past.replace("past", "present")
    outputs.append(present)
    whole = net.op(
        "Concat",
        held,
        _heads(net, x, tokens_first),
        axis=axis if identity else axis - 4,
        name="" if identity else present,
    )
    if identity:
        net.op("Identity", whole, name=present)
    return whole


def _attention(
    net: _Net,
    x: str,
    keys: str,
    values: str,
    places: str,
    tokens_first: bool,
    mask: str | None,
    branch: bool,
    turned: bool,
) -> str:
    queries = _heads(net, x, tokens_first)
    if tokens_first:
        queries, keys, values = (net.op("Transpose", one, perm=[0, 2, 1, 3]) for one in (queries, keys, values))
    across = net.op("Transpose", keys, perm=[0, 1, 3, 2])
    scores = net.op("MatMul", queries, across)
    total = net.op("Gather", net.op("Shape", across if turned else keys), net.integers(3 if turned else 2), axis=0)
    zero = net.op("Squeeze", net.integers(0))
    columns = net.op("Range", zero, net.op("Squeeze", total), _one(net))
    seen = net.op("LessOrEqual", columns, net.op("Unsqueeze", places, net.integers(1)))
    scores = net.op("Where", seen, scores, net.number(-1e9))
    if mask is not None:
        kept = net.op("Unsqueeze", net.op("Cast", "attention_mask", to=TensorProto.BOOL), net.integers(1, 2))
        scores = net.op("Where", kept, scores, net.number(-1e9))
    if branch:
        values = _either(net, values)
    mixed = net.op("MatMul", net.op("Softmax", scores, axis=-1), values)
    joined = net.op("Reshape", net.op("Transpose", mixed, perm=[0, 2, 1, 3]), net.integers(0, 0, WIDTH))
    return net.op("MatMul", joined, net.weight(WIDTH, WIDTH))


def _either(net: _Net, values: str) -> str:
    """Return what both branches of an If read from outside."""
    bodies: dict[str, Any] = {}
    for name, kind in (("then_branch", "Identity"), ("else_branch", "Neg")):
        output = helper.make_tensor_value_info(f"{values}_{name}", TensorProto.FLOAT, None)
        body = [helper.make_node(kind, [values], [output.name])]
        bodies[name] = helper.make_graph(body, name, [], [output])
    first = net.op("ReduceMin", "input_ids", keepdims=0)
    return net.op("If", net.op("GreaterOrEqual", first, net.op("Squeeze", net.integers(0))), **bodies)


def kernel_decoder(*, layers: Sequence[int] = (0, 1)) -> ModelProto:
    """Return a decoder with ONNX Runtime's GroupQueryAttention, which appends to one buffer in place."""
    net = _Net()
    shape: list[str | int] = ["batch", HEADS, "past", 8]
    inputs = [
        helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "length"]),
        helper.make_tensor_value_info("attention_mask", TensorProto.INT64, ["batch", "past + length"]),
    ]
    outputs = []
    width = HEADS * 8
    counted = net.op("ReduceSum", "attention_mask", net.integers(1), keepdims=1)
    last = net.op("Cast", net.op("Sub", counted, net.integers(1)), to=TensorProto.INT32)
    total = net.op("Gather", net.op("Shape", "attention_mask"), net.integers(1), axis=0)
    total = net.op("Cast", total, to=TensorProto.INT32)
    x = net.op("Gather", net.weight(WORDS, width), "input_ids")
    for layer in layers:
        parts = [net.op("MatMul", x, net.weight(width, width)) for _ in range(3)]
        names = [f"{when}.{layer}.{what}" for when in ("past", "present") for what in ("key", "value")]
        inputs += [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in names[:2]]
        outputs += names[2:]
        node = helper.make_node(
            "GroupQueryAttention",
            [*parts, *names[:2], last, total],
            [f"mixed{layer}", *names[2:]],
            domain="com.microsoft",
            num_heads=HEADS,
            kv_num_heads=HEADS,
        )
        net.nodes.append(node)
        x = net.op("Add", x, f"mixed{layer}")
    net.op("MatMul", x, net.weight(width, WORDS), name="logits")
    results = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", "length", WORDS])]
    results += [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", HEADS, "all", 8]) for name in outputs]
    graph = helper.make_graph(net.nodes, "decoder", inputs, results, net.constants)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)
