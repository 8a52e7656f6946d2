"""Operators of ONNX Runtime's own as ONNX's operators of the same shapes, for inferences that know only the latter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from onnx import GraphProto, ModelProto, NodeProto, helper

from memsched.base.frozen import FrozenValue
from memsched.formats.onnx.structure import DEFAULT_DOMAINS

__all__ = ["OWN", "take_for_twins"]

OWN: Final = "com.microsoft"


class _Twin(FrozenValue, frozen=True):
    """What has the shapes, and the type, of an operator's output.

    Attributes:
        kind: The operator of ONNX's.
        reads: Positions of the operator's inputs that it reads.
        keeps: Attributes that both have.
        lacks: Attributes under which, if they are not 0, shapes are others.
        since: The first version of ONNX's operators that has it.
    """

    kind: str
    reads: tuple[int, ...] | slice = (0,)
    keeps: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    since: int = 1


_ALIKE: Final = _Twin("Relu")
_LAST: Final = ("channels_last",)
_WINDOW: Final = ("auto_pad", "ceil_mode", "dilations", "group", "kernel_shape", "pads", "strides")

_TWINS: Final[Mapping[str, _Twin]] = {
    **dict.fromkeys(("BiasGelu", "BiasSoftmax", "FastGelu", "Gelu", "QuickGelu"), _ALIKE),
    **dict.fromkeys(("QLinearLeakyRelu", "QLinearSigmoid", "QLinearSoftmax"), _ALIKE),
    "DynamicQuantizeMatMul": _Twin("MatMul", (0, 1)),
    "FusedConv": _Twin("Conv", (0, 1), _WINDOW),
    "FusedGemm": _Twin("Gemm", (0, 1), ("transA", "transB"), since=11),
    "FusedMatMul": _Twin("MatMul", (0, 1), lacks=("transA", "transB", "transBatchA", "transBatchB")),
    "QLinearAdd": _Twin("Add", (0, 3), since=7),
    "QLinearMul": _Twin("Mul", (0, 3), since=7),
    "QLinearAveragePool": _Twin("AveragePool", (0,), _WINDOW, _LAST, since=10),
    "QLinearConcat": _Twin("Concat", slice(2, None, 3), ("axis",), since=4),
    "QLinearGlobalAveragePool": _Twin("GlobalAveragePool", lacks=_LAST),
    "QLinearWhere": _Twin("Where", (0, 1, 4), since=9),
}


def take_for_twins(model: ModelProto, graphs: Sequence[GraphProto]) -> None:
    """Put in place, in each of ``graphs`` of ``model``, operators of ONNX's for those of ONNX Runtime's that have one.

    Values are others then, shapes and types are not.
    """
    version = max((opset.version for opset in model.opset_import if opset.domain in DEFAULT_DOMAINS), default=0)
    for graph in graphs:
        for node in graph.node:
            if node.domain == OWN and node.op_type in _TWINS:
                _replace(node, _TWINS[node.op_type], version)


def _replace(node: NodeProto, twin: _Twin, version: int) -> None:
    """Make a node its twin in place, where it has one of these shapes in this version of ONNX's operators."""
    numbers = {attribute.name: attribute.i for attribute in node.attribute}
    other = any(numbers.get(name) for name in twin.lacks)
    if other or version < twin.since or len(node.output) != 1:
        return
    given = list(node.input)
    places = range(len(given))[twin.reads] if isinstance(twin.reads, slice) else twin.reads
    read = [given[at] for at in places if at < len(given)]
    kept = [attribute for attribute in node.attribute if attribute.name in twin.keeps]
    made = helper.make_node(twin.kind, read, list(node.output), node.name)
    made.attribute.extend(kept)
    node.CopyFrom(made)
