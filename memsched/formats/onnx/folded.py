"""A model without its shape arithmetic: where sizes are stated, what is computed from them alone is a constant.

Exporters compute the shapes that a Reshape or a Resize takes from the shapes of other tensors. An operator whose shape
is computed cannot be computed in pieces, and the arithmetic reads tensors that are then kept for nothing else.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Final

from onnx import ModelProto, TensorProto

from memsched.formats.module import LoadOptions, Module
from memsched.formats.onnx import folding
from memsched.formats.onnx.dimensions import fix
from memsched.formats.onnx.external import folder_of
from memsched.formats.onnx.light import lighten
from memsched.formats.onnx.shapes import infer
from memsched.formats.onnx.standard import IrVersion
from memsched.formats.onnx.structure import analyse
from memsched.formats.onnx.types import SHAPE_ELEMENTS
from memsched.formats.onnx.writer import drop_unread, list_initializers

__all__ = ["folded"]

_ASKS: Final = frozenset({"Shape", "Size"})


def folded(module: Module, options: LoadOptions) -> bytes | None:
    """Return ``module`` with the shape arithmetic of its main graph carried out, for the sizes it was read with alone.

    Sizes that only a run told may depend on data: nothing is computed from them.

    Args:
        options: With which it was read.

    Returns:
        The file, whose inputs have fixed sizes; None where there is nothing to carry out, or it is too large for one
        message.
    """
    graph, native = module.graphs[0], module.native
    if not any(op.type in _ASKS for op in graph.ops):
        return None
    model = native.scheduled()
    if _sizes_are_free(model):
        return None
    values = _computed(module, options)
    for node, op in zip(native.nodes[0], graph.ops, strict=True):
        model.graph.node[node].name = op.name  # what was numbered by its place keeps its name
    if not _carry_out(model, module, values):
        return None
    fix(model, graph)
    if model.ir_version < IrVersion.FREE_INITIALIZERS:
        list_initializers(model.graph)
    try:
        data: bytes = model.SerializeToString(deterministic=True)
    except ValueError:
        return None
    return data


def _sizes_are_free(model: ModelProto) -> bool:
    """Whether callers may replace integers that shapes can be computed from."""
    if model.ir_version < IrVersion.FREE_INITIALIZERS:
        return False
    inputs = {value.name for value in model.graph.input}
    return any(tensor.name in inputs and tensor.data_type in SHAPE_ELEMENTS for tensor in model.graph.initializer)


def _computed(module: Module, options: LoadOptions) -> Mapping[str, TensorProto]:
    """Return the small values of the main graph that follow from sizes and constants."""
    light = module.native.scheduled()
    lighten(light, folder_of(module.path))
    scopes = analyse(light.graph)
    shapes = infer(light, scopes, dataclasses.replace(options, observed=None))
    before = {tensor.name for tensor in light.graph.initializer}
    folding.fold(light, scopes, shapes.types, set(shapes.idle))
    return {tensor.name: tensor for tensor in light.graph.initializer if tensor.name not in before}


def _carry_out(model: ModelProto, module: Module, values: Mapping[str, TensorProto]) -> bool:
    """Replace in place the steps that make ``values`` alone, and what was made for them only; return whether any was.

    What the graph gives its caller is computed as before, and ops with effects are executed as before.
    """
    main, native = model.graph, module.native
    effects = {node for node, op in zip(native.nodes[0], module.graphs[0].ops, strict=True) if not op.effects.pure}
    results = {value.name for value in main.output}
    gone = {
        node
        for node in native.nodes[0]
        if all(not name or (name in values and name not in results) for name in main.node[node].output)
    }
    if not gone:
        return False
    scopes = analyse(main)
    captured = {name for scope in scopes[1:] for name in scope.free}
    made = {name for node in gone for name in main.node[node].output if name}
    _add_unread(model, gone, results | captured, effects)
    kept = [node for number, node in enumerate(main.node) if number not in gone]
    read = captured.union(*(node.input for node in kept))
    weights = {tensor.name for tensor in main.initializer}
    were_read = weights.intersection(name for node in gone for name in main.node[node].input)
    known = {name for node in gone for name in main.node[node].output}
    stated = [value for value in main.value_info if value.name not in known]
    for field, left in ((main.node, kept), (main.value_info, stated)):
        del field[:]
        field.extend(left)
    drop_unread(model, scopes, were_read)
    main.initializer.extend(values[name] for name in sorted(made & read))
    return True


def _add_unread(model: ModelProto, gone: set[int], needed: Collection[str], kept: Collection[int]) -> None:
    """Add to ``gone`` the nodes that only nodes in it read, but for those in ``kept``."""
    nodes = model.graph.node
    readers: dict[str, set[int]] = {}
    maker: dict[str, int] = {}
    for number, node in enumerate(nodes):
        maker.update((name, number) for name in node.output if name)
        for name in node.input:
            readers.setdefault(name, set()).add(number)
    waiting = list(gone)
    while waiting:
        for name in nodes[waiting.pop()].input:
            number = maker.get(name, -1)
            if number < 0 or number in gone or number in kept:
                continue
            outputs = [made for made in nodes[number].output if made]
            if all(made not in needed and readers.get(made, set()) <= gone for made in outputs):
                gone.add(number)
                waiting.append(number)
