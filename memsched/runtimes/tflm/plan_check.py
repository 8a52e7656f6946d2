"""Judges the memory plan in a written file by the file alone, sharing no code with whoever made the plan.

The model is replayed in its arena (`plan_replay`): every operator, of every body and in every iteration, must read what
was meant, and may overwrite what it reads only where the target says that its kernel bears it. TensorFlow Lite Micro
itself checks none of this: an overlap gives silently wrong outputs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from memsched.base.errors import InternalError, ModelError
from memsched.formats.tflite.model import FileModel, parse
from memsched.runtimes.tflm.limits import new_refusals
from memsched.runtimes.tflm.plan import Scratch, given_plan, needs_memory, predict, tensor_bytes
from memsched.runtimes.tflm.plan_permissions import PlanPermissions
from memsched.runtimes.tflm.plan_replay import replay, scratch_places
from memsched.targets.model import Target

__all__ = ["check_plan", "plan_fault"]

_ALIGNMENT = 16
_Key = tuple[int, int]


def check_plan(data: bytes, target: Target, scratch: Scratch, given: FileModel | None = None) -> int:
    """Return the head of the arena in bytes that TFLM needs with the plan in ``data``.

    Args:
        data: A TFLite file with metadata ``OfflineMemoryAllocation``.
        target: Says which tensors may share bytes.
        scratch: Per (subgraph, operator) what its kernel requests.
        given: The model before anything of it was rewritten, if it was.

    Raises:
        InternalError: The plan is missing or wrong: its length, an offset, a variable, or tensors that overlap; or it
            is for an operator that TensorFlow Lite Micro refuses, as it does none of ``given``.
    """
    model = parse(data)
    added = () if given is None else new_refusals(given, model)
    if added:
        problem = f"the plan is for {added[0].type} '{added[0].name}', which is refused: {added[0].reason}"
        raise InternalError(problem, code="new-operator-refused")
    plan = given_plan(model)
    if plan is None:
        raise InternalError("the written file holds no memory plan", code="no-memory-plan")
    keys = [(index, number) for index, one in enumerate(model.subgraphs) for number in range(len(one.tensors))]
    planned = {key: offset for key, offset in zip(keys, plan, strict=True) if offset != -1}
    _check_variables(model, keys, planned)
    placed = predict(model, scratch)
    _check_offsets(model, planned, PlanPermissions(model, target).inner())
    # TFLM rounds sizes up, not ends: what begins inside another tensor may end past a multiple of the alignment.
    ends = [low + _up(tensor_bytes(model.subgraphs[key[0]].tensors[key[1]])) for key, low in placed.offsets.items()]
    for key, places in scratch_places(model, scratch, placed.scratch).items():
        ends += [low + _up(size) for low, size in zip(places, scratch[key], strict=True)]
    head = max(ends, default=0)
    replay(model, target, placed.offsets, scratch, placed.scratch, head)
    return head


def plan_fault(model: FileModel, target: Target, scratch: Scratch) -> str | None:
    """Return what is wrong with the memory plan that a file brings; None where nothing is, or TFLM refuses it.

    Args:
        target: Says which tensors may share bytes.
        scratch: Per (subgraph, operator) what its kernel requests.
    """
    try:
        if given_plan(model) is not None:
            check_plan(model.data, target, scratch)
    except ModelError:
        return None
    except InternalError as error:
        return str(error)
    return None


def _up(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _name(model: FileModel, key: _Key) -> str:
    return f"tensor {key[1]} '{model.subgraphs[key[0]].tensors[key[1]].name}' of subgraph {key[0]}"


def _check_variables(model: FileModel, keys: list[_Key], planned: Mapping[_Key, int]) -> None:
    """Check that no variable is planned: it would lose its state, and TFLM looks at an entry of another tensor, too."""
    for index, subgraph in enumerate(model.subgraphs):
        for number, tensor in enumerate(subgraph.tensors):
            if not tensor.variable:
                continue
            if (index, number) in planned:
                problem = f"the memory plan gives an offset to the variable {_name(model, (index, number))}"
                raise InternalError(problem, code="variable-planned")
            if keys[number] in planned:
                raise InternalError(
                    f"the memory plan gives an offset to {_name(model, keys[number])}: TensorFlow Lite Micro "
                    f"would leave the variable {_name(model, (index, number))} without memory",
                    code="variable-without-memory",
                )


def _check_offsets(model: FileModel, planned: Mapping[_Key, int], inner: set[_Key]) -> None:
    for key, offset in planned.items():
        tensor = model.subgraphs[key[0]].tensors[key[1]]
        if not needs_memory(model.subgraphs[key[0]], key[1]):
            continue
        width = max(1, tensor_bytes(tensor) // max(1, math.prod(tensor.shape)))
        # What lies inside another tensor begins at one of its elements.
        alignment = width if key in inner else _ALIGNMENT
        if offset < 0 or offset % alignment:
            problem = f"the memory plan lays {_name(model, key)} at {offset}, no multiple of {alignment}"
            raise InternalError(problem, code="misaligned")
