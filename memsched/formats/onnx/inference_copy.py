"""The copy of a model that ONNX's inference works on: without weights, and without what the inference trips over."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from onnx import GraphProto, ModelProto

from memsched.formats.onnx import folding, twins
from memsched.formats.onnx.light import is_stripped
from memsched.formats.onnx.standard import IrVersion
from memsched.formats.onnx.stated import declare
from memsched.formats.onnx.structure import DEFAULT_DOMAINS, Scope, graphs_like, initializers, sparse_name

__all__ = ["DEFERRED", "defer", "inference_copy"]

DEFERRED: Final = "deferred."
"""Begins the domains of nodes that are hidden until what they read has a type."""


def inference_copy(light: ModelProto, scopes: Sequence[Scope]) -> ModelProto:
    """Return a copy of ``light`` in which constants without values are plain inputs.

    Args:
        scopes: Of ``light``.
    """
    model = ModelProto()
    model.CopyFrom(light)
    # Before version 4 ONNX's inference takes initializers that are no inputs for absent: axes of a Slice, say.
    model.ir_version = max(model.ir_version, IrVersion.FREE_INITIALIZERS)
    imported = {"" if opset.domain == "ai.onnx" else opset.domain for opset in model.opset_import}
    used = {domain for scope in scopes for domain in scope.domains}
    for domain in sorted(used - DEFAULT_DOMAINS - imported):
        model.opset_import.add(domain=domain, version=1)
    for scope, known in zip(graphs_like(model.graph, scopes), scopes, strict=True):
        _drop_constants(scope.graph, scope.parent < 0, computed="Constant" in known.operators)
        _drop_repeated(scope.graph)
    if len(scopes) > 1:
        model.opset_import.add(domain=folding.HIDDEN, version=1)
    if twins.OWN in used:
        twins.take_for_twins(model, [scope.graph for scope in graphs_like(model.graph, scopes)])
    return model


def defer(graphs: Sequence[Scope], model: ModelProto, domains: Collection[str]) -> bool:
    """Hide nodes of ONNX's other domains from its inference, which crashes where they read a value without a type."""
    found = {domain for domain in domains if domain.startswith("ai.onnx.")}
    for domain in sorted(found):
        model.opset_import.add(domain=DEFERRED + domain, version=1)
    for scope in graphs if found else ():
        for node in scope.graph.node:
            if node.domain in found:
                node.domain = DEFERRED + node.domain
    return bool(found)


def _drop_constants(graph: GraphProto, main: bool, *, computed: bool) -> None:
    given = graph.input if main else graph.value_info
    kept = []
    fixed = set(initializers(graph))
    if main and any(value.name in fixed for value in graph.input):
        inputs = [value for value in graph.input if value.name not in fixed]
        del graph.input[:]
        graph.input.extend(inputs)
    for tensor in graph.initializer:
        if is_stripped(tensor):
            declare(given, tensor.name, tensor.data_type, tensor.dims)
        else:
            kept.append(tensor)
    for sparse in graph.sparse_initializer:  # a runtime makes tensors of them
        declare(given, sparse_name(sparse), sparse.values.data_type, sparse.dims)
    del graph.sparse_initializer[:]
    if len(kept) < len(graph.initializer):
        del graph.initializer[:]
        graph.initializer.extend(kept)
    nodes = []
    for node in graph.node if computed else ():
        large = None
        if node.op_type == "Constant" and len(node.output) == 1:
            large = next((item.t for item in node.attribute if item.HasField("t") and is_stripped(item.t)), None)
        if large is not None:
            declare(given, node.output[0], large.data_type, large.dims)
        else:
            nodes.append(node)
    if computed and len(nodes) < len(graph.node):
        del graph.node[:]
        graph.node.extend(nodes)


def _drop_repeated(graph: GraphProto) -> None:
    """Drop declarations without a shape of inputs and outputs: of two, ONNX's inference looks at one alone."""
    apart = {value.name for value in (*graph.input, *graph.output)}
    kept = [value for value in graph.value_info if value.name not in apart or value.type.tensor_type.HasField("shape")]
    if len(kept) < len(graph.value_info):
        del graph.value_info[:]
        graph.value_info.extend(kept)
