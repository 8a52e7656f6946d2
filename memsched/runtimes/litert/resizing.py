"""A TFLite model with inputs of other shapes, as LiteRT resizes it: what follows from these is asked of the runtime."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from memsched.base.errors import UsageError
from memsched.formats.tflite.flatbuffer import FlatbufferTable, FlatFile
from memsched.formats.tflite.model import FileModel, parse
from memsched.formats.tflite.schema import TensorSlot
from memsched.runtimes.child import TIMEOUT, run_in_child
from memsched.runtimes.package import LITERT

__all__ = ["resize", "shapes_at"]


def resize(data: bytes, shapes: Mapping[str, Sequence[int]]) -> bytes:
    """Return a model whose file states these shapes of inputs, and those that LiteRT finds to follow from them.

    The file itself is returned if it states these shapes, or has no such input.

    Raises:
        RuntimeUnavailableError: LiteRT is not installed.
        UsageError: It cannot be resized so.
    """
    model = parse(data)
    main = model.subgraphs[0]
    inputs = {main.tensors[tensor].name: tensor for tensor in main.inputs}
    wanted = {
        name: tuple(shape)
        for name, shape in shapes.items()
        if name in inputs and tuple(shape) != main.tensors[inputs[name]].shape
    }
    if not wanted:
        return data
    LITERT.require()
    said = ", ".join(f"--shape {name}" for name in wanted)
    if any(operator.bodies for operator in main.operators):
        raise UsageError(
            "the shapes within bodies of control flow stay as stored",
            code="not-resizable",
            location=said,
            action="convert the model again",
        )
    ranks = [name for name, shape in wanted.items() if len(shape) != len(main.tensors[inputs[name]].shape)]
    if ranks:
        problem = f"this input has {len(main.tensors[inputs[ranks[0]]].shape)} axes"
        raise UsageError(problem, code="other-rank", location=f"--shape {ranks[0]}")
    request = {"model": data, "shapes": {str(inputs[name]): list(shape) for name, shape in wanted.items()}}
    result = run_in_child(f"{__name__}:shapes_at", request, TIMEOUT)
    if not result.ok:
        problem = f"LiteRT cannot resize the model: {result.reason[:300]}"
        raise UsageError(problem, code="not-resizable", location=said)
    return _restated(model, {int(tensor): tuple(shape) for tensor, shape in result.value.items()}, said)


def shapes_at(request: Mapping[str, Any]) -> dict[str, list[int]]:
    """Return the shapes of all tensors after a run on zeros; called in a child process."""
    import numpy as np

    from memsched.runtimes.litert.session import opened

    interpreter = opened(request["model"], "plain")
    for tensor, shape in request["shapes"].items():
        interpreter.resize_tensor_input(int(tensor), shape)
    interpreter.allocate_tensors()
    for detail in interpreter.get_input_details():
        interpreter.set_tensor(detail["index"], np.zeros(detail["shape"], detail["dtype"]))
    # Some shapes are known only after a run.
    interpreter.invoke()
    return {str(one["index"]): [int(size) for size in one["shape"]] for one in interpreter.get_tensor_details()}


def _restated(model: FileModel, shapes: Mapping[int, tuple[int, ...]], said: str) -> bytes:
    """Return the file with other numbers in its shapes, and nothing else changed."""
    data, file = bytearray(model.data), FlatFile(model.data)
    written: dict[int, tuple[int, ...]] = {}
    for number, tensor in enumerate(model.subgraphs[0].tensors):
        shape = shapes.get(number, tensor.shape)
        vector = FlatbufferTable(file, tensor.table).vector(TensorSlot.SHAPE, 4)
        if tensor.has_data or vector is None:
            continue
        if len(shape) != vector.count or written.setdefault(vector.start, shape) != shape:
            problem = f"the file has no room for the new shape of '{tensor.name}'"
            raise UsageError(problem, code="not-resizable", location=said, action="convert it again")
        struct.pack_into(f"<{vector.count}i", data, vector.start, *shape)
    return bytes(data)
