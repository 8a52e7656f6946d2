"""Larger models around the operators of one small one: branches, chains, and convolutions on both sides."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.corpus.onnx_corpus import Case

__all__ = ["LAYOUTS", "cell"]

COPIES = 3
_WIDE = 16
_ADDED = {TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT32, TensorProto.INT64}
_OPSET = 21
"""For models that import operators of other domains alone."""


class _Cell:
    """A graph in the making, whose nodes come from a small model, in copies, and from here."""

    def __init__(self, case: Case) -> None:
        self.model = onnx.load_from_string(case.model)
        versions = [opset.version for opset in self.model.opset_import if opset.domain in {"", "ai.onnx"}]
        if not versions:
            self.model.opset_import.append(helper.make_opsetid("", _OPSET))
        self.opset = versions[0] if versions else _OPSET
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.rng = np.random.default_rng(zlib.crc32(case.name.encode()))
        given, made = case.data_sets[0]
        self.given: Mapping[str, Any] = dict(zip((value.name for value in self.model.graph.input), given, strict=False))
        self.made: Mapping[str, Any] = dict(zip((value.name for value in self.model.graph.output), made, strict=False))
        self.first, self.result = self.model.graph.input[0].name, self.model.graph.output[0].name

    def node(self, kind: str, inputs: Sequence[str], count: int = 1, **attributes: Any) -> list[str]:
        names = [f"c{len(self.nodes)}.{place}" for place in range(count)]
        self.nodes.append(helper.make_node(kind, inputs, names, names[0], **attributes))
        return names

    def constant(self, value: Any) -> str:
        name = f"k{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def copy(self, number: int, first: str) -> str:
        """Add the small model's nodes once more, with ``first`` for its first input; return its first output."""
        graph = onnx.GraphProto()
        graph.CopyFrom(self.model.graph)
        prefix = f"n{number}."
        onnx.compose.add_prefix_graph(graph, prefix, inplace=True)
        shared = {prefix + name: name for name in self.given} | {prefix + self.first: first}
        for node in graph.node:
            _rename(node, shared)
        self.nodes += graph.node
        self.constants += graph.initializer
        return f"{prefix}{self.result}"

    def conv(self, value: str, inner: int, outer: int, size: int) -> str:
        weights = self.rng.standard_normal((outer, inner, size, size)) / (inner * size * size) ** 0.5
        return self.node("Conv", [value, self.constant(weights.astype("f"))], pads=[size // 2] * 4)[0]

    def split(self, value: str) -> list[str]:
        size = self.given[self.first].shape[0]
        if self.opset < 13:
            return self.node("Split", [value], COPIES, axis=0, split=[size] * COPIES)
        return self.node("Split", [value, self.constant(np.array([size] * COPIES))], COPIES, axis=0)

    def finished(self, outputs: Mapping[str, int], *, stated: bool) -> tuple[bytes, tuple[Any, ...]] | None:
        """Return the model with its inputs; ``stated``: all but the first input are constants."""
        others = [value for value in self.model.graph.input[1:] if value.name in self.given]
        if stated:
            if any(not isinstance(self.given[value.name], np.ndarray) for value in others):
                return None
            self.constants += [numpy_helper.from_array(self.given[value.name], value.name) for value in others]
            others = []
        made = [helper.make_tensor_value_info(name, element, None) for name, element in outputs.items()]
        inputs = [self.model.graph.input[0], *others]
        graph = helper.make_graph(self.nodes, "cell", inputs, made, self.constants)
        self.model.graph.CopyFrom(graph)
        feeds = tuple(self.given[value.name] for value in inputs)
        return bytes(self.model.SerializeToString(deterministic=True)), feeds


def _rename(node: Any, names: Mapping[str, str]) -> None:
    node.input[:] = [names.get(name, name) for name in node.input]
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                _rename(inner, names)


def cell(case: Case, layout: str) -> tuple[bytes, tuple[Any, ...]] | None:
    """Return a model in ``layout`` with values for its inputs; None where the case's shapes do not allow it."""
    if not case.data_sets:
        return None
    made = _Cell(case) if all(case.data_sets[0]) and all(map(len, case.data_sets[0])) else None
    if made is None or not made.model.graph.input[0].type.HasField("tensor_type"):
        return None
    first, result = made.given.get(made.first), made.made.get(made.result)
    if not isinstance(first, np.ndarray) or not isinstance(result, np.ndarray):
        return None
    if not first.ndim or not result.ndim or not first.size or not result.size:
        return None
    return LAYOUTS[layout](made, first, result)


def _element(info: Any) -> int:
    return int(info.type.tensor_type.elem_type)


def _branches(made: _Cell, first: Any, result: Any) -> tuple[bytes, tuple[Any, ...]] | None:
    """Three times the same beside each other, written level by level; of each but one a small value is left."""
    element = _element(made.model.graph.output[0])
    whole = made.node("Concat", [made.first] * COPIES, axis=0)[0]
    results = [made.copy(number, part) for number, part in enumerate(made.split(whole))]
    wider = [made.node("Concat", [value] * 4, axis=0)[0] for value in results]
    if element in _ADDED:
        wider = [made.node("ReduceMax", [value], keepdims=1)[0] for value in wider]
    joined = made.node("Concat", wider, axis=0)[0]
    return made.finished({joined: element, results[-1]: element}, stated=False)


def _chain(made: _Cell, first: Any, result: Any) -> tuple[bytes, tuple[Any, ...]] | None:
    """Three times the same behind each other, with convolutions between and what was given added at the end."""
    if first.shape != result.shape or first.dtype != result.dtype:
        return None
    element = _element(made.model.graph.output[0])
    value = made.first
    for number in range(COPIES):
        value = made.copy(number, value)
        if element == TensorProto.FLOAT and first.ndim == 4 and first.shape[1] <= _WIDE:
            value = made.conv(value, first.shape[1], first.shape[1], 3)
    if element in _ADDED:
        value = made.node("Add", [value, made.first])[0]
    return made.finished({value: element}, stated=True)


def _wide(made: _Cell, first: Any, result: Any) -> tuple[bytes, tuple[Any, ...]] | None:
    """Convolutions to many channels and back before and behind, beside a branch that waits."""
    pictures = (first, result)
    if any(value.ndim != 4 or value.dtype != np.float32 or value.shape[1] > 4 * _WIDE for value in pictures):
        return None
    inner, outer = first.shape[1], result.shape[1]
    wide = made.conv(made.first, inner, _WIDE, 1)
    value = made.conv(made.node("Relu", [wide])[0], _WIDE, inner, 3)
    value = made.copy(0, value)
    wider = made.node("Relu", [made.conv(value, outer, _WIDE, 3)])[0]
    small = made.node("GlobalAveragePool", [made.conv(wider, _WIDE, outer, 1)])[0]
    value = made.node("Add", [value, small])[0]
    waited = made.node("ReduceMax", [wide], keepdims=1)[0]
    return made.finished({value: TensorProto.FLOAT, waited: TensorProto.FLOAT}, stated=True)


LAYOUTS = {"branches": _branches, "chain": _chain, "wide": _wide}
