"""A dynamically quantized model without the rounding of its activations: the same weights, computed in floats.

Such models round each activation by its own range, so that a last bit moves whole steps. How far outputs of a session
are from those of the float twin is how far that rounding takes them.
"""

from __future__ import annotations

from typing import Any, Final

import onnx
from onnx import helper

__all__ = ["float_twin"]

_PRODUCTS: Final = {"MatMulInteger": "MatMul", "ConvInteger": "Conv"}


def float_twin(proto: Any) -> Any | None:
    """Return the twin of a model; None if it rounds no activation so, or by operators that have no twin."""
    kinds = {node.op_type for node in proto.graph.node}
    if "DynamicQuantizeLinear" not in kinds or not kinds & _PRODUCTS.keys():
        return None
    twin = onnx.ModelProto()
    twin.CopyFrom(proto)
    nodes: list[Any] = []
    for node in proto.graph.node:
        if node.op_type == "DynamicQuantizeLinear":
            value, scale, zero = node.output
            nodes.append(helper.make_node("Identity", node.input, [value]))
            nodes += [
                helper.make_node("Constant", [], [name], value_float=given)
                for name, given in ((scale, 1.0), (zero, 0.0))
            ]
        elif node.op_type in _PRODUCTS:
            nodes += _product(node)
        else:
            nodes.append(node)
    del twin.graph.node[:], twin.graph.value_info[:]
    twin.graph.node.extend(nodes)
    return twin


def _product(node: Any) -> list[Any]:
    """Return a product of integers as one of floats: the zero point of the first factor is 0 in the twin."""
    first, second, *zeros = node.input
    name, made = f"{node.output[0]}_float_twin", []
    weight = f"{name}_weight"
    made.append(helper.make_node("Cast", [second], [weight], to=onnx.TensorProto.FLOAT))
    if len(zeros) > 1 and zeros[1]:
        made.append(helper.make_node("Cast", [zeros[1]], [f"{name}_zero"], to=onnx.TensorProto.FLOAT))
        made.append(helper.make_node("Sub", [weight, f"{name}_zero"], [f"{name}_centered"]))
        weight = f"{name}_centered"
    product = helper.make_node(_PRODUCTS[node.op_type], [first, weight], node.output)
    product.attribute.extend(node.attribute)
    return [*made, product]
