"""TFLite models in: all subgraphs as graphs, with what the file says about state, bodies and constants."""

from __future__ import annotations

import dataclasses
import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from memsched.base.errors import GraphError, ModelError, UsageError
from memsched.base.frozen import FrozenValue
from memsched.base.shown import ROWS_SHOWN
from memsched.base.suggestions import did_you_mean
from memsched.formats.module import Body, LoadOptions, Module
from memsched.formats.staging import describe
from memsched.formats.tflite import metadata, state
from memsched.formats.tflite.model import FileModel, FileOperator, FileSubgraph, FileTensor, parse
from memsched.formats.tflite.options import CONSTANT_INPUTS
from memsched.formats.tflite.own_tensors import own_tensors
from memsched.formats.tflite.quantization import quantization_of
from memsched.graph import dag
from memsched.graph.effects import Effects
from memsched.graph.model import AttributeValue, Graph, Op, Tensor
from memsched.ops.macs import macs_of
from memsched.ops.table import families

__all__ = ["GraphMapping", "TfliteNative", "read"]

COMPUTES_SHAPES: Final = ", and it computes shapes, so that it may take far more"
UNUSED: Final = "no operator refers to"
"""Parts of notes that tell them from others."""

_INDEXED = frozenset(CONSTANT_INPUTS) | families("expansion", "reshape")
"""Operators whose constants are indices and lengths: their values are attributes, their shapes say nothing."""

_KEPT = frozenset({"DENSIFY", "DEQUANTIZE"})
"""Operators that compute weights from what the file stores of them, once for all runs."""

_VIEWS = families("view")


class GraphMapping(FrozenValue, frozen=True):
    """How a graph lies in its subgraph: per op and per tensor their index in the file."""

    operators: tuple[int, ...]
    tensors: tuple[int, ...]


class TfliteNative(FrozenValue, frozen=True):
    """The file itself, and per graph of the module (subgraph of the file) the mapping to it."""

    model: FileModel
    mappings: tuple[GraphMapping, ...]


def read(data: bytes, path: str, options: LoadOptions) -> Module:
    """Read a TFLite model; graph i of the module is subgraph i of the file.

    Tensors with values in the file are constants and in no graph, and so is what is computed from them alone.

    Raises:
        ModelError: The bytes are no sound TFLite model, or its operators are in no order of execution.
        UsageError: ``options`` state shapes that differ from the stored ones.
    """
    try:
        model = parse(data)
        effects = state.operator_effects(model)
        stated = metadata.control_dependencies(model) or ((),) * len(model.subgraphs)
        lowered = [_lower(model, index, effects[index], stated[index]) for index in range(len(model.subgraphs))]
    except GraphError as error:
        raise error.at(describe(path)) from None
    except ModelError as error:
        raise error.at(f"{describe(path)} cannot be read") from None
    graphs = tuple(one.graph for one in lowered)
    _check_options(graphs[0], options)
    return Module(
        path=path,
        format="tflite",
        sha256=hashlib.sha256(data).hexdigest(),
        graphs=graphs,
        bodies=tuple(body for one in lowered for body in one.bodies),
        weights_bytes=_weights_bytes(model),
        constant_ops=sum(one.constant_ops for one in lowered),
        notes=tuple(note for one in lowered for note in one.notes),
        native=TfliteNative(model, tuple(one.mapping for one in lowered)),
    )


class _ParsedSubgraph(FrozenValue, frozen=True):
    graph: Graph
    mapping: GraphMapping
    bodies: tuple[Body, ...]
    constant_ops: int
    notes: tuple[str, ...]


def _lower(model: FileModel, index: int, effects: Sequence[Effects], stated: metadata.Edges) -> _ParsedSubgraph:
    subgraph = model.subgraphs[index]
    _check_producers(subgraph, index)
    constants, constant_ops = _constants(subgraph, effects)
    steps = [number for number in range(len(subgraph.operators)) if not constant_ops[number]]
    scratch = own_tensors(subgraph)
    tensors = [tensor for tensor in _graph_tensors(subgraph, steps, constants) if tensor not in scratch]
    place = {tensor: position for position, tensor in enumerate(tensors)}
    names = _unique_names(tensor.name for tensor in subgraph.tensors)
    values = tuple(_tensor(subgraph.tensors[tensor], names[tensor]) for tensor in tensors)
    computed = _computed(subgraph, constant_ops)
    graph = Graph(
        name=subgraph.name or f"subgraph{index}",
        tensors=values,
        ops=_with_scratch(_ops(model, subgraph, steps, place, (names, effects), computed), subgraph, steps, scratch),
        inputs=_places(subgraph.inputs, place),
        outputs=_places(subgraph.outputs, place),
        variables=tuple(place[tensor] for tensor in tensors if subgraph.tensors[tensor].variable),
        dependencies=_dependencies(subgraph, steps, effects, stated),
    )
    dag.validate(graph)
    bodies = tuple(
        Body(graph=body, parent=index, op=step)
        for step, number in enumerate(steps)
        for body in dict.fromkeys(subgraph.operators[number].bodies)
    )
    notes = _notes(subgraph, graph, tensors, constants, names)
    return _ParsedSubgraph(graph, GraphMapping(tuple(steps), tuple(tensors)), bodies, sum(constant_ops), notes)


