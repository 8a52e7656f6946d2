"""The shapes of all values: ONNX's inference, then ONNX Runtime's, helped by what the user states.

The inference works on a copy without weights. What the file declares and what follows from its operators may differ;
ONNX Runtime then runs by the operators, so they win and a note says so.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from memsched.errors import ModelError, UsageError
from memsched.formats import onnx_folding, onnx_symbolic
from memsched.formats.module import LoadOptions
from memsched.formats.onnx_light import is_stripped
from memsched.formats.onnx_structure import Scope, domain_of, graphs_of, sparse_name
from memsched.formats.onnx_types import ValueType, element_name, merge, value_type

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, ValueInfoProto

__all__ = ["Shapes", "infer"]

_ROUNDS: Final = 4
_FOLDING_ROUNDS: Final = 12
_CLASH: Final = "Inferred shape and existing shape differ"
_ELEMENT_CLASH: Final = re.compile(r"Inferred elem type differs from existing elem type: \((\d+)\) vs \((\d+)\)")
_REASON: Final = re.compile(r"\(op_type:([^,()]*)(?:, node name: ([^)]*))?\): (?:\[\w+\] ?)?([^\n]*)")


@dataclass(slots=True)
class Shapes:
    """What is known of the values of a model.

    Attributes:
        types: Per scope (as `analyse` lists them) and name.
        reasons: Per node name what ONNX's inference complained about.
        notes: Contradictions that were settled.
        symbols: Symbolic dimensions that the file or the inference names.
    """

    types: list[dict[str, ValueType]]
    reasons: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    symbols: dict[str, None] = field(default_factory=dict)

    def of(self, scopes: Sequence[Scope], index: int, name: str) -> ValueType:
        """Return the type of ``name`` as graph ``index`` sees it."""
        while index >= 0:
            if name in scopes[index].defined:
                return self.types[index].get(name, ValueType())
            index = scopes[index].parent
        return ValueType()


def infer(light: ModelProto, scopes: Sequence[Scope], options: LoadOptions) -> Shapes:
    """Return the types of all values of ``light``, whose scopes are ``scopes``.

    Raises:
        ModelError: A declared shape or type is impossible.
        UsageError: An option names nothing in the model or contradicts it.
    """
    model = _inference_copy(light, scopes)
    shapes = Shapes([])
    dims = dict(options.dims)
    _state_inputs(model.graph, options.input_shapes, dims)
    _state_dims(model, dims, shapes)
    result = _run(model, shapes)
    shapes.types = _collect(result)
    for _ in range(_ROUNDS):
        stated = _state_shapes(result, scopes, shapes, options.input_shapes, dims)
        if not (_state_dims(result, dims, shapes) or stated):
            break
        result = _run(result, shapes)
        _absorb(shapes, result)
    for _ in range(_FOLDING_ROUNDS):
        if not _needs_help(scopes, shapes, light) or not onnx_folding.fold(result, scopes, shapes.types):
            break
        _state_shapes(result, scopes, shapes, options.input_shapes, dims)
        _state_dims(result, dims, shapes)
        result = _run(result, shapes)
        _absorb(shapes, result)
    if _needs_help(scopes, shapes, light):
        _ask_runtime(result, scopes, shapes, options, dims)
    _add_constants(scopes, shapes)
    _refuse_unused(options, scopes, shapes)
    return shapes


def _inference_copy(light: ModelProto, scopes: Sequence[Scope]) -> ModelProto:
    """Return a copy of ``light`` in which constants without values are plain inputs."""
    from onnx import ModelProto

    model = ModelProto()
    model.CopyFrom(light)
    imported = {"" if opset.domain == "ai.onnx" else opset.domain for opset in model.opset_import}
    for domain in sorted({domain_of(node) for scope in scopes for node in scope.graph.node} - imported):
        model.opset_import.add(domain=domain, version=1)
    for scope in graphs_of(model.graph):
        _drop_constants(scope.graph, scope.parent < 0)
    return model


def _drop_constants(graph: GraphProto, main: bool) -> None:
    given = graph.input if main else graph.value_info
    kept = []
    fixed = {tensor.name for tensor in graph.initializer}
    if main and any(value.name in fixed for value in graph.input):
        inputs = [value for value in graph.input if value.name not in fixed]
        del graph.input[:]
        graph.input.extend(inputs)
    for tensor in graph.initializer:
        if is_stripped(tensor):
            _declare(given, tensor.name, tensor.data_type, tensor.dims)
        else:
            kept.append(tensor)
    if len(kept) < len(graph.initializer):
        del graph.initializer[:]
        graph.initializer.extend(kept)
    nodes = []
    for node in graph.node:
        values = [item.t for item in node.attribute if item.name == "value" and item.HasField("t")]
        if node.op_type == "Constant" and values and is_stripped(values[0]) and len(node.output) == 1:
            _declare(given, node.output[0], values[0].data_type, values[0].dims)
        else:
            nodes.append(node)
    if len(nodes) < len(graph.node):
        del graph.node[:]
        graph.node.extend(nodes)


def _declare(values: object, name: str, element: int, dims: Sequence[int]) -> None:
    tensor = values.add(name=name).type.tensor_type  # type: ignore[attr-defined]
    tensor.elem_type = element
    tensor.shape.SetInParent()
    for dim in dims:
        tensor.shape.dim.add(dim_value=dim)


def _values(graph: GraphProto) -> Iterator[ValueInfoProto]:
    return itertools.chain(graph.value_info, graph.output, graph.input)


def _state_inputs(graph: GraphProto, stated: Mapping[str, tuple[int, ...]], dims: dict[str, int]) -> None:
    """Write the stated shapes of graph inputs; a symbolic dimension found there holds for the whole model."""
    for value in graph.input:
        if value.name in stated:
            _check_stated(value.name, value_type(value.type), stated[value.name], dims, symbols=True)
            _write_shape(value, stated[value.name])


def _check_stated(
    name: str, declared: ValueType, stated: tuple[int, ...], dims: dict[str, int], *, symbols: bool
) -> None:
    if declared.kind != "tensor":
        raise UsageError(f"--input-shape {name}: the value is {declared.kind}, which has no shape")
    if declared.dims is None:
        return
    shown = ",".join(str(dim) or "?" for dim in declared.dims)
    if len(declared.dims) != len(stated):
        raise UsageError(f"--input-shape {name} states {len(stated)} dimensions, but the model has {name}:{shown}")
    for dim, length in zip(declared.dims, stated, strict=True):
        if isinstance(dim, int) and dim != length:
            raise UsageError(f"--input-shape {name} states {length} where the model fixes {dim} ({name}:{shown})")
        if symbols and isinstance(dim, str) and dim and dims.setdefault(dim, length) != length:
            raise UsageError(f"--input-shape {name} states {length} for '{dim}', which is {dims[dim]} elsewhere")


def _write_shape(value: ValueInfoProto, lengths: Sequence[int]) -> None:
    shape = value.type.tensor_type.shape
    del shape.dim[:]
    shape.SetInParent()
    for length in lengths:
        shape.dim.add(dim_value=length)


def _state_dims(model: ModelProto, dims: Mapping[str, int], shapes: Shapes) -> bool:
    """Replace symbolic dimensions by their stated lengths, and -1 by unknown; return whether anything was stated."""
    changed = False
    for scope in graphs_of(model.graph):
        for value in _values(scope.graph):
            for dim in value.type.tensor_type.shape.dim if value.type.HasField("tensor_type") else ():
                if dim.HasField("dim_param"):
                    shapes.symbols[dim.dim_param] = None
                    if dim.dim_param in dims:
                        dim.dim_value = dims[dim.dim_param]
                        changed = True
                elif dim.dim_value < 0:
                    if dim.dim_value < -1:
                        raise ModelError(f"tensor '{value.name}' has the negative dimension {dim.dim_value}")
                    dim.ClearField("dim_value")
    return changed


def _state_shapes(
    model: ModelProto,
    scopes: Sequence[Scope],
    shapes: Shapes,
    stated: Mapping[str, tuple[int, ...]],
    dims: dict[str, int],
) -> bool:
    """Write the stated shapes of values that the model computes; return whether that says anything new."""
    changed = False
    for index, scope in enumerate(graphs_of(model.graph) if stated else ()):
        for name, lengths in stated.items():
            if name not in scopes[index].defined or name in scopes[index].constants:
                continue
            known = shapes.types[index].get(name, ValueType())
            _check_stated(name, known, lengths, dims, symbols=False)
            if known.known() and known.element:
                continue
            found = False
            for value in _values(scope.graph):
                if value.name == name:
                    found = True
                    _write_shape(value, lengths)
            if not found or not known.element:
                element = known.element or _likely_element(scopes, shapes, index, name)
                _declare(scope.graph.value_info, name, element, lengths)
            changed = True
    return changed


def _likely_element(scopes: Sequence[Scope], shapes: Shapes, index: int, name: str) -> int:
    """Return the element type of the first input of the node that produces ``name``, and note it."""
    for node in scopes[index].graph.node:
        if name in node.output:
            for read in node.input:
                element = shapes.of(scopes, index, read).element if read else 0
                if element:
                    shapes.notes.append(
                        f"the element type of '{name}' is stated nowhere; it is taken to be that of '{read}'"
                    )
                    return element
    raise ModelError(f"the element type of '{name}' is stated nowhere; add it to the model's value_info")


def _run(model: ModelProto, shapes: Shapes) -> ModelProto:
    """Run ONNX's inference; where it finds contradictions, let the operators win over the declarations."""
    from onnx import shape_inference

    try:
        return shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    except Exception as error:  # the native code raises several types of its own
        message = str(error)
    for match in _REASON.finditer(message):
        shapes.reasons.setdefault(match[2] or match[1], match[3].strip())
    clash = _ELEMENT_CLASH.search(message)
    if clash is not None:
        where = next((m for m in _REASON.finditer(message) if clash[0] in m[3]), None)
        op = f"op '{where[2] or where[1]}'" if where else "an op"
        given, declared = (element_name(int(number)) or number for number in clash.groups())
        raise ModelError(f"{op} gives elements of type {given} where the model declares {declared}")
    try:
        if _CLASH in message:
            _settle(model, shapes)
        return shape_inference.infer_shapes(model, data_prop=True)
    except Exception as error:
        shapes.reasons.setdefault("", str(error).splitlines()[0] if str(error) else type(error).__name__)
        return model


