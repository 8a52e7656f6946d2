"""Parts of an ONNX model as models of their own, and the stages of a pipeline written into a model's nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import onnx
from onnx import FunctionProto, ModelProto, NodeProto

from memsched.base.errors import InternalError, ModelError
from memsched.formats.module import Module
from memsched.formats.onnx.native import OnnxNative
from memsched.formats.onnx.standard import IrVersion
from memsched.formats.onnx.structure import analyse, domain_of, graphs_of, initializers, sparse_name
from memsched.formats.onnx.value_types import ValueTypes
from memsched.formats.onnx.writer import list_initializers, set_metadata
from memsched.formats.segment import Segment, check_fit

__all__ = ["OnnxCutter", "annotate_stages"]


_CONFIGURATION: Final = "memsched_pipeline"


class OnnxCutter:
    """Makes models of parts of one module.

    What a model says of none of its nodes is kept: producer, properties, device configurations. Training information
    is left out, because it names nodes of the whole model.
    """

    def __init__(self, module: Module) -> None:
        native: OnnxNative = module.native
        self._module = module
        self._model = native.scheduled()
        main = self._model.graph
        self._scopes = analyse(main)
        self._op_nodes = native.nodes[0]
        if len(self._op_nodes) + len(native.constant_nodes[0]) != len(main.node):
            raise InternalError("the model to be cut does not hold the nodes that were read", code="nodes-differ")
        self._constants = self._scopes[0].constants
        self._computed = {name: node for node in native.constant_nodes[0] for name in main.node[node].output if name}
        self._functions = {_key(function): function for function in self._model.functions}
        self._types = ValueTypes(module, main)

    def cut(self, segment: Segment, metadata: Mapping[str, str]) -> bytes:
        """Return what `memsched.formats.segments.extract` returns."""
        check_fit(self._module, segment, self._constants)
        nodes, needed = self._nodes(segment)
        model = self._shell([self._model.graph.node[node] for node in nodes])
        self._fill(model, segment, needed)
        set_metadata(model, metadata)
        try:
            result: bytes = model.SerializeToString(deterministic=True)
        except ValueError as error:
            raise ModelError(f"{self._module.path}: a segment cannot be written: {error}", code="unwritable") from error
        return result

    def _nodes(self, segment: Segment) -> tuple[list[int], set[str]]:
        """Return the nodes of a segment in order and the constants that they, or its outputs, need.

        A node that computes constants stands directly before the first that needs it.
        """
        order: dict[int, None] = {}
        needed: set[str] = set()
        for node in (*(self._op_nodes[op] for op in segment.ops), -1):
            reads = self._reads(node) if node >= 0 else iter(segment.outputs)
            waiting = [name for name in reads if name in self._constants and name not in needed]
            fresh = set()
            while waiting:
                name = waiting.pop()
                if name not in needed:
                    needed.add(name)
                    if name in self._computed:
                        fresh.add(self._computed[name])
                        waiting.extend(self._reads(self._computed[name]))
            order.update(dict.fromkeys(sorted(fresh - order.keys())))
            if node >= 0:
                order[node] = None
        return list(order), needed

    def _reads(self, node: int) -> Iterator[str]:
        scope = self._scopes[0]
        yield from (name for name in scope.graph.node[node].input if name)
        for body in scope.bodies.get(node, ()):
            yield from self._scopes[body].free

    def _shell(self, nodes: Sequence[NodeProto]) -> ModelProto:
        """Return a model of ``nodes`` with the functions and operator sets that they need, its graph else empty."""
        whole, model = self._model, ModelProto()
        for name in ("ir_version", "producer_name", "producer_version", "domain", "model_version", "doc_string"):
            if whole.HasField(name):
                setattr(model, name, getattr(whole, name))
        for name in ("metadata_props", "configuration"):
            if hasattr(whole, name):
                getattr(model, name).extend(getattr(whole, name))
        main = whole.graph
        model.graph.name, model.graph.doc_string = main.name, main.doc_string
        if hasattr(main, "metadata_props"):
            model.graph.metadata_props.extend(main.metadata_props)
        model.graph.node.extend(nodes)
        functions = self._called(model)
        model.functions.extend(functions)
        domains = {domain_of(node) for scope in graphs_of(model.graph) for node in scope.graph.node}
        domains.update(entry.domain for function in functions for entry in function.opset_import)
        # The default one stays even where no node is left of it: a model has to import something.
        domains.update({"", "ai.onnx"})
        model.opset_import.extend(entry for entry in whole.opset_import if entry.domain in domains)
        return model

    def _called(self, model: ModelProto) -> list[FunctionProto]:
        """Return the functions that the nodes of ``model`` call, those that functions call included."""
        if not self._functions:
            return []
        called: set[tuple[str, str, str]] = set()
        waiting = list(_all_nodes(model.graph.node))
        while waiting:
            node = waiting.pop()
            key = (domain_of(node), str(node.op_type), str(node.overload))
            if key in self._functions and key not in called:
                called.add(key)
                waiting.extend(_all_nodes(self._functions[key].node))
        return [function for key, function in self._functions.items() if key in called]

    def _fill(self, model: ModelProto, segment: Segment, needed: set[str]) -> None:
        """Add inputs, outputs, constants and what is known of values to the graph of ``model``."""
        main, graph = self._model.graph, model.graph
        graph.input.extend(self._types.given(name) for name in segment.inputs)
        graph.output.extend(self._types.handed_out(name) for name in segment.outputs)
        outer = {*segment.inputs, *segment.outputs}
        inner = {name: None for node in graph.node for name in node.output if name and name not in outer}
        values = {*inner, *outer}
        annotated = [entry for entry in main.quantization_annotation if entry.tensor_name in values]
        graph.quantization_annotation.extend(annotated)
        needed = needed | {pair.value for entry in annotated for pair in entry.quant_parameter_tensor_names}
        graph.initializer.extend(tensor for tensor in main.initializer if tensor.name in needed)
        graph.sparse_initializer.extend(one for one in main.sparse_initializer if sparse_name(one) in needed)
        # Initializers that are listed as inputs are defaults, which callers may replace.
        stored = set(initializers(graph))
        graph.input.extend(value for value in main.input if value.name in stored)
        if model.ir_version < IrVersion.FREE_INITIALIZERS:
            list_initializers(graph)
        graph.value_info.extend(value for name in inner if (value := self._types.known(name)) is not None)


def _key(function: FunctionProto) -> tuple[str, str, str]:
    return "" if function.domain == "ai.onnx" else function.domain, function.name, function.overload


def _all_nodes(nodes: Sequence[NodeProto]) -> Iterator[NodeProto]:
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                for scope in graphs_of(graph):
                    yield from scope.graph.node


def annotate_stages(module: Module, stages: Sequence[int]) -> bytes:
    """Return what `memsched.formats.segments.annotate_stages` returns."""
    native: OnnxNative = module.native
    if len(stages) != len(native.nodes[0]):
        raise InternalError("the stages to be written do not name one for each op", code="op-count")
    model = native.scheduled()
    if onnx.IR_VERSION < IrVersion.STAGES:
        raise ModelError(
            f"the installed onnx {onnx.__version__} knows no stages of nodes (IR version {IrVersion.STAGES})",
            action="update onnx",
            code="newer-ir-version",
        )
    model.ir_version = max(model.ir_version, IrVersion.STAGES)
    count = max(stages, default=-1) + 1
    model.configuration.add(
        name=_CONFIGURATION, num_devices=count, device=[f"stage_{number}" for number in range(count)]
    )
    for node, stage in zip(native.nodes[0], stages, strict=True):
        model.graph.node[node].device_configurations.add(configuration_id=_CONFIGURATION, pipeline_stage=stage)
    try:
        result: bytes = model.SerializeToString(deterministic=True)
    except ValueError as error:
        raise ModelError(f"the model cannot be written: {error}", location=module.path, code="unwritable") from error
    return result