def _check_producers(subgraph: FileSubgraph, index: int) -> None:
    producer: dict[int, int] = {}
    for number, operator in enumerate(subgraph.operators):
        for tensor in operator.outputs:
            if tensor < 0 or subgraph.tensors[tensor].variable:
                continue
            if tensor in producer:
                raise ModelError(
                    f"operators {producer[tensor]} and {number} both produce tensor {tensor} "
                    f"'{subgraph.tensors[tensor].name}'",
                    location=f"subgraph {index}",
                    code="stored-twice",
                )
            producer[tensor] = number


def _dependencies(
    subgraph: FileSubgraph, steps: Sequence[int], effects: Sequence[Effects], stated: metadata.Edges
) -> tuple[tuple[int, int], ...]:
    """Return the order that state and the file's own metadata ask for."""
    found = dict.fromkeys(state.dependencies(subgraph, steps, effects))
    # A chain over all operators pins an order that some tool chose; it says nothing about what the model needs.
    if stated and not metadata.is_chain(stated, len(subgraph.operators)):
        place = {number: step for step, number in enumerate(steps)}
        found.update(dict.fromkeys((place[a], place[b]) for a, b in stated if a in place and b in place))
    return tuple(sorted(found))


def _constants(subgraph: FileSubgraph, effects: Sequence[Effects]) -> tuple[list[bool], list[bool]]:
    """Return per tensor whether it is a constant, and per operator whether it computes constants from constants."""
    produced = {tensor for operator in subgraph.operators for tensor in operator.outputs}
    given = set(subgraph.inputs)
    constants = [
        not tensor.variable
        and number not in produced
        # Without data and without bytes it is an empty list, such as the shape of a scalar.
        and (tensor.has_data or (tensor.size == 0 and tensor.sized and number not in given))
        for number, tensor in enumerate(subgraph.tensors)
    ]
    kept = set(subgraph.outputs)
    constant_ops = []
    for operator, effect in zip(subgraph.operators, effects, strict=True):
        constant = effect.pure and _is_constant(operator, constants, kept)
        constant_ops.append(constant)
        if constant:
            for tensor in operator.outputs:
                if tensor >= 0:
                    constants[tensor] = True
    return constants, constant_ops


def _is_constant(operator: FileOperator, constants: Sequence[bool], kept: set[int]) -> bool:
    present = [tensor for tensor in operator.inputs if tensor >= 0]
    if operator.bodies or not all(constants[tensor] for tensor in present):
        return False
    # A graph output has to be produced in memory, constant or not.
    return bool(present or operator.type == "STABLEHLO_IOTA") and not any(tensor in kept for tensor in operator.outputs)


def _graph_tensors(subgraph: FileSubgraph, steps: Sequence[int], constants: Sequence[bool]) -> list[int]:
    """Return the tensors that a graph has, in the file's order: given, read, produced or variable, no constants."""
    used = {*subgraph.inputs, *subgraph.outputs}
    for number in steps:
        used.update(subgraph.operators[number].inputs)
        used.update(subgraph.operators[number].outputs)
    return [
        tensor
        for tensor in range(len(subgraph.tensors))
        if not constants[tensor] and (tensor in used or subgraph.tensors[tensor].variable)
    ]


def _with_scratch(
    ops: Sequence[Op], subgraph: FileSubgraph, steps: Sequence[int], scratch: Mapping[int, int]
) -> tuple[Op, ...]:
    """Return the ops with what they have for themselves as workspace."""
    size: Counter[int] = Counter()
    for tensor, operator in scratch.items():
        size[operator] += subgraph.tensors[tensor].size
    return tuple(
        dataclasses.replace(op, workspace=op.workspace + size[number]) if size[number] else op
        for op, number in zip(ops, steps, strict=True)
    )


def _unique_names(names: Iterable[str]) -> list[str]:
    """Return names that differ: an empty or repeated one gets its index."""
    stored = list(names)
    taken = set(stored)
    seen: set[str] = set()
    result = []
    for index, name in enumerate(stored):
        unique = name
        if not name or name in seen:
            unique = f"{name or 'tensor'}#{index}"
            while unique in taken:
                unique += "'"
            taken.add(unique)
        seen.add(unique)
        result.append(unique)
    return result


