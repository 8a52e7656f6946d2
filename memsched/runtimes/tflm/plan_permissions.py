"""What a target's kernels permit, as the checker of memory plans reads its rules."""

from __future__ import annotations

import itertools
import math

from memsched.formats.tflite.model import FileModel, FileOperator, FileTensor
from memsched.runtimes.tflm.plan import needs_memory, tensor_bytes
from memsched.targets.model import InPlaceRule, Target

__all__ = ["PlanPermissions"]

_Key = tuple[int, int]
_MASKS = ("begin_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")


class PlanPermissions:
    """Says what an operator's output may lie over while it runs."""

    def __init__(self, model: FileModel, target: Target) -> None:
        self._model = model
        self._target = target
        self._views = {(name, rule.input) for rule in target.views for name in rule.ops}
        self._parts = {(name, rule.kind, rule.input) for rule in target.part_views for name in rule.ops}

    def overwrites(self, index: int, operator: FileOperator, tensor: int, distance: int, *, given: bool) -> bool:
        """Return whether the first output may begin ``distance`` bytes before an input that it overlaps.

        Args:
            given: The input shows bytes that the caller fills.
        """
        if given and not self._target.overwrite_inputs:
            return False
        positions = [position for position, read in enumerate(operator.inputs) if read == tensor]
        tensors = self._model.subgraphs[index].tensors
        before, after = tensors[tensor], tensors[operator.outputs[0]]
        whole = distance == 0 and tensor_bytes(before) == tensor_bytes(after)
        rules = self._target.in_place if whole else ()
        if any(self._bears(rule, index, operator, positions, before, after) for rule in rules):
            return True
        return (
            positions == [0]
            and operator.type in self._target.pads_over_inputs
            and distance >= _lag(operator, before, after)
        )

    def _bears(
        self,
        rule: InPlaceRule,
        index: int,
        operator: FileOperator,
        positions: list[int],
        before: FileTensor,
        after: FileTensor,
    ) -> bool:
        if operator.type not in rule.ops or (len(positions) > 1 and not rule.elementwise):
            return False
        if rule.inputs is not None and not set(positions) <= set(rule.inputs) and not rule.elementwise:
            return False
        if rule.inputs is not None and not set(positions) & set(rule.inputs):
            return False
        if math.prod(before.shape) != math.prod(after.shape) or (rule.match != "bytes" and before.shape != after.shape):
            return False
        number = operator.inputs[positions[0]]
        readers = sum(number in reader.inputs for reader in self._model.subgraphs[index].operators)
        return tensor_bytes(after) > rule.above_bytes and not (rule.sole_reader and readers > 1)

    def view_begin(self, index: int, operator: FileOperator) -> int | None:
        """Return the byte of the first input at which the first output begins, as a view; None where it is none."""
        tensors = self._model.subgraphs[index].tensors
        source, output = tensors[operator.inputs[0]], tensors[operator.outputs[0]]
        if (operator.type, 0) in self._views:
            return 0 if tensor_bytes(source) == tensor_bytes(output) else None
        return _first_row(operator, source, output) if (operator.type, "slice", 0) in self._parts else None

    def joins(self, index: int, operator: FileOperator) -> bool:
        """Return whether a concatenation copies its inputs one behind the other, each in one piece."""
        graph = self._model.subgraphs[index]
        output, axis = graph.tensors[operator.outputs[0]], operator.attributes.get("axis", 0)
        if (operator.type, "concatenation", 0) not in self._parts or any(number < 0 for number in operator.inputs):
            return False
        if not isinstance(axis, int) or operator.attributes.get("fused_activation_function", "NONE") != "NONE":
            return False
        if not -len(output.shape) <= axis < len(output.shape):
            return False
        parts = [graph.tensors[number] for number in operator.inputs]
        fits = sum(map(tensor_bytes, parts)) == tensor_bytes(output)
        rows = all(size == 1 for size in output.shape[: axis % len(output.shape)])
        return rows and fits and all(part.dtype == output.dtype for part in parts)

    def starts(self, index: int, operator: FileOperator) -> list[tuple[int, int]]:
        """Return a concatenation's inputs and the bytes of its output at which they go."""
        sizes = [tensor_bytes(self._model.subgraphs[index].tensors[number]) for number in operator.inputs]
        places = itertools.accumulate(sizes, initial=0)
        return list(zip(operator.inputs, places, strict=False))

    def inner(self) -> set[_Key]:
        """Return the tensors that may lie inside another one, at any of its elements."""
        found = set()
        for index, graph in enumerate(self._model.subgraphs):
            for operator in graph.operators:
                if not operator.outputs or operator.outputs[0] < 0 or not operator.inputs or operator.inputs[0] < 0:
                    continue
                if operator.type == "CONCATENATION" and self.joins(index, operator):
                    found |= {(index, one) for one in operator.inputs if needs_memory(graph, one)}
                elif (operator.type, "slice", 0) in self._parts and self.view_begin(index, operator) is not None:
                    found.add((index, operator.outputs[0]))
            for operator in reversed(graph.operators):
                # What a tensor shows whole lies where that one does.
                made = (index, operator.outputs[0]) if operator.outputs else None
                if made in found and self._shows_all(index, operator):
                    found.add((index, operator.inputs[0]))
        return found

    def _shows_all(self, index: int, operator: FileOperator) -> bool:
        graph = self._model.subgraphs[index]
        if not operator.inputs or operator.inputs[0] < 0 or not needs_memory(graph, operator.inputs[0]):
            return False
        sizes = [tensor_bytes(graph.tensors[number]) for number in (operator.inputs[0], operator.outputs[0])]
        return sizes[0] == sizes[1] and self.view_begin(index, operator) == 0


