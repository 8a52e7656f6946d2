"""Read an ONNX model: bytes to graphs, without its weights."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace

from onnx import ModelProto

from memsched.base.errors import MemschedError, ModelError
from memsched.base.shown import ROWS_SHOWN
from memsched.formats.module import LoadOptions, Module
from memsched.formats.onnx import checks, ranks
from memsched.formats.onnx import external as onnx_external
from memsched.formats.onnx import functions as onnx_functions
from memsched.formats.onnx import graphs as onnx_graphs
from memsched.formats.onnx import light as onnx_light
from memsched.formats.onnx import shapes as onnx_shapes
from memsched.formats.onnx.graph_effects import effects_of
from memsched.formats.onnx.native import OnnxNative
from memsched.formats.onnx.nodes import opset
from memsched.formats.onnx.structure import Scope, analyse
from memsched.formats.onnx.types import tensor_bytes
from memsched.graph import dag
from memsched.search.heap import give_back

__all__ = ["lightened", "parse", "read"]


def read(data: bytes, path: str, options: LoadOptions | None = None) -> Module:
    """Return the module that the bytes of an ONNX file describe.

    Args:
        path: Used in messages, and its folder for external data; "-" for standard input and the current folder.

    Raises:
        ModelError: The file is damaged, contradictory or not supported.
        UnknownShapeError: A size is unknown; the message names the option that states it.
        UsageError: An option does not fit the model.
    """
    try:
        return _read(data, path, options or LoadOptions())
    except MemschedError as error:
        raise error.at(_where(path)) from error
    except UnicodeDecodeError as error:
        raise ModelError("the model is damaged: a name is not UTF-8 text", code="not-utf8", location=path) from error


def all_sizes_follow(data: bytes, path: str, options: LoadOptions) -> bool:
    """Whether every size of a model follows from what is stated, so that no run may show others."""
    try:
        read(data, path, replace(options, observed=None))
    except MemschedError:
        return False
    return True


def sizes_that_follow(data: bytes, path: str, options: LoadOptions) -> frozenset[str]:
    """Return the values of the main graph whose sizes follow from what is stated, so that no run may show others."""
    try:
        light, _, _ = lightened(data, path)
        scopes = analyse(light.graph, folded=options.folded)
        checks.import_operators(light, scopes)
        found = onnx_shapes.infer(light, scopes, replace(options, observed=None)).types[0]
    except MemschedError:
        return frozenset()
    return frozenset(name for name, value in found.items() if value.lengths() is not None)


def lightened(data: bytes, path: str) -> tuple[ModelProto, onnx_light.ExternalData, str]:
    """Return a model without its weights, with functions inlined where it calls any; and which, in words."""
    model = _parse(data)
    checks.check_header(model)
    kinds = ["model-local functions"] if onnx_functions.calls_functions(model) else []
    kinds += ["HardSwish and Mish"] if onnx_functions.takes_apart(data, model) else []
    external = onnx_light.lighten(model, onnx_external.folder_of(path))
    light = _compact(model) if external.stripped else model
    del model
    if kinds:
        light, external.attributed = onnx_functions.inline(light), None
    return light, external, ", ".join(kinds)


def _read(data: bytes, path: str, options: LoadOptions) -> Module:
    light, external, inlined = lightened(data, path)
    scopes = analyse(light.graph, folded=options.folded, known=external.attributed)
    checks.check_nodes(scopes)
    if not inlined:
        # Names that inlining made say nothing about the file.
        checks.check_names(scopes)
    checks.check_inputs(light.graph, scopes[0])
    checks.import_operators(light, scopes)
    ranks.check_ranks(scopes)
    weights_bytes = sum(onnx_light.constant_bytes(scope.graph, nodes="Constant" in scope.operators) for scope in scopes)
    shapes = onnx_shapes.infer(light, scopes, options)
    give_back(len(data))
    effects = effects_of(scopes, light.functions, opset(light))
    built = onnx_graphs.build(scopes, shapes, effects, opset(light))
    for graph in built.graphs:
        dag.validate(graph)
    notes = [*external.notes(), *shapes.notes, *_notes(scopes, built)]
    if inlined:
        left = " (those that import another operator-set version stay calls)" if light.functions else ""
        notes.append(f"{inlined} are inlined; a reordered model is written with them inlined{left}")
    return Module(
        path=path,
        format="onnx",
        sha256=hashlib.sha256(data).hexdigest(),
        graphs=tuple(built.graphs),
        bodies=tuple(built.bodies),
        weights_bytes=weights_bytes,
        constant_ops=sum(sum(scope.constant_node) for scope in scopes),
        notes=tuple(notes),
        native=OnnxNative(
            data=data,
            inlined=bool(inlined),
            nodes=tuple(built.nodes),
            constant_nodes=tuple(
                tuple(node for node, constant in enumerate(scope.constant_node) if constant) for scope in scopes
            ),
            external=tuple(external.locations),
            computed_bytes=tuple(_computed_bytes(scopes, shapes)),
            constants=any(scope.constants for scope in scopes),
            folded=options.folded,
        ),
    )


def _computed_bytes(scopes: Sequence[Scope], shapes: onnx_shapes.Shapes) -> Iterator[tuple[str, int]]:
    """Yield the constants that nodes of the main graph compute, with their sizes."""
    for names, constant in zip(scopes[0].writes, scopes[0].constant_node, strict=True):
        for name in names if constant else ():
            value = shapes.of(scopes, 0, name)
            lengths = value.lengths()
            if name and value.kind == "tensor" and value.element and lengths is not None:
                yield name, tensor_bytes(value.element, lengths)


def parse(data: bytes, path: str) -> ModelProto:
    """Return the model in the bytes of an ONNX file, as it is there.

    Args:
        path: Used in messages.

    Raises:
        ModelError: It is none.
    """
    try:
        return _parse(data)
    except ModelError as error:
        raise error.at(_where(path)) from error


def _where(path: str) -> str:
    return "standard input" if path == "-" else path


def _parse(data: bytes) -> ModelProto:
    if not data:
        raise ModelError("the file is empty", code="empty-file")
    try:
        model: ModelProto = ModelProto.FromString(data)
    except Exception as error:  # protobuf's DecodeError, or a RuntimeError in some of its releases
        raise ModelError(
            "the file is damaged, or is not an ONNX model: its protobuf cannot be decoded",
            code="not-onnx",
            action="export or copy it again",
        ) from error
    if not model.HasField("graph"):
        raise ModelError("not an ONNX model: it holds no graph", code="not-onnx")
    return model


def _compact(model: ModelProto) -> ModelProto:
    """Return a copy that no longer holds the memory of the removed weights."""
    compact: ModelProto = ModelProto.FromString(model.SerializeToString())
    return compact


def _notes(scopes: Sequence[Scope], built: onnx_graphs.ParsedGraphs) -> list[str]:
    notes = []
    main = scopes[0]
    fixed = [f"'{value.name}'" for value in main.graph.input if value.name in main.constants]
    if fixed:
        notes.append(f"graph inputs with a default are taken as constants: {_list(fixed)}")
    if built.unsized:
        notes.append(f"values that have no size of their own count nothing: {_list(built.unsized)}")
    if built.unread:
        notes.append(f"values of unknown size that nobody reads count nothing: {_list(built.unread)}")
    if built.idle:
        notes.append(f"branches that are never taken at these sizes count nothing: {_list(built.idle)}")
    if built.constant_outputs:
        names = [f"'{name}'" for name in built.constant_outputs]
        notes.append(f"graph outputs that are constants count nothing: {_list(names)}")
    return notes


def _list(names: Sequence[str]) -> str:
    more = f" and {len(names) - ROWS_SHOWN} more" if len(names) > ROWS_SHOWN else ""
    return ", ".join(names[:ROWS_SHOWN]) + more
