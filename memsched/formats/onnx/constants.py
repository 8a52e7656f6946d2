"""Constants of an ONNX graph that a rewrite changes: new small ones, and the parts of weights that pieces need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper, shape_inference

from memsched.base.errors import ModelError
from memsched.formats.onnx.attributes import CONSTANT_INPUTS
from memsched.formats.onnx.standard import Opset
from memsched.formats.onnx.structure import Scope
from memsched.graph.dialect import CONSTANT_SHAPE
from memsched.graph.model import AttributeValue, Op
from memsched.ops.ranges import ConstantParts

__all__ = ["OnnxConstants"]


class OnnxConstants:
    """Makes constants in ``graph``, which is the main graph that is being rewritten; each value once.

    ``version`` is the model's version of the operator set.

    Attributes:
        nodes: Slices of constants whose values the file does not hold itself.
        cut_up: The names of constants of which parts were stored.
    """

    def __init__(self, path: str, graph: GraphProto, scope: Scope, version: int) -> None:
        self._path = path
        self._graph = graph
        self._version = version
        self._constants = scope.constants
        self._stored = {tensor.name: tensor for tensor in graph.initializer}
        self._taken = {*scope.defined, *scope.free}
        self._made: dict[tuple[object, ...], str] = {}
        self._lengths: dict[str, tuple[int, ...] | None] = {}
        self.nodes: list[NodeProto] = []
        self.cut_up: dict[str, None] = {}

    def integers(self, values: Sequence[AttributeValue]) -> str:
        """Return the name of a vector of int64."""
        return self._store(("int64", *values), np.array(values, dtype=np.int64), "memsched_numbers")

    def like(self, name: str, values: Sequence[AttributeValue]) -> str:
        """Return the name of a vector of ``values`` with the element type of constant ``name`` (int64 if unknown)."""
        stored = self._stored.get(name)
        kind = np.dtype(np.int64) if stored is None else helper.tensor_dtype_to_np_dtype(stored.data_type)
        return self._store((str(kind), *values), np.array(values, dtype=kind), "memsched_numbers")

    def cut(self, node: NodeProto, op: Op, parts: ConstantParts) -> None:
        """Give ``node``, which computes ``op.region`` of an output, only its part of the constants.

        Raises:
            ModelError: The shape of a constant is unknown, so nobody knows which part that is.
        """
        known = CONSTANT_INPUTS.get(op.type, {})
        for place, name in enumerate(node.input):
            if place in op.positions or name not in self._constants:
                continue
            if place not in known and f"{CONSTANT_SHAPE}{place}" not in op.attributes:
                raise self._unknown(op, name)
            if place in parts:
                node.input[place] = self._part(op, name, parts[place])

    def cut_terms(self, node: NodeProto, op: Op) -> None:
        """Give ``node`` only what it multiplies ``op.terms`` with; what is added goes with the first of them.

        Raises:
            ModelError: A constant that has to be cut has an unknown shape, or it isn't known where.
        """
        if op.terms is None:
            return
        if op.type not in {"Conv", "MatMul"} or tuple(op.positions) != (0,):
            raise ModelError(
                f"op '{op.name}' ({op.type}) cannot be computed as a sum of parts",
                location=self._path,
                code="cannot-cut",
            )
        axis = 1 if op.type == "Conv" else max(0, len(self._shape(op, node.input[1])) - 2)
        node.input[1] = self._part(op, node.input[1], {axis: op.terms})
        if op.terms[0]:
            del node.input[2:]

    def _shape(self, op: Op, name: str) -> tuple[int, ...]:
        if name not in self._lengths:
            self._lengths[name] = self._find_shape(name)
        shape = self._lengths[name]
        if shape is None:
            raise self._unknown(op, name)
        return shape

    def _unknown(self, op: Op, name: str) -> ModelError:
        return ModelError(
            f"constant '{name}' of op '{op.name}' has no known shape, so it cannot be cut in pieces",
            location=self._path,
            code="cannot-cut",
        )

    def _find_shape(self, name: str) -> tuple[int, ...] | None:
        if name in self._stored:
            return tuple(self._stored[name].dims)
        for value in (*self._graph.value_info, *self._graph.input):
            if value.name == name and value.type.tensor_type.HasField("shape"):
                dims = value.type.tensor_type.shape.dim
                if all(dim.HasField("dim_value") for dim in dims):
                    return tuple(dim.dim_value for dim in dims)
        for node in self._graph.node:
            if name in node.output and node.op_type == "Constant":
                for attribute in node.attribute:
                    if attribute.name == "value":
                        return tuple(attribute.t.dims)
        return self._computed_shape(name)

    def _computed_shape(self, name: str) -> tuple[int, ...] | None:
        """Return the shape of a constant that nodes compute, as ONNX infers it."""
        producer = {output: node for node in self._graph.node for output in node.output if output}
        needed: dict[int, NodeProto] = {}
        waiting, used = [name], set()
        while waiting:
            wanted = waiting.pop()
            node = producer.get(wanted)
            if node is None:
                used.add(wanted)
            elif id(node) not in needed:
                needed[id(node)] = node
                waiting.extend(read for read in node.input if read)
        nodes = [node for node in self._graph.node if id(node) in needed]
        stored = [self._stored[read] for read in sorted(used) if read in self._stored]
        graph = helper.make_graph(nodes, "constants", [], [helper.make_empty_tensor_value_info(name)], stored)
        # The model's version of the operators: newer ones take as inputs what older ones take as attributes.
        imports = [helper.make_opsetid("", self._version)]
        try:
            model = shape_inference.infer_shapes(helper.make_model(graph, opset_imports=imports), data_prop=True)
        except Exception:  # on any error of the checker the shape stays unknown
            return None
        for value in model.graph.output:
            dims = value.type.tensor_type.shape.dim
            if value.type.tensor_type.HasField("shape") and all(dim.HasField("dim_value") for dim in dims):
                return tuple(dim.dim_value for dim in dims)
        return None

    def _part(self, op: Op, name: str, spans: Mapping[int, tuple[int, int]]) -> str:
        stored = self._stored.get(name)
        shape = self._shape(op, name)
        key = ("part", name, *sorted(spans.items()))
        if stored is not None and stored.data_location != TensorProto.EXTERNAL:
            if key in self._made:
                return self._made[key]
            self.cut_up[name] = None
            index = tuple(slice(*spans.get(axis, (0, size))) for axis, size in enumerate(shape))
            values = numpy_helper.to_array(stored)[index]
            return self._store(key, np.ascontiguousarray(values), f"{name}_part", stored)
        filled = next((node for node in self._graph.node if name in node.output), None)
        if filled is not None and filled.op_type == "ConstantOfShape":
            return self._filled(key, filled, tuple(spans.get(axis, (0, size)) for axis, size in enumerate(shape)))
        return self._slice(key, name, spans)

    def _filled(self, key: tuple[object, ...], node: NodeProto, spans: Sequence[tuple[int, int]]) -> str:
        """Fill a part as its whole is filled."""
        if key not in self._made:
            part = NodeProto()
            part.CopyFrom(node)
            part.name = part.output[0] = self._made[key] = self._new(f"{node.output[0]}_part")
            part.input[0] = self.integers([stop - start for start, stop in spans])
            self.nodes.append(part)
        return self._made[key]

    def _slice(self, key: tuple[object, ...], name: str, spans: Mapping[int, tuple[int, int]]) -> str:
        """Cut a constant that the file holds elsewhere, or computes, by a node: runtimes fold it when they load."""
        if key not in self._made:
            axes = sorted(spans)
            made = self._new(f"{name}_part")
            starts, ends = [spans[axis][0] for axis in axes], [spans[axis][1] for axis in axes]
            if self._version < Opset.SLICE_INPUTS:
                node = helper.make_node("Slice", [name], [made], made, starts=starts, ends=ends, axes=axes)
            else:
                reads = [name, self.integers(starts), self.integers(ends), self.integers(axes)]
                node = helper.make_node("Slice", reads, [made], made)
            self.nodes.append(node)
            self._made[key] = made
        return self._made[key]

    def _store(self, key: tuple[object, ...], values: np.ndarray, base: str, like: TensorProto | None = None) -> str:
        if key not in self._made:
            name = self._new(base)
            tensor = numpy_helper.from_array(values, name)
            if like is not None:
                tensor.data_type = like.data_type
            self._graph.initializer.append(tensor)
            self._made[key] = name
        return self._made[key]

    def _new(self, base: str) -> str:
        number = 0
        while f"{base}_{number}" in self._taken:
            number += 1
        name = f"{base}_{number}"
        self._taken.add(name)
        return name
