"""Write a rewritten main graph as ONNX: pieces and copies of the file's nodes, slices, concatenations and pads.

A rewritten graph names its ops: an op without origin whose name the file knows is that node; one with an origin is a
copy of the origin's node with other tensors and, where they differ, other attributes; anything else is a helper.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from onnx import ModelProto, NodeProto, TensorProto, helper

from memsched.base.errors import InternalError, ModelError
from memsched.formats.module import Module
from memsched.formats.onnx.borders import removed_names, state_border, state_chains
from memsched.formats.onnx.constants import OnnxConstants
from memsched.formats.onnx.dimensions import fix, has_open
from memsched.formats.onnx.native import OnnxNative
from memsched.formats.onnx.nodes import NodeFactory, opset
from memsched.formats.onnx.scaled_weights import scale_weights
from memsched.formats.onnx.standard import IrVersion, Opset
from memsched.formats.onnx.structure import Scope, analyse
from memsched.formats.onnx.writer import drop_unread, list_initializers, native_order, set_metadata
from memsched.graph.dialect import AddWords, Attributes, Dialect, Pads, SteppedWords
from memsched.graph.model import AttributeValue, Graph, Op
from memsched.ops.table import families

__all__ = ["COPY_ATTRIBUTE", "dialect", "serialize", "serialize_scaled"]

COPY_ATTRIBUTE: Final = "__memsched_copy"
"""An attribute of a duplicated node whose name begins so keeps ONNX Runtime from merging it with its original."""


_WINDOWED: Final = families("windowed")


def dialect(module: Module) -> Dialect:
    """Return how ops that are added to ``module``'s graph look, in its version of the operator set."""
    version = opset(module.native.parse())

    def slice_attributes(shape: Sequence[int], starts: Sequence[int], ends: Sequence[int]) -> Attributes:
        # Only what is cut is named.
        cut = [axis for axis, size in enumerate(shape) if (starts[axis], ends[axis]) != (0, size)] or [0]
        found: dict[str, AttributeValue] = {
            "starts": tuple(starts[axis] for axis in cut),
            "ends": tuple(ends[axis] for axis in cut),
            "axes": tuple(cut),
        }
        return {**found, "steps": (1,) * len(cut)} if version >= Opset.SLICE_INPUTS else found

    return Dialect(
        slice_type="Slice",
        concat_type="Concat",
        pad_type="Pad",
        slice_attributes=slice_attributes,
        concat_attributes=lambda axis: {"axis": axis},
        pad_attributes=_pad_attributes,
        piece_attributes=_piece_attributes,
        pads_by_size=lambda _: False,
        copy_attributes=lambda op, number: {**op.attributes, COPY_ATTRIBUTE: number},
        stepped=SteppedWords("Slice", _stepped_attributes) if version >= Opset.SLICE_INPUTS else None,
        add=AddWords("Add", lambda _: {}) if version >= Opset.ADD_BROADCASTS else None,
    )


def _stepped_attributes(
    shape: Sequence[int], starts: Sequence[int], ends: Sequence[int], steps: Sequence[int]
) -> Attributes:
    given = list(zip(starts, ends, steps, strict=True))
    cut = [axis for axis, size in enumerate(shape) if given[axis] != (0, size, 1)] or [0]
    named = zip(("starts", "ends", "steps"), zip(*(given[axis] for axis in cut), strict=True), strict=True)
    return {**dict(named), "axes": tuple(cut)}


def _pad_attributes(pads: Sequence[tuple[int, int]]) -> Attributes:
    return {"pads": (*(before for before, _ in pads), *(after for _, after in pads)), "mode": "constant"}


def _piece_attributes(op: Op, pads: Pads) -> Attributes | None:
    if op.type not in _WINDOWED:
        return None
    found = {name: value for name, value in op.attributes.items() if name != "auto_pad"}
    return {**found, "pads": (*(before for before, _ in pads), *(after for _, after in pads))}


def serialize(module: Module, graph: Graph, order: Sequence[int], metadata: Mapping[str, str]) -> bytes:
    """Return the bytes of ``module``'s model with its main graph rewritten to ``graph``, its nodes in ``order``.

    Args:
        graph: Ops as `memsched.graph.model.Op` describes them; tensors are found by name.
        order: Indices of the graph's ops.
        metadata: Added to the model's ``metadata_props``.

    Raises:
        InternalError: The graph does not fit the module.
        ModelError: A constant that must be cut cannot be read, or the result is too large for one message (2 GB).
    """
    return _bytes_of(_rewritten(module, graph, order, metadata), module)


def serialize_scaled(module: Module, graph: Graph) -> tuple[bytes, Mapping[str, str]]:
    """Return the same in the order of the graph's ops, with what scales convolutions as part of their weights.

    Returns:
        The bytes, and what `memsched.formats.onnx.scaled_weights.scale_weights` says is gone.
    """
    model = _rewritten(module, graph, range(len(graph.ops)), {})
    merged = scale_weights(model)
    return _bytes_of(model, module), merged