def _settle(model: ModelProto, shapes: Shapes) -> None:
    """Remove from ``model`` the declared shapes that contradict what follows from the operators alone."""
    from onnx import ModelProto, shape_inference

    bare = ModelProto()
    bare.CopyFrom(model)
    computed = [{name for node in scope.graph.node for name in node.output if name} for scope in graphs_of(bare.graph)]
    for names, scope in zip(computed, graphs_of(bare.graph), strict=True):
        for value in itertools.chain(scope.graph.value_info, scope.graph.output):
            if value.name in names and value.type.HasField("tensor_type"):
                value.type.tensor_type.ClearField("shape")
    inferred = _collect(shape_inference.infer_shapes(bare, data_prop=True))
    for names, types, scope in zip(computed, inferred, graphs_of(model.graph), strict=True):
        for value in itertools.chain(scope.graph.value_info, scope.graph.output):
            declared, follows = value_type(value.type), types.get(value.name, ValueType())
            if value.name in names and _contradict(declared, follows):
                shapes.notes.append(
                    f"tensor '{value.name}' is declared as {_shown(declared)} but computed as {_shown(follows)}; "
                    "the computed shape holds"
                )
                value.type.tensor_type.ClearField("shape")


def _contradict(declared: ValueType, follows: ValueType) -> bool:
    if declared.dims is None or follows.dims is None:
        return False
    if len(declared.dims) != len(follows.dims):
        return True
    pairs = zip(declared.dims, follows.dims, strict=True)
    return any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in pairs)


