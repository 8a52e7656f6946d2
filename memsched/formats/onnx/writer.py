"""Write an ONNX model: the same nodes in another order, and nothing else changed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from onnx import GraphProto, ModelProto, helper

from memsched.base.errors import InternalError, ModelError
from memsched.formats.module import Module
from memsched.formats.onnx.native import OnnxNative
from memsched.formats.onnx.standard import IrVersion
from memsched.formats.onnx.structure import Scope, analyse

__all__ = ["drop_unread", "list_initializers", "native_order", "serialize", "set_metadata"]


def serialize(
    module: Module,
    orders: Mapping[int, Sequence[int]],
    metadata: Mapping[str, str],
    *,
    name_nodes: bool = False,
) -> bytes:
    """Return the bytes of the module's model with its nodes reordered.

    Nodes that compute constants stand directly before the first node that needs them. Where no order changes, no
    node moves and functions are not inlined; when metadata is empty too, the file's own bytes are returned.

    Args:
        orders: Index of a graph in ``module.graphs`` to the order of its ops; absent: as in the file.
        metadata: Added to the model's ``metadata_props``; an entry of the same key is replaced.
        name_nodes: Give every node that is an op the name of its `Op`, so that a runtime's profile can be compared.
            For measuring only: it changes the names of nodes that have none or share one.

    Raises:
        InternalError: An order does not fit its graph.
        ModelError: The result is too large for one protobuf message (2 GB).
    """
    native: OnnxNative = module.native
    changed = {graph: order for graph, order in orders.items() if list(order) != list(range(len(order)))}
    for graph, order in orders.items():
        if sorted(order) != list(range(len(native.nodes[graph]))):
            raise InternalError(f"the order for graph {graph} does not name each of its ops once", code="op-count")
    if not (changed or metadata or name_nodes):
        return native.data
    model = native.scheduled() if changed or name_nodes else native.parse()
    if changed or name_nodes:
        scopes = analyse(model.graph, folded=native.folded)
        _check_same(native, scopes)
        if name_nodes:
            _name_nodes(module, scopes)
        for graph, order in sorted(changed.items()):
            _reorder(scopes, graph, native_order(native, scopes, graph, order))
    set_metadata(model, metadata)
    try:
        result: bytes = model.SerializeToString(deterministic=True)
    except ValueError as error:
        raise ModelError(f"the model cannot be written: {error}", location=module.path, code="unwritable") from error
    return result


def set_metadata(model: ModelProto, metadata: Mapping[str, str]) -> None:
    """Add ``metadata`` to the model's properties in place; entries of the same key are replaced."""
    kept = [(entry.key, entry.value) for entry in model.metadata_props if entry.key not in metadata]
    if metadata:
        del model.metadata_props[:]
        for key, value in (*kept, *metadata.items()):
            model.metadata_props.add(key=key, value=value)


def drop_unread(model: ModelProto, scopes: Sequence[Scope], names: Collection[str]) -> None:
    """Remove those weights of ``names`` in place that nothing reads any more."""
    main = model.graph
    read = {name for node in main.node for name in node.input} | {value.name for value in main.output}
    read.update(name for scope in scopes[1:] for name in scope.free)
    if model.ir_version >= IrVersion.FREE_INITIALIZERS:
        # Here an initializer that is listed as an input is a default that callers may replace.
        read.update(value.name for value in main.input)
    gone = {name for name in names if name not in read}
    for values in (main.initializer, main.input):
        kept = [value for value in values if value.name not in gone]
        if len(kept) < len(values):
            del values[:]
            values.extend(kept)


def list_initializers(graph: GraphProto) -> None:
    """List initializers as inputs in place, as the first versions of the format demand."""
    listed = {value.name for value in graph.input}
    for tensor in graph.initializer:
        if tensor.name not in listed:
            graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))


def native_order(native: OnnxNative, scopes: Sequence[Scope], graph: int, order: Sequence[int]) -> list[int]:
    """Return the node indices of ``graph`` in the order that executes its ops in ``order``.

    Each constant-computing node stands directly before the first node that needs it; those that no node needs come
    last. Among themselves they keep the file's order.
    """
    scope = scopes[graph]
    nodes = scope.graph.node
    producer = {name: node for node in native.constant_nodes[graph] for name in nodes[node].output if name}
    placed: set[int] = set()
    result: list[int] = []
    for op in order:
        node = native.nodes[graph][op]
        needed: list[int] = []
        stack = [node]
        while stack:
            for name in _reads(scopes, scope, stack.pop()):
                source = producer.get(name, -1)
                if source >= 0 and source not in placed:
                    placed.add(source)
                    needed.append(source)
                    stack.append(source)
        result.extend(sorted(needed))
        result.append(node)
    result.extend(node for node in native.constant_nodes[graph] if node not in placed)
    return result


def _reads(scopes: Sequence[Scope], scope: Scope, node: int) -> list[str]:
    names = list(scope.graph.node[node].input)
    for body in scope.bodies.get(node, ()):
        names.extend(scopes[body].free)
    return names


def _reorder(scopes: Sequence[Scope], graph: int, order: Sequence[int]) -> None:
    """Sort the nodes in place: no message is copied, so fields unknown to this version stay."""
    place = [0] * len(order)
    for step, node in enumerate(order):
        place[node] = step
    places = iter(place)
    scopes[graph].graph.node.sort(key=lambda _: next(places))


def _check_same(native: OnnxNative, scopes: Sequence[Scope]) -> None:
    counts = [len(scope.graph.node) for scope in scopes]
    expected = [len(ops) + len(rest) for ops, rest in zip(native.nodes, native.constant_nodes, strict=True)]
    if counts != expected:
        raise InternalError("the model to be written does not hold the nodes that were scheduled", code="nodes-differ")


def _name_nodes(module: Module, scopes: Sequence[Scope]) -> None:
    for graph, scope in enumerate(scopes):
        nodes = scope.graph.node
        for op, node in zip(module.graphs[graph].ops, module.native.nodes[graph], strict=True):
            if nodes[node].name != op.name:
                nodes[node].name = op.name
