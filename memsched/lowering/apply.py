"""A target's rules laid on a graph: which tensors share bytes, who owns the inputs, what ops need beside their outputs.

A target only permits. No target file can make two live values share bytes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from memsched.graph.model import Graph, Op, Tensor
from memsched.lowering.litert_kernels import own_memory, with_lasting
from memsched.lowering.sharing import Sharing, Views
from memsched.lowering.xnnpack import is_delegated
from memsched.targets.model import Target

__all__ = ["NIBBLES", "Workspaces", "apply_target", "with_workspaces"]

NIBBLES = frozenset({"float4_e2m1fn", "int4", "uint4"})


def apply_target(graph: Graph, target: Target) -> Graph:
    """Return ``graph`` as ``target`` executes it: views, in-place permissions, workspaces, sizes, owners of inputs.

    Views and in-place permissions that ``graph`` has are replaced; workspaces that it has are added to, so a graph
    is lowered once. Graph inputs that the target keeps to the end become variables, which are always live; what its
    kernels keep is another one, behind the graph's own tensors.
    """
    inputs = set(graph.inputs)
    tensors = list(graph.tensors)
    for index in inputs if target.int4_bytes_per_element != 1 else range(len(tensors)):
        tensors[index] = _tensor(tensors[index], index in inputs, target)
    variables = graph.variables
    if target.inputs == "kept":
        variables = tuple(dict.fromkeys((*variables, *graph.inputs)))
    bare = [replace(op, views=(), view_offsets=(), in_place=()) if op.views or op.in_place else op for op in graph.ops]
    sized = replace(graph, tensors=tuple(tensors), variables=variables, ops=tuple(bare))
    sharing = Sharing(sized, target)
    views = sharing.all_views()
    if sharing.absorbed:
        for output, size in [(output, tensors[source].size) for output, source in sharing.absorbed.items()]:
            tensors[output] = replace(tensors[output], size=size)
        sized = replace(sized, tensors=tuple(tensors))
    # All views come first: what may be overwritten depends on views that later ops make.
    pairs = sharing.all_in_place()
    rules = Workspaces.of(target)
    ruled = rules.always.keys() | rules.off_last_axis.keys()
    scratch = [rules.bytes(sized, op) if op.type in ruled else 0 for op in sized.ops]
    if target.kernels_keep_memory:
        for number, op in enumerate(sized.ops):
            if not (target.default_delegate and is_delegated(sized, op)):
                scratch[number] += own_memory(sized, op).step_bytes
    ops = [
        _ruled(op, seen, written, op.workspace + extra) if seen.pairs or written or extra else op
        for op, seen, written, extra in zip(sized.ops, views, pairs, scratch, strict=True)
    ]
    lowered = replace(sized, ops=tuple(ops))
    return with_lasting(lowered) if target.kernels_keep_memory else lowered


def _ruled(op: Op, seen: Views, in_place: tuple[tuple[int, int], ...], workspace: int) -> Op:
    # Not `replace`, which takes five times as long.
    return Op(
        op.name,
        op.type,
        op.inputs,
        op.outputs,
        workspace,
        seen.pairs,
        in_place,
        op.attributes,
        op.positions,
        op.macs,
        op.origin,
        op.region,
        seen.offsets,
        op.loop,
        op.chain,
        op.terms,
        op.effects,
    )


def with_workspaces(graph: Graph, workspaces: Mapping[int, int]) -> Graph:
    """Return ``graph`` with ``workspaces`` (op index to bytes) added to those ops' own: the peaks of their bodies."""
    if not workspaces:
        return graph
    ops = list(graph.ops)
    for index, size in workspaces.items():
        ops[index] = replace(ops[index], workspace=ops[index].workspace + size)
    return replace(graph, ops=tuple(ops))


def _tensor(tensor: Tensor, is_input: bool, target: Target) -> Tensor:
    size = tensor.size
    if target.int4_bytes_per_element == 1 and tensor.sized and tensor.shape is not None and tensor.dtype in NIBBLES:
        size = math.prod(tensor.shape)
    external = tensor.external or (is_input and target.inputs == "caller")
    if (size, external) == (tensor.size, tensor.external):
        return tensor
    # Not `replace`, which takes five times as long: a graph may have a million inputs.
    return Tensor(tensor.name, size, tensor.shape, tensor.dtype, tensor.sized, external, tensor.stated)


@dataclass(frozen=True)
class Workspaces:
    """The rules by operator: units of output size, and those that hold only off the last axis."""

    always: Mapping[str, float]
    off_last_axis: Mapping[str, float]

    @staticmethod
    def of(target: Target) -> Workspaces:
        """Return the rules of ``target``."""
        by_condition: dict[str, dict[str, float]] = {"always": {}, "axis_not_last": {}}
        for rule in target.workspace:
            units = by_condition[rule.when]
            for name in rule.ops:
                units[name] = units.get(name, 0) + rule.outputs
        return Workspaces(by_condition["always"], by_condition["axis_not_last"])

    def units(self, graph: Graph, op: Op) -> float:
        """Return what an op needs, in units of the size of its outputs."""
        units = self.always.get(op.type, 0)
        if op.type in self.off_last_axis and not _on_last_axis(graph, op):
            units += self.off_last_axis[op.type]
        return units

    def bytes(self, graph: Graph, op: Op) -> int:
        """Return what an op needs, in bytes."""
        units = self.units(graph, op)
        return math.ceil(units * sum(graph.tensors[tensor].size for tensor in op.outputs)) if units else 0


def _on_last_axis(graph: Graph, op: Op) -> bool:
    """Whether the axis is the last one; an absent attribute means that, an unreadable one does not."""
    axis = op.attributes.get("axis", -1)
    shape = graph.tensors[op.outputs[0]].shape if op.outputs else None
    return axis == -1 or (shape is not None and axis == len(shape) - 1)
