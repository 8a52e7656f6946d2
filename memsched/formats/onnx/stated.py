"""What the user states about shapes, written into the model that is inferred: ``--dim`` and ``--shape``."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from onnx import GraphProto, TypeProto, ValueInfoProto

from memsched.base.errors import ModelError, UsageError
from memsched.base.suggestions import did_you_mean
from memsched.formats.module import LoadOptions
from memsched.formats.onnx.structure import Scope, values_of
from memsched.formats.onnx.types import ValueType, element_bits, is_element, is_symbol, length_of, value_type

__all__ = ["Statements", "declare", "is_settled", "write_shape"]


def is_settled(written: bytes) -> bool:
    """Return whether a declared type, as a file holds it, is a tensor's of a known element with all dimensions."""
    declared = TypeProto.FromString(written).tensor_type
    return is_element(declared.elem_type) and all(dim.dim_value > 0 for dim in declared.shape.dim)


def declare(values: object, name: str, element: int, dims: Sequence[int]) -> None:
    """Append a tensor's declaration to a repeated field of ValueInfoProto."""
    tensor = values.add(name=name).type.tensor_type  # type: ignore[attr-defined]
    tensor.elem_type = element
    tensor.shape.SetInParent()
    for dim in dims:
        tensor.shape.dim.add(dim_value=dim)


