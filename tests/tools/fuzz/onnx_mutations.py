"""Changes to valid ONNX models that keep them readable as protobuf, and wrong in ways that files can be wrong."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

__all__ = ["mutated"]

_NUMBERS = (-(2**63), -(2**31), -2, -1, 0, 1, 2, 3, 7, 2**15, 2**31 - 1, 2**31, 2**40, 2**62, 2**63 - 1)
_NAMES = (
    "", " ", "x", "a\nb", 'quo"te', "<script>alert(1)</script>", "\x1b[31m", "\u202e", "n" * 5000, "../../x", "\x00",
)  # fmt: skip
_TYPES = (
    "Add", "Conv", "Concat", "Split", "Slice", "Reshape", "Gemm", "MatMul", "If", "Loop", "Scan", "Constant", "Resize",
    "Pad", "Gather", "ConstantOfShape", "Expand", "Tile", "Range", "NonZero", "LSTM", "Einsum", "QLinearConv", "Relu",
    "SequenceInsert", "Optional", "TopK", "Identity", "Transpose", "ReduceSum", "Squeeze", "Unsqueeze", "Foo", "",
    "MaxPool", "ConvTranspose", "DepthToSpace", "BatchNormalization", "Softmax", "DequantizeLinear", "Attention",
)  # fmt: skip
_LOCATIONS = ("../secret", "/etc/passwd", "C:\\x", "a\x00b", "", ".", "model.onnx", "a/../../b", "x" * 300)


def mutated(data: bytes, rng: random.Random) -> bytes:
    """Return the model in ``data`` with a few changes; what cannot be parsed is changed byte by byte."""
    import onnx

    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except Exception:
        return _bytes_changed(data, rng)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        graph = _any_graph(model, rng)
        try:
            rng.choice(_MUTATIONS)(model, graph, rng)
        except Exception:  # noqa: S112 - protobuf raises types of its own where a change is not possible
            continue
    result = bytes(model.SerializeToString(deterministic=True))
    return _bytes_changed(result, rng) if rng.random() < 0.15 else result


def _bytes_changed(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    if not changed:
        return b"\x00"
    kind = rng.randrange(4)
    if kind == 0:
        return bytes(changed[: rng.randrange(len(changed))])
    if kind == 1:
        start = rng.randrange(len(changed))
        return bytes(changed[:start] + changed[rng.randrange(len(changed)) :])
    for _ in range(rng.choice((1, 2, 8))):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


def _any_graph(model: Any, rng: random.Random) -> Any:
    graphs = [model.graph]
    for graph in graphs:
        for node in graph.node:
            graphs.extend(attribute.g for attribute in node.attribute if attribute.HasField("g"))
        if len(graphs) > 20:
            break
    return rng.choice(graphs)


def _tensor_names(graph: Any) -> list[str]:
    names = [value.name for value in graph.input] + [value.name for value in graph.initializer]
    return (names + [name for node in graph.node for name in node.output]) or ["x"]


def _name(graph: Any, rng: random.Random) -> str:
    return rng.choice(_NAMES) if rng.random() < 0.2 else rng.choice(_tensor_names(graph))


def _drop_node(_: Any, graph: Any, rng: random.Random) -> None:
    del graph.node[rng.randrange(len(graph.node))]


def _repeat_node(_: Any, graph: Any, rng: random.Random) -> None:
    graph.node.add().CopyFrom(rng.choice(graph.node))


def _swap_nodes(_: Any, graph: Any, rng: random.Random) -> None:
    nodes = list(graph.node)
    rng.shuffle(nodes)
    copies = [type(node)() for node in nodes]
    for copy, node in zip(copies, nodes, strict=True):
        copy.CopyFrom(node)
    del graph.node[:]
    graph.node.extend(copies)


def _rewire(_: Any, graph: Any, rng: random.Random) -> None:
    node = rng.choice(graph.node)
    names = node.input if rng.random() < 0.7 else node.output
    names[rng.randrange(len(names))] = _name(graph, rng)


def _add_operand(_: Any, graph: Any, rng: random.Random) -> None:
    node = rng.choice(graph.node)
    (node.input if rng.random() < 0.6 else node.output).append(_name(graph, rng))


def _drop_operand(_: Any, graph: Any, rng: random.Random) -> None:
    node = rng.choice(graph.node)
    names = node.input if rng.random() < 0.6 else node.output
    del names[rng.randrange(len(names))]


def _retype(_: Any, graph: Any, rng: random.Random) -> None:
    node = rng.choice(graph.node)
    node.op_type = rng.choice(_TYPES)
    if rng.random() < 0.2:
        node.domain = rng.choice(("", "ai.onnx", "com.microsoft", "ai.onnx.ml", "local", "\n"))


def _rename(_: Any, graph: Any, rng: random.Random) -> None:
    rng.choice(graph.node).name = rng.choice((*_NAMES, rng.choice(graph.node).name))


def _attribute(_: Any, graph: Any, rng: random.Random) -> None:
    node = rng.choice([node for node in graph.node if node.attribute] or list(graph.node))
    if not node.attribute or rng.random() < 0.2:
        added = node.attribute.add()
        added.name = rng.choice(("axis", "axes", "pads", "strides", "kernel_shape", "group", "to", "perm", "auto_pad"))
        added.type = 2
        added.i = rng.choice(_NUMBERS)
        return
    attribute = rng.choice(node.attribute)
    kind = rng.randrange(7)
    if kind == 0:
        node.attribute.remove(attribute)
    elif kind == 1:
        attribute.type = rng.randrange(0, 15)
    elif kind == 2 and attribute.ints:
        attribute.ints[rng.randrange(len(attribute.ints))] = rng.choice(_NUMBERS)
    elif kind == 3:
        attribute.ints.extend([rng.choice(_NUMBERS)] * rng.choice((1, 2, 50)))
    elif kind == 4:
        attribute.s = rng.choice((b"", b"SAME_UPPER", b"VALID", b"\xff\xfe", b"NOTSET", b"reflect"))
    elif kind == 5:
        attribute.name = rng.choice((*_NAMES, "axis", "value"))
    else:
        attribute.i = rng.choice(_NUMBERS)


def _dims(_: Any, graph: Any, rng: random.Random) -> None:
    if graph.initializer and rng.random() < 0.5:
        tensor = rng.choice(graph.initializer)
        if tensor.dims and rng.random() < 0.7:
            tensor.dims[rng.randrange(len(tensor.dims))] = rng.choice(_NUMBERS)
        else:
            tensor.dims.extend([rng.choice(_NUMBERS)] * rng.choice((1, 1, 40)))
        return
    value = rng.choice([*graph.input, *graph.output, *graph.value_info])
    shape = value.type.tensor_type.shape
    if shape.dim and rng.random() < 0.8:
        dim = rng.choice(shape.dim)
        if rng.random() < 0.3:
            dim.dim_param = rng.choice((*_NAMES, "N", "N*2"))
        else:
            dim.dim_value = rng.choice(_NUMBERS)
    else:
        shape.dim.add().dim_value = rng.choice(_NUMBERS)


def _element_type(_: Any, graph: Any, rng: random.Random) -> None:
    if graph.initializer and rng.random() < 0.5:
        rng.choice(graph.initializer).data_type = rng.choice((*range(25), 99, -1, 2**31 - 1))
        return
    value = rng.choice([*graph.input, *graph.output, *graph.value_info])
    if rng.random() < 0.2:
        value.type.sequence_type.elem_type.tensor_type.elem_type = 1
    else:
        value.type.tensor_type.elem_type = rng.choice((*range(25), 99))


def _payload(_: Any, graph: Any, rng: random.Random) -> None:
    tensor = rng.choice(graph.initializer)
    kind = rng.randrange(4)
    if kind == 0:
        tensor.raw_data = tensor.raw_data[: rng.randrange(len(tensor.raw_data) + 1)]
    elif kind == 1:
        tensor.data_location = 1
        entry = tensor.external_data.add()
        entry.key, entry.value = "location", rng.choice(_LOCATIONS)
        for key in ("offset", "length"):
            if rng.random() < 0.5:
                entry = tensor.external_data.add()
                entry.key, entry.value = key, str(rng.choice(_NUMBERS))
    elif kind == 2:
        tensor.name = _name(graph, rng)
    else:
        tensor.float_data.extend([1.0] * rng.choice((1, 100)))


def _interface(_: Any, graph: Any, rng: random.Random) -> None:
    values = rng.choice((graph.input, graph.output, graph.value_info))
    kind = rng.randrange(3)
    if kind == 0:
        del values[rng.randrange(len(values))]
    elif kind == 1:
        values.add().name = _name(graph, rng)
    else:
        rng.choice(values).name = _name(graph, rng)


def _versions(model: Any, _: Any, rng: random.Random) -> None:
    if rng.random() < 0.5:
        model.ir_version = rng.choice((-1, 0, 1, 3, 4, 8, 10, 11, 12, 13, 99, 2**31))
    elif model.opset_import and rng.random() < 0.8:
        rng.choice(model.opset_import).version = rng.choice((-1, 0, 1, 6, 7, 9, 11, 13, 17, 21, 24, 999, 2**40))
    else:
        del model.opset_import[:]


def _function(model: Any, graph: Any, rng: random.Random) -> None:
    function = model.functions.add()
    function.name = function.domain = "local"
    function.opset_import.add().version = 17
    node = function.node.add()
    node.CopyFrom(rng.choice(graph.node))
    if rng.random() < 0.5:
        node.op_type = node.domain = "local"
    function.input.extend(node.input)
    function.output.extend(node.output)
    user = rng.choice(graph.node)
    user.op_type = user.domain = "local"
    model.opset_import.add().domain = "local"


def _nest(_: Any, graph: Any, rng: random.Random) -> None:
    inner = type(graph)()
    inner.CopyFrom(graph)
    for _step in range(rng.choice((1, 1, 3, 30))):
        node = graph.node.add()
        node.op_type = rng.choice(("If", "Loop", "Scan"))
        node.input.append(_name(graph, rng))
        node.output.append(rng.choice(("y", "fresh")))
        body = node.attribute.add()
        body.name, body.type = rng.choice(("then_branch", "else_branch", "body")), 5
        body.g.CopyFrom(inner)
        graph = body.g


_MUTATIONS: tuple[Callable[[Any, Any, random.Random], None], ...] = (
    _drop_node, _repeat_node, _swap_nodes, _rewire, _rewire, _add_operand, _drop_operand, _retype, _rename,
    _attribute, _attribute, _attribute, _dims, _dims, _element_type, _payload, _interface, _versions, _function, _nest,
)  # fmt: skip