def _first_row(operator: FileOperator, source: FileTensor, output: FileTensor) -> int | None:
    """Return the byte of ``source`` at which ``output``, whole rows of it, begins; None where it is none."""
    begin, steps = operator.attributes.get("begin"), operator.attributes.get("steps", ())
    if not isinstance(begin, tuple) or not isinstance(steps, tuple) or any(step != 1 for step in steps):
        return None
    if any(operator.attributes.get(mask) for mask in _MASKS):
        return None
    if len(begin) != len(source.shape) or len(output.shape) != len(source.shape) or output.dtype != source.dtype:
        return None
    axis = next((place for place, size in enumerate(source.shape) if size != 1), 0)
    if any(size != output.shape[place] for place, size in enumerate(source.shape) if place != axis):
        return None
    start = begin[axis]
    if not isinstance(start, int) or not 0 <= start <= source.shape[axis] - output.shape[axis]:
        return None
    return start * (tensor_bytes(source) // source.shape[axis])


def _lag(operator: FileOperator, before: FileTensor, after: FileTensor) -> float:
    """Return how many bytes behind its output a PAD's input must begin so that no write overtakes a read."""
    import numpy as np

    pads = operator.attributes.get("paddings")
    if not isinstance(pads, tuple) or len(pads) != 2 * len(before.shape) or len(before.shape) != len(after.shape):
        return math.inf
    fronts = [int(front) for front in pads[::2] if isinstance(front, int)]
    if len(fronts) != len(before.shape) or before.dtype != after.dtype or min(fronts, default=0) < 0:
        return math.inf
    taken = tuple(slice(front, front + size) for front, size in zip(fronts, before.shape, strict=True))
    places = np.arange(math.prod(after.shape)).reshape(after.shape)[taken]
    if places.shape != tuple(before.shape) or not places.size:
        return math.inf
    # Element r is read, then written at places[r]: all that was written up to there lies below what is read next.
    width = tensor_bytes(before) // places.size
    return float((places.reshape(-1) - np.arange(places.size)).max()) * width
