"""Parts of an ONNX model as models of their own, with no constants but those that they read, cut to what they read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper
from onnx.external_data_helper import load_external_data_for_tensor

from memsched.base.errors import ModelError
from memsched.formats.module import Module
from memsched.formats.onnx import external
from memsched.formats.onnx.constants import OnnxConstants
from memsched.formats.onnx.light import constant_bytes
from memsched.formats.onnx.nodes import NodeFactory, opset
from memsched.formats.onnx.standard import IrVersion
from memsched.formats.onnx.structure import Scope, analyse
from memsched.formats.onnx.types import element_type, tensor_bytes
from memsched.formats.onnx.writer import set_metadata
from memsched.formats.segment import SegmentModel
from memsched.graph.model import Graph, Tensor

__all__ = ["PartsWriter"]


class PartsWriter:
    """Writes graphs whose ops are, or are made from, those of the main graph of ``module``."""

    def __init__(self, module: Module) -> None:
        self._path = module.path
        self._model: ModelProto = module.native.scheduled()
        self._version = opset(self._model)
        self._scopes = analyse(self._model.graph)
        main = self._model.graph
        self._nodes: list[NodeProto] = [main.node[node] for node in module.native.nodes[0]]
        self._places: tuple[int, ...] = module.native.nodes[0]
        self._pieces = NodeFactory(module.graphs[0], self._nodes, self._version)
        self._stored: dict[str, TensorProto] = {tensor.name: tensor for tensor in main.initializer}
        self._sparse = {tensor.values.name: tensor for tensor in main.sparse_initializer}
        self._producer: dict[str, int] = {}
        for place in module.native.constant_nodes[0]:
            self._add_producer(place, main.node[place])

    def _add_producer(self, place: int, node: NodeProto) -> None:
        """Note which node makes a constant; one that holds it is an initializer, which can be cut."""
        for attribute in node.attribute:
            if node.op_type == "Constant" and attribute.name == "value":
                attribute.t.name = node.output[0]
                self._stored[node.output[0]] = attribute.t
                return
        self._producer.update((name, place) for name in node.output if name)

    def constant_bytes(self) -> dict[int, dict[int, int]]:
        """Return per op of the main graph the bytes of the constants that the file holds, by the input's position."""
        found: dict[int, dict[int, int]] = {}
        for op, node in enumerate(self._nodes):
            stored = {place: self._stored[name] for place, name in enumerate(node.input) if name in self._stored}
            found[op] = {place: tensor_bytes(one.data_type, one.dims) for place, one in stored.items()}
        return found

    def write(self, graph: Graph, parts: Sequence[int], metadata: Mapping[str, str]) -> SegmentModel:
        """Return the model of ``graph``, whose ops are executed as they stand.

        Args:
            graph: Ops as `memsched.graph.model.Op` describes them, made from ops of the module by name.
            parts: A tensor's type and shape say all of it here.
            metadata: The model's ``metadata_props``.

        Raises:
            InternalError: The graph does not fit the module.
            ModelError: A constant cannot be read or cut, an input or an output is no tensor, or the result is too
                large for one message (2 GB).
        """
        del parts
        model = ModelProto(
            ir_version=max(self._model.ir_version, IrVersion.FREE_INITIALIZERS),
            opset_import=self._model.opset_import,
            functions=self._model.functions,
            producer_name="memsched",
        )
        main = model.graph
        main.name = graph.name
        origins = [self._pieces.origin(op) for op in graph.ops]
        known = self._gather(main, [name for op in origins if op is not None for name in self._reads(op)])
        made = {tensor.name for tensor in graph.tensors}
        scope = Scope(main, -1, -1, "", defined=made | known, constants=known)
        constants = OnnxConstants(self._path, main, scope, self._version)
        steps = [self._pieces.node(graph, op, constants) for op in graph.ops]
        before = [*main.node, *constants.nodes]
        read = {name for node in steps for name in node.input}
        read.update(name for op in origins if op is not None for name in self._captured(op))
        kept = _needed(before, read)
        del main.node[:]
        main.node.extend([*kept, *steps])
        _drop_unread(main, read)
        main.input.extend(_value(graph.tensors[tensor], self._path) for tensor in graph.inputs)
        main.output.extend(_value(graph.tensors[tensor], self._path) for tensor in graph.outputs)
        set_metadata(model, metadata)
        try:
            return SegmentModel(model.SerializeToString(deterministic=True), constant_bytes(main))
        except ValueError as error:
            raise ModelError(
                f"a part of the model cannot be written: {error}", location=self._path, code="unwritable"
            ) from error

    def _reads(self, op: int) -> Iterable[str]:
        yield from self._nodes[op].input
        yield from self._captured(op)

    def _captured(self, op: int) -> Iterable[str]:
        for body in self._scopes[0].bodies.get(self._places[op], ()):
            yield from self._scopes[body].free

    def _gather(self, main: GraphProto, wanted: Iterable[str]) -> set[str]:
        """Add to ``main`` what the constants in ``wanted`` are, or are computed from; return all their names."""
        pending, known, places = list(wanted), set[str](), set[int]()
        while pending:
            name = pending.pop()
            if name in known:
                continue
            if name in self._producer:
                known.add(name)
                if self._producer[name] not in places:
                    places.add(self._producer[name])
                    pending.extend(self._model.graph.node[self._producer[name]].input)
            elif name in self._stored or name in self._sparse:
                known.add(name)
        for name in sorted(known & self._stored.keys()):
            self._add_stored(main, name)
        main.sparse_initializer.extend(self._sparse[name] for name in sorted(known & self._sparse.keys()))
        main.node.extend(self._model.graph.node[place] for place in sorted(places))
        return known

    def _add_stored(self, main: GraphProto, name: str) -> None:
        tensor = main.initializer.add()
        tensor.CopyFrom(self._stored[name])
        if tensor.data_location == TensorProto.EXTERNAL:
            _load(tensor, self._path)


def _load(tensor: TensorProto, path: str) -> None:
    """Take a constant's bytes from the file beside the model that holds them."""
    folder = external.folder_of(path)
    location = next((entry.value for entry in tensor.external_data if entry.key == "location"), "")
    file = external.resolve(folder, location)
    try:
        load_external_data_for_tensor(tensor, str(folder.resolve()))
    except Exception as error:  # missing or too short: each release of onnx raises something else
        raise ModelError(
            f"constant '{tensor.name}' cannot be read from '{file}': {error}", location=path, code="external-data"
        ) from error
    tensor.ClearField("data_location")
    tensor.ClearField("external_data")


def _needed(nodes: Iterable[NodeProto], read: set[str]) -> list[NodeProto]:
    """Return the nodes, in execution order, of which something in ``read`` follows; add what they read to it."""
    kept = []
    for node in reversed(list(nodes)):
        if not read.isdisjoint(node.output):
            kept.append(node)
            read.update(name for name in node.input if name)
    return kept[::-1]


def _drop_unread(main: GraphProto, read: set[str]) -> None:
    """Leave out the weights that only cut parts are left of."""
    kept = [tensor for tensor in main.initializer if tensor.name in read]
    if len(kept) < len(main.initializer):
        del main.initializer[:]
        main.initializer.extend(kept)


def _value(tensor: Tensor, path: str) -> ValueInfoProto:
    element = element_type(tensor.dtype)
    if element == TensorProto.UNDEFINED or tensor.shape is None or not tensor.sized:
        raise ModelError(
            f"'{tensor.name}' is no tensor of known size, so no other device can be given it",
            location=path,
            code="no-size",
        )
    return helper.make_tensor_value_info(tensor.name, element, tensor.shape)