def _rewritten(module: Module, graph: Graph, order: Sequence[int], metadata: Mapping[str, str]) -> ModelProto:
    native: OnnxNative = module.native
    model = native.scheduled()
    given = module.graphs[0]
    if _holds_sizes(given, graph):
        # Pieces are cut at places that hold for these sizes alone: a runtime has to refuse others.
        fix(model, given)
    scopes = analyse(model.graph, folded=native.folded)
    writer = _MainNodes(module, model, scopes)
    nodes = writer.written(graph, order)
    main = model.graph
    del main.node[:]
    main.node.extend(nodes)
    drop_unread(model, scopes, {**writer.constants.cut_up, **writer.unread(graph)})
    if model.ir_version < IrVersion.FREE_INITIALIZERS:
        list_initializers(main)
    _state_shapes(model, given, graph)
    state_chains(model, graph)
    state_border(model, given, graph)
    set_metadata(model, metadata)
    return model


def _bytes_of(model: ModelProto, module: Module) -> bytes:
    try:
        result: bytes = model.SerializeToString(deterministic=True)
    except ValueError as error:
        raise ModelError(f"the model cannot be written: {error}", location=module.path, code="unwritable") from error
    return result


class _MainNodes:
    """The nodes of the rewritten main graph."""

    def __init__(self, module: Module, model: ModelProto, scopes: Sequence[Scope]) -> None:
        native: OnnxNative = module.native
        self._protos = list(model.graph.node)
        self._node_of = native.nodes[0]
        self.constants = OnnxConstants(module.path, model.graph, scopes[0], opset(model))
        self._given = module.graphs[0]
        self._pieces = NodeFactory(self._given, [self._protos[node] for node in self._node_of], opset(model))
        # Nodes that compute constants stand in front of the first op of the file that needs them.
        self._before: dict[int, list[int]] = {}
        self._rest: list[int] = []
        waiting: list[int] = []
        index_of = {node: op for op, node in enumerate(self._node_of)}
        for node in native_order(native, scopes, 0, range(len(self._node_of))):
            if node in index_of:
                self._before[index_of[node]], waiting = waiting, []
            else:
                waiting.append(node)
        self._rest = waiting

    def written(self, graph: Graph, order: Sequence[int]) -> list[NodeProto]:
        """Return all nodes, those that compute constants first: they are no steps, and any piece may need them."""
        if sorted(order) != list(range(len(graph.ops))):
            raise InternalError("the order of a rewritten graph does not name each of its ops once", code="op-count")
        steps = [self._pieces.node(graph, graph.ops[number], self.constants) for number in order]
        constant = [self._protos[node] for op in range(len(self._node_of)) for node in self._before[op]]
        return [*constant, *(self._protos[node] for node in self._rest), *self.constants.nodes, *steps]

    def unread(self, graph: Graph) -> dict[str, None]:
        """Return the constants of nodes that ``graph`` does not have any more."""
        return removed_names(self._given, graph, [self._protos[node] for node in self._node_of])


def _holds_sizes(before: Graph, after: Graph) -> bool:
    """Whether ``after`` has ops that are right for one size alone: anything but the ops of ``before`` and their copies.

    What a piece or a helper reads and what it is cut at are numbers in the file; a copy does what its original does.
    """
    known = {op.name: op for op in before.ops}
    for op in after.ops:
        if op.chain:  # it is of whatever size its input is
            continue
        source = known.get(op.origin if op.origin is not None else op.name)
        if source is None or op.region is not None:
            return True
        if {name: value for name, value in op.attributes.items() if name != COPY_ATTRIBUTE} != dict(source.attributes):
            return True
    return False


def _state_shapes(model: ModelProto, before: Graph, after: Graph) -> None:
    """Drop what the file says of tensors that are gone, and state the shapes of those that are new.

    Where a dimension is open, a copy's shape is what the file says of its original, if anything.
    """
    from memsched.formats.onnx.types import element_type

    main = model.graph
    known = {tensor.name for tensor in before.tensors}
    left = {tensor.name for tensor in after.tensors}
    stated = [value for value in main.value_info if value.name not in known or value.name in left]
    is_open = has_open(model)
    declared = {value.name: value.type for value in (*main.value_info, *main.output)} if is_open else {}
    original = _originals(before, after) if is_open else {}
    del main.value_info[:]
    main.value_info.extend(stated)
    for tensor in after.tensors:
        element = element_type(tensor.dtype)
        if tensor.name in known or tensor.shape is None or element == TensorProto.UNDEFINED:
            continue
        if not is_open:
            main.value_info.append(helper.make_tensor_value_info(tensor.name, element, tensor.shape))
        elif original.get(tensor.name) in declared:
            main.value_info.add(name=tensor.name).type.CopyFrom(declared[original[tensor.name]])


def _originals(before: Graph, after: Graph) -> dict[str, str]:
    """Return the tensors that copies of ops make, each with the one that the original makes."""
    known = {op.name: op for op in before.ops}
    found = {}
    for op in after.ops:
        if op.origin in known:
            source = known[op.origin]
            for made, was in zip(op.outputs, source.outputs, strict=False):
                found[after.tensors[made].name] = before.tensors[was].name
    return found