def _shown(value: ValueType) -> str:
    return f"[{', '.join(str(dim) or '?' for dim in value.dims or ())}]"


def _collect(model: ModelProto) -> list[dict[str, ValueType]]:
    result = []
    for scope in graphs_of(model.graph):
        types: dict[str, ValueType] = {}
        for value in _values(scope.graph):
            found = value_type(value.type)
            types[value.name] = merge(types[value.name], found) if value.name in types else found
        result.append(types)
    return result


def _needs_help(scopes: Sequence[Scope], shapes: Shapes, light: ModelProto) -> bool:
    """Return whether symbolic inference could say more: inputs are known, but something computed is not."""
    if sum(len(scope.graph.node) for scope in scopes) > onnx_symbolic.MOST_NODES:
        return False
    main = scopes[0]
    for value in light.graph.input:
        if value.name not in main.constants and not _enough(shapes.types[0].get(value.name, ValueType())):
            return False
    return any(
        not _enough(shapes.types[index].get(name, ValueType()))
        for index, scope in enumerate(scopes)
        for node in scope.graph.node
        for name in node.output
        if name and name not in scope.constants
    )


def _enough(value: ValueType) -> bool:
    return value.kind != "tensor" or value.known()


def _ask_runtime(
    model: ModelProto, scopes: Sequence[Scope], shapes: Shapes, options: LoadOptions, dims: dict[str, int]
) -> None:
    for _ in range(2):
        helped = onnx_symbolic.infer(model)
        if helped is None or len(graphs_of(helped.graph)) != len(scopes):
            return
        _absorb(shapes, helped)
        stated = _state_shapes(helped, scopes, shapes, options.input_shapes, dims)
        if not (_state_dims(helped, dims, shapes) or stated):
            return
        model = _run(helped, shapes)
        _absorb(shapes, model)


def _absorb(shapes: Shapes, model: ModelProto) -> None:
    """Add what ``model`` states to what is known already."""
    for types, found in zip(shapes.types, _collect(model), strict=True):
        for name, value in found.items():
            types[name] = merge(types[name], value) if name in types else value


def _add_constants(scopes: Sequence[Scope], shapes: Shapes) -> None:
    for scope, types in zip(scopes, shapes.types, strict=True):
        for tensor in scope.graph.initializer:
            types[tensor.name] = ValueType("tensor", tensor.data_type, tuple(tensor.dims))
        for sparse in scope.graph.sparse_initializer:
            types[sparse_name(sparse)] = ValueType("a sparse tensor", sparse.values.data_type, tuple(sparse.dims))


def _refuse_unused(options: LoadOptions, scopes: Sequence[Scope], shapes: Shapes) -> None:
    for name in options.input_shapes:
        if not any(name in scope.defined for scope in scopes):
            raise UsageError(f"--input-shape {name}: the model has no tensor of that name")
    for name in options.dims:
        if name not in shapes.symbols:
            known = ", ".join(f"'{symbol}'" for symbol in itertools.islice(shapes.symbols, 8)) or "none"
            raise UsageError(f"--dim {name}: the model has no symbolic dimension of that name; it has: {known}")
