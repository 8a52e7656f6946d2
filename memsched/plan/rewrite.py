"""A model's file with a graph that was rewritten, read back and checked before anything is made of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from memsched.base.errors import InternalError
from memsched.check.border import check_border, check_interface
from memsched.check.rewrite import check_rewrite, check_written
from memsched.formats.capabilities import ScaledWeights
from memsched.formats.known import capability, format_of
from memsched.formats.module import LoadOptions, Module
from memsched.formats.read_back import load_again
from memsched.graph.border import Border
from memsched.graph.dag import producers
from memsched.graph.dialect import Dialect
from memsched.graph.model import Graph, Op
from memsched.graph.parts import readers_of
from memsched.graph.replacement import rebuilt
from memsched.runtimes.known import runtime_of
from memsched.runtimes.runtime import AS_TOLD, Opening
from memsched.targets.model import Target

__all__ = ["dialect_of", "plain", "read_back", "restated", "with_origins", "without_merged"]


def dialect_of(module: Module, target: Target) -> Dialect:
    """Return how the module's format says what rewrites add, within what the target's runtime takes."""
    words = format_of(module).dialect(module)
    loop = words.loop if target.loops else None
    if loop is not None:
        parts = {name for rule in target.part_views if rule.kind == "concatenation" for name in rule.ops}
        unrolled = target.loops == "if"
        joined = words.concat_type in parts and words.pad_type not in target.pads_over_inputs and not unrolled
        loop = dataclasses.replace(loop, unrolled=unrolled, joined=joined)
    return dataclasses.replace(words, most_joined=target.most_join_inputs, loop=loop)


def plain(module: Module) -> Module:
    """Return ``module``, which may have been rewritten before, as one that is given: no op has an origin."""
    graph = module.graphs[0]
    if all(op.origin is None and op.region is None for op in graph.ops):
        return module
    ops = tuple(dataclasses.replace(op, origin=None, region=None) for op in graph.ops)
    return dataclasses.replace(module, graphs=(dataclasses.replace(graph, ops=ops), *module.graphs[1:]))


def read_back(
    module: Module,
    graph: Graph,
    options: LoadOptions,
    target: Target,
    go_on: Callable[[], None] = lambda: None,
    borders: Sequence[Border] = (),
    *,
    proven: bool = False,
    opening: Opening = AS_TOLD,
) -> tuple[Module, bytes]:
    """Write ``module`` with its main graph rewritten to ``graph``, in the order of its ops, and read that file.

    Args:
        target: Whose runtime shall take all that was added.
        go_on: Called between the steps; may raise to give up.
        borders: What the caller does instead of the model; then nothing else may have changed.
        proven: It was checked what the graph computes, which it may do by other ops.
        opening: How the file will be opened, which decides what may be made part of weights.

    Returns:
        The module, whose ops say what they were made from, and the file's bytes.

    Raises:
        InternalError: The file does not hold the graph.
        ModelError: The target's runtime would refuse an operator that ``module`` does not have in such a form.
    """
    if borders:
        check_border(module.graphs[0], graph, borders)
    elif not proven:
        check_rewrite(module.graphs[0], graph)
    form = format_of(module)
    multiplied = runtime_of(module, target, opening).traits.multiplies_scales
    multiplied = multiplied and any(op.origin is not None for op in graph.ops)
    scaled = capability(form, ScaledWeights).rewrite_scaled(module, graph) if multiplied else None
    if scaled is None:
        data = form.rewrite(module, graph)
    else:
        data, merged = scaled
        graph = without_merged(graph, merged)
    go_on()
    again = load_again(module, data, restated(options, borders), "rewritten")
    go_on()
    runtime_of(again, target).check_kernels(module, again)
    found = again.graphs[0]
    check_written(graph, range(len(graph.ops)), found, named=form.traits.names_kept)
    if borders:
        check_interface(borders, form.interface(module), form.interface(again))
    ops = tuple(
        dataclasses.replace(op, origin=made.origin, region=made.region, macs=made.macs if made.loop else op.macs)
        for op, made in zip(found.ops, graph.ops, strict=True)
    )
    return dataclasses.replace(again, graphs=(dataclasses.replace(found, ops=ops), *again.graphs[1:])), data


def without_merged(graph: Graph, merged: Mapping[str, str]) -> Graph:
    """Return ``graph`` with ops as part of those before them.

    Args:
        merged: Tensors to be left out, each with the one that its op makes instead.

    Raises:
        InternalError: A tensor to be left out is an output, or read by more than the op that made the other one.
    """
    if not merged:
        return graph
    number = {tensor.name: place for place, tensor in enumerate(graph.tensors)}
    maker, readers = producers(graph), readers_of(graph)
    ops: dict[int, Op] = {}
    into: dict[int, int] = {}
    for old, new in merged.items():
        left_out, made = number[old], number[new]
        by = maker[made]
        op = graph.ops[by]
        alone = readers[left_out] == [by] and op.inputs == (left_out,) and op.outputs == (made,)
        if not alone or left_out in graph.outputs or graph.tensors[left_out].shape != graph.tensors[made].shape:
            raise InternalError(f"tensor '{old}' cannot be left out of the rewritten model", code="cannot-leave-out")
        place = into.get(maker[left_out], maker[left_out])
        ops[place] = dataclasses.replace(ops.get(place, graph.ops[place]), outputs=(made,))
        into[by] = place
    left = [place for place in range(len(graph.ops)) if place not in into]
    at = {place: index for index, place in enumerate(left)}
    tied = {place: at[into.get(place, place)] for place in range(len(graph.ops))}
    return rebuilt(
        graph,
        graph.tensors,
        [ops.get(place, graph.ops[place]) for place in left],
        tied,
        {number[old] for old in merged},
    )


def restated(options: LoadOptions, borders: Sequence[Border]) -> LoadOptions:
    """Return what is stated of a model as it is stated of the one with another border: by the new inputs' names."""
    gone = {border.given.name: border.written for border in borders if border.side == "input"}
    if not gone.keys() & options.input_shapes.keys():
        return options
    kept = {name: shape for name, shape in options.input_shapes.items() if name not in gone}
    return dataclasses.replace(options, input_shapes={**kept, **{one.name: one.shape for one in gone.values()}})


def with_origins(again: Module, before: Module) -> Module:
    """Return ``again``, a rewritten ``before``, with ops that say what they were made from in the first place."""
    known = {op.name: op for op in before.graphs[0].ops}
    sources = [known.get(op.origin or op.name, op) for op in again.graphs[0].ops]
    ops = tuple(
        dataclasses.replace(
            op, origin=source.origin or op.origin, region=source.region if op.region is None else op.region
        )
        for op, source in zip(again.graphs[0].ops, sources, strict=True)
    )
    graph = dataclasses.replace(again.graphs[0], ops=ops)
    return dataclasses.replace(again, graphs=(graph, *again.graphs[1:]))