def _tensor(tensor: FileTensor, name: str) -> Tensor:
    return Tensor(name, tensor.size, tensor.shape, tensor.dtype, sized=tensor.sized)


def _places(tensors: Iterable[int], place: dict[int, int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(place[tensor] for tensor in tensors if tensor in place))


def _computed(subgraph: FileSubgraph, constant_ops: Sequence[bool]) -> dict[int, FileOperator]:
    """Return the constants that are computed from others, each with the operator that does."""
    return {
        tensor: operator
        for operator, constant in zip(subgraph.operators, constant_ops, strict=True)
        if constant
        for tensor in operator.outputs
        if tensor >= 0
    }


def _ops(
    model: FileModel,
    subgraph: FileSubgraph,
    steps: Sequence[int],
    place: dict[int, int],
    described: tuple[Sequence[str], Sequence[Effects]],
    computed: Mapping[int, FileOperator],
) -> tuple[Op, ...]:
    names, effects = described
    taken = set(names)
    equal: Counter[str] = Counter()
    ops = []
    for number in steps:
        operator = subgraph.operators[number]
        # State is not produced: it is there before and after.
        outputs = [tensor for tensor in operator.outputs if tensor >= 0 and not subgraph.tensors[tensor].variable]
        name = names[outputs[0]] if outputs else _name_without_output(operator, names, taken, equal)
        read = [(place[tensor], position) for position, tensor in enumerate(operator.inputs) if tensor in place]
        ops.append(
            Op(
                name=name,
                type=operator.type,
                inputs=tuple(tensor for tensor, _ in read),
                outputs=tuple(place[tensor] for tensor in outputs),
                attributes=MappingProxyType(
                    {
                        **operator.attributes,
                        **_constants_say(model, subgraph, operator, place),
                        **_computed_say(subgraph, operator, names, computed),
                    }
                ),
                positions=tuple(position for _, position in read),
                macs=macs_of(
                    operator.type,
                    operator.attributes,
                    _shapes(subgraph, operator.inputs),
                    _shapes(subgraph, operator.outputs),
                ),
                effects=effects[number],
            )
        )
    return tuple(ops)


def _name_without_output(operator: FileOperator, names: Sequence[str], taken: set[str], equal: Counter[str]) -> str:
    """Return a name that another order of the operators does not change: equal ones keep their order among them."""
    tensors = (tensor for tensor in (*operator.inputs, *operator.outputs) if tensor >= 0)
    name = f"{operator.type}({', '.join(names[tensor] for tensor in tensors)})"
    equal[name] += 1
    if equal[name] > 1:
        name = f"{name}#{equal[name]}"
    while name in taken:
        name += "'"
    return name


def _constants_say(
    model: FileModel, subgraph: FileSubgraph, operator: FileOperator, place: dict[int, int]
) -> dict[str, AttributeValue]:
    """Return what the constants of an operator say of it.

    ``constant_shape_<position>`` of each that it computes with, and ``hybrid`` where it multiplies numbers of floating
    point by integer weights: the runtime then quantises the data by the range that it finds in it. ``weights_bits``
    are those of such weights, and ``scales_differ`` says that not all of their channels have one scale.
    """
    if operator.type in _INDEXED:
        return {}
    found: dict[str, AttributeValue] = {}
    dtypes = set()
    for position, tensor in enumerate(operator.inputs):
        if tensor >= 0 and tensor not in place:
            found[f"constant_shape_{position}"] = subgraph.tensors[tensor].shape
            dtypes.add(subgraph.tensors[tensor].dtype)
    floats = any(subgraph.tensors[tensor].dtype == "float32" for tensor in operator.inputs if tensor in place)
    if floats and dtypes & {"int4", "int8", "uint8"}:
        found["hybrid"] = True
        found["weights_bits"] = 4 if "int4" in dtypes else 8
        scales, _ = quantization_of(model, subgraph.tensors[operator.inputs[1]])
        if operator.type == "CONV_2D" and len(set(scales)) > 1:
            found["scales_differ"] = True
    return found


def _computed_say(
    subgraph: FileSubgraph, operator: FileOperator, names: Sequence[str], computed: Mapping[int, FileOperator]
) -> dict[str, AttributeValue]:
    """Return what a runtime that does not fold constants keeps for an operator that reads computed constants.

    ``constant_kept`` names those that are made of what the file stores, once for all runs, and ``constant_kept_bytes``
    are their sizes; ``constant_made_bytes`` are those of the others, which are made in each run, and ``constant_made``
    the input positions of these, views included.
    """
    kept: dict[str, int] = {}
    made = 0
    pending = [tensor for tensor in dict.fromkeys(operator.inputs) if tensor in computed]
    direct = set(pending)
    for tensor in pending:
        maker, size = computed[tensor], subgraph.tensors[tensor].size
        sources = [source for source in maker.inputs if source in computed and source not in pending]
        pending += sources
        if maker.type in _KEPT and not sources:
            kept[names[tensor]] = size
        elif tensor in direct and maker.type not in _VIEWS:
            made += size
    found: dict[str, AttributeValue] = {}
    if kept:
        found["constant_kept"], found["constant_kept_bytes"] = tuple(kept), tuple(kept.values())
    if made:
        found["constant_made_bytes"] = made
    places = tuple(
        place for place, tensor in enumerate(operator.inputs) if tensor in direct and names[tensor] not in kept
    )
    if places:
        found["constant_made"] = places
    return found


def _shapes(subgraph: FileSubgraph, tensors: Sequence[int]) -> list[tuple[int, ...] | None]:
    return [subgraph.tensors[tensor].shape if tensor >= 0 else None for tensor in tensors]


def _weights_bytes(model: FileModel) -> int:
    """Bytes of all buffers that tensors refer to; a buffer that several share counts once."""
    used = {tensor.buffer for subgraph in model.subgraphs for tensor in subgraph.tensors if tensor.has_data}
    return sum(model.buffers[buffer].size for buffer in used if buffer < len(model.buffers))


def _computes_shapes(graph: Graph) -> bool:
    return any(op.type == "SHAPE" for op in graph.ops)


def _notes(
    subgraph: FileSubgraph, graph: Graph, tensors: Sequence[int], constants: Sequence[bool], names: Sequence[str]
) -> tuple[str, ...]:
    notes = []
    where = f"subgraph '{graph.name}': "
    unsized = [tensor.name for tensor in graph.tensors if not tensor.sized]
    if unsized:
        notes.append(f"{where}no size is known of, and nothing counted for, {_list(unsized)}")
    dynamic = [names[tensor] for tensor in tensors if subgraph.tensors[tensor].dynamic]
    if dynamic:
        # What converters store of a shape that the model computes is often 1 along each axis.
        more = COMPUTES_SHAPES if _computes_shapes(graph) else ""
        notes.append(f"{where}dynamic shapes are counted as the file stores them{more}: {_list(dynamic)}")
    constant_outputs = [names[tensor] for tensor in subgraph.outputs if tensor >= 0 and constants[tensor]]
    if constant_outputs:
        notes.append(f"{where}outputs that are constants take no activation memory: {_list(constant_outputs)}")
    dead = _dead(subgraph, constants)
    if dead:
        size = sum(subgraph.tensors[tensor].size for tensor in dead)
        notes.append(
            f"{where}{UNUSED} {_list([names[tensor] for tensor in dead])} ({size} bytes in all, "
            "not counted; TensorFlow Lite Micro allocates them all the same)"
        )
    return tuple(notes)


def _dead(subgraph: FileSubgraph, constants: Sequence[bool]) -> list[int]:
    referred = {*subgraph.inputs, *subgraph.outputs}
    for operator in subgraph.operators:
        referred.update(operator.inputs, operator.outputs, operator.intermediates)
    return [
        number
        for number, tensor in enumerate(subgraph.tensors)
        if number not in referred and not constants[number] and not tensor.variable
    ]


def _list(names: Sequence[str]) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:ROWS_SHOWN])
    return shown if len(names) <= ROWS_SHOWN else f"{shown} and {len(names) - ROWS_SHOWN} more"


def _check_options(graph: Graph, options: LoadOptions) -> None:
    """TFLite files store every shape: stating the stored one is fine, another one would be a lie."""
    if options.dims:
        name = next(iter(options.dims))
        raise UsageError("a TFLite model has no named dimensions", location=f"--dim {name}", code="no-such-dimension")
    inputs = {graph.tensors[tensor].name: graph.tensors[tensor].shape for tensor in graph.inputs}
    for name, shape in options.input_shapes.items():
        if name not in inputs:
            hint, known = did_you_mean(name, inputs), _list(list(inputs))
            raise UsageError(
                f"the model has no such input{hint}; its inputs are {known}",
                location=f"--shape {name}",
                code="no-such-tensor",
            )
        if tuple(shape) != inputs[name]:
            stored = ",".join(map(str, inputs[name] or ()))
            raise UsageError(
                f"a TFLite file stores its shapes, and this input has {stored}",
                code="shape-differs",
                location=f"--shape {name}",
                action="convert the model again to change it",
            )