class Statements:
    """The user's statements, checked against the model and written into it.

    A shape stated for a graph input gives the symbolic dimensions in it their lengths, throughout the model.
    """

    def __init__(self, options: LoadOptions) -> None:
        self._shapes = options.input_shapes
        self._options = options
        self._dims = dict(options.dims)
        self._symbols: dict[str, None] = {}
        self._fillers: set[str] = set()
        self.notes: list[str] = []

    def symbols(self) -> frozenset[str]:
        """Return the names of dimensions that `write_dims` has met."""
        return frozenset(self._symbols) - {""}

    def write_inputs(self, graph: GraphProto) -> None:
        """Write the stated shapes of the inputs of the main graph.

        Raises:
            UsageError: A statement contradicts the model or another one.
        """
        for value in graph.input:
            if value.name in self._shapes:
                lengths = self._shapes[value.name]
                declared = value_type(value.type)
                self._check(value.name, declared, lengths)
                self._find_fillers(declared, lengths)
                for dim, length in zip(declared.dims or (), lengths, strict=False):
                    if not isinstance(dim, str) or not is_symbol(dim) or dim in self._fillers:
                        continue
                    if self._dims.setdefault(dim, length) != length:
                        other = self._dims[dim]
                        raise UsageError(
                            f"--shape {value.name} states {length} for '{dim}', elsewhere {other}",
                            code="stated-twice",
                        )
                write_shape(value, lengths)

    def _find_fillers(self, declared: ValueType, lengths: Sequence[int]) -> None:
        """Note names for which one stated shape gives several lengths: exporters write them for all unknown ones."""
        names = dict.fromkeys(dim for dim in declared.dims or () if isinstance(dim, str) and dim)
        for dim in [name for name in names if name not in self._options.dims]:
            if len({length for other, length in zip(declared.dims or (), lengths, strict=True) if other == dim}) > 1:
                self._fillers.add(dim)
                self._dims.pop(dim, None)
                self.notes.append(f"dimensions called '{dim}' differ in length: the name is taken to say nothing")

    def write_dims(self, graphs: Sequence[Scope], *, first: bool, inputs_only: bool = False) -> bool:
        """Replace symbolic dimensions by their lengths, and -1 by unknown; return whether that said anything.

        Args:
            first: Look at every dimension, not only at those that can be stated.
            inputs_only: All other values have types that are settled.

        Raises:
            ModelError: A dimension is negative and not -1, or an element type does not exist.
        """
        changed = False
        plain: set[bytes] = set()
        for scope in graphs if first or self._dims else ():
            for value in scope.graph.input if inputs_only else values_of(scope.graph):
                written = value.type.SerializeToString()
                if written in plain or not value.type.HasField("tensor_type"):
                    continue
                if first and value.type.tensor_type.elem_type:
                    _check_element(value)
                changed = self._write_lengths(value) or changed
                if all(dim.dim_value > 0 for dim in value.type.tensor_type.shape.dim):
                    # Nothing to do for such a type, and large models have few of them.
                    plain.add(written)
        return changed

    def _write_lengths(self, value: ValueInfoProto) -> bool:
        """Do for one tensor what `write_dims` says."""
        changed = False
        for dim in value.type.tensor_type.shape.dim:
            if dim.HasField("dim_param"):
                if dim.dim_param in self._fillers or not is_symbol(dim.dim_param):
                    dim.ClearField("dim_param")
                    continue
                self._symbols[dim.dim_param] = None
                length = length_of(dim.dim_param, self._dims)
                if length is not None:
                    dim.dim_value = length
                    changed = True
            elif dim.dim_value < 0:
                if dim.dim_value < -1:
                    raise ModelError(
                        f"tensor '{value.name}' has the negative dimension {dim.dim_value}", code="negative-dimension"
                    )
                dim.ClearField("dim_value")
        return changed

    def write_computed(
        self, graphs: Sequence[Scope], scopes: Sequence[Scope], types: Sequence[dict[str, ValueType]]
    ) -> bool:
        """Write the stated shapes of values that the model computes; return whether that said anything.

        Raises:
            UsageError: A statement contradicts what follows from the model.
            ModelError: Nothing tells the element type of a value.
        """
        changed = False
        for index, scope in enumerate(graphs if self._shapes else ()):
            for name, lengths in self._shapes.items():
                if name not in scopes[index].defined or name in scopes[index].constants:
                    continue
                known = types[index].get(name, ValueType())
                self._check(name, known, lengths)
                if known.known() and known.element:
                    continue
                found = [value for value in values_of(scope.graph) if value.name == name]
                element = known.element or self._likely_element(scopes, index, types, name)
                for value in found:
                    value.type.tensor_type.elem_type = element
                    write_shape(value, lengths)
                if not found:
                    declare(scope.graph.value_info, name, element, lengths)
                types[index][name] = ValueType("tensor", element, lengths)
                changed = True
        return changed

    def check_used(self, scopes: Sequence[Scope]) -> None:
        """Refuse statements about nothing.

        Raises:
            UsageError: No value or no symbolic dimension has the stated name, or the value is a constant.
        """
        for name in self._shapes:
            if not any(name in scope.defined for scope in scopes):
                tensors = sorted({value for scope in scopes for value in scope.defined if value not in scope.constants})
                hint = did_you_mean(name, tensors)
                raise UsageError(
                    f"the model has no tensor of that name{hint}",
                    location=f"--shape {name}",
                    code="no-such-tensor",
                )
            if all(name in scope.constants for scope in scopes if name in scope.defined):
                raise UsageError(
                    "the tensor is a constant, whose shape the model states",
                    location=f"--shape {name}",
                    code="constant-shape",
                )
        for name in () if self._options.settled else self._options.dims:
            if name not in self._symbols:
                known = ", ".join(f"'{symbol}'" for symbol in itertools.islice(self._symbols, 8)) or "none"
                hint = did_you_mean(name, self._symbols)
                raise UsageError(
                    f"the model has no symbolic dimension of that name{hint}; it has {known}",
                    code="no-such-dimension",
                    location=f"--dim {name}",
                )

    def _check(self, name: str, declared: ValueType, lengths: Sequence[int]) -> None:
        if declared.kind != "tensor":
            raise UsageError(
                f"the value is {declared.kind}, which has no shape", location=f"--shape {name}", code="no-shape"
            )
        if declared.dims is None:
            return
        shown = ",".join(str(dim) or "?" for dim in declared.dims)
        if len(declared.dims) != len(lengths):
            raise UsageError(
                f"--shape {name} states {len(lengths)} dimensions, but the model has {name}:{shown}",
                code="shape-differs",
            )
        for dim, length in zip(declared.dims, lengths, strict=True):
            if isinstance(dim, int) and dim != length:
                raise UsageError(
                    f"--shape {name} states {length} where the model fixes {dim} ({name}:{shown})",
                    code="shape-differs",
                )

    def _likely_element(
        self, scopes: Sequence[Scope], index: int, types: Sequence[dict[str, ValueType]], name: str
    ) -> int:
        """Return the element type of the first typed input of the node that produces ``name``, and note it."""
        for node in scopes[index].graph.node:
            if name in node.output:
                for read in node.input:
                    element = types[index].get(read, ValueType()).element
                    if element:
                        self.notes.append(
                            f"the element type of '{name}' is stated nowhere; it is taken to be that of '{read}'"
                        )
                        return element
        raise ModelError(
            f"the element type of '{name}' is stated nowhere", action="add it to the model's value_info", code="no-type"
        )


def _check_element(value: ValueInfoProto) -> None:
    try:
        element_bits(value.type.tensor_type.elem_type)
    except ModelError as error:
        raise error.at(f"tensor '{value.name}'") from error


def write_shape(value: ValueInfoProto, lengths: Sequence[int]) -> None:
    """Replace the shape that a declaration states."""
    shape = value.type.tensor_type.shape
    del shape.dim[:]
    shape.SetInParent()
    for length in lengths:
        shape.dim.add(dim_value=length)
