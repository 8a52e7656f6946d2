"""What an ONNX model says of its values, whatever a user stated when it was read: open dimensions stay open."""

from __future__ import annotations

from functools import cached_property

from onnx import GraphProto, ModelProto, TypeProto, ValueInfoProto, shape_inference

from memsched.base.errors import ModelError
from memsched.formats.module import LoadOptions, Module
from memsched.formats.onnx import checks, external, functions, shapes
from memsched.formats.onnx import light as onnx_light
from memsched.formats.onnx.native import OnnxNative
from memsched.formats.onnx.structure import analyse
from memsched.formats.onnx.types import ValueType, element_type

__all__ = ["ValueTypes"]


class ValueTypes:
    """The types of the values of a module's main graph, ``main``, as the file states them or ONNX infers them."""

    def __init__(self, module: Module, main: GraphProto) -> None:
        self._module = module
        self._inputs = {value.name: value for value in main.input}
        self._outputs = {value.name: value for value in main.output}
        self._stated = {value.name: value for value in main.value_info}
        self._tensors = {tensor.name: tensor for tensor in module.graphs[0].tensors}
        declared = (dim.dim_param for value in main.input for dim in value.type.tensor_type.shape.dim)
        self._symbols = {symbol for symbol in declared if symbol}

    def given(self, name: str) -> ValueInfoProto:
        """Return how value ``name`` is declared as an input: as in the model's inputs, or as it is computed.

        Raises:
            ModelError: Its type is unknown.
        """
        if name in self._inputs:
            declared: ValueInfoProto = self._inputs[name]
            return declared
        found = self.known(name)
        if found is None:
            raise ModelError(
                f"{self._module.path}: the type of '{name}', which is to go from one segment to another, is stated "
                "nowhere",
                action="add it to the model's value_info",
                code="no-type",
            )
        return found

    def handed_out(self, name: str) -> ValueInfoProto:
        """Return how value ``name`` is declared as an output: exactly as in the model's outputs where it is one.

        An output of the model that states no shape gets the inferred one, because the format demands one.

        Raises:
            ModelError: Its type is unknown.
        """
        stated: ValueInfoProto | None = self._outputs.get(name)
        if stated is None or stated.type.WhichOneof("value") is None:
            return self.given(name)
        if stated.type.HasField("tensor_type") and not stated.type.tensor_type.HasField("shape"):
            return self.known(name) or stated
        return stated

    def known(self, name: str) -> ValueInfoProto | None:
        """Return what is known of a computed value; None when it is nothing."""
        found = self._inferred[0].get(name, ValueType())
        if found.kind not in {"tensor", "strings"}:
            kept = self._other(name)
            return None if kept is None else ValueInfoProto(name=name, type=kept)
        tensor = self._tensors.get(name)
        element = found.element or (element_type(tensor.dtype) if tensor is not None else 0)
        if not element:
            return None
        result = ValueInfoProto(name=name)
        result.type.tensor_type.elem_type = element
        if found.dims is not None:
            shape = result.type.tensor_type.shape
            shape.SetInParent()
            for dim in found.dims:
                added = shape.dim.add()
                if isinstance(dim, int):
                    added.dim_value = dim
                elif dim in self._symbols:
                    added.dim_param = dim
        return result

    @cached_property
    def _inferred(self) -> tuple[dict[str, ValueType], ModelProto]:
        """Per value of the main graph its type, inferred without the statements of a user; and the light model."""
        native: OnnxNative = self._module.native
        light = native.parse()
        onnx_light.lighten(light, external.folder_of(self._module.path))
        if native.inlined:
            light = functions.inline(light)
        scopes = analyse(light.graph)
        checks.import_operators(light, scopes)
        return shapes.infer(light, scopes, LoadOptions()).types[0], light

    @cached_property
    def _others(self) -> dict[str, TypeProto]:
        """The types of all values in ONNX's own words, as far as its inference finds them."""
        light = self._inferred[1]
        try:
            light = shape_inference.infer_shapes(light)
        except Exception:  # the native code raises several types of its own
            light = self._inferred[1]
        graph = light.graph
        return {value.name: value.type for value in (*graph.value_info, *graph.output)}

    def _other(self, name: str) -> TypeProto | None:
        """Return the type of a value that is no tensor, such as a sequence or an optional."""
        for stated in (self._outputs, self._stated):
            if name in stated and stated[name].type.WhichOneof("value") is not None:
                declared: TypeProto = stated[name].type
                return declared
        return self._others.get(name)
