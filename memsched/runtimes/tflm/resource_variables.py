"""Resource variables in TensorFlow Lite Micro: values behind handles that outlive an inference, in the arena's tail.

Firmware makes room for them with `MicroResourceVariables::Create` from the interpreter's allocator; each gets its bytes
when the first ASSIGN_VARIABLE that writes it is prepared (micro_resource_variable.cc, var_handle.cc and
assign_variable.cc). A handle is a number that its VAR_HANDLE keeps: the tensor has no memory of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from memsched.formats.tflite.model import FileModel, FileOperator
from memsched.runtimes.tflm.plan import tensor_bytes

__all__ = ["assigned_bytes", "variables"]

_HANDLE = "VAR_HANDLE"
_Name = tuple[str, str]


def variables(model: FileModel) -> tuple[_Name, ...]:
    """Return the container and the name of each variable, in the order in which handles are prepared."""
    found: dict[_Name, None] = {}
    for subgraph in model.subgraphs:
        for operator in subgraph.operators:
            if operator.type == _HANDLE:
                found.setdefault(_name(operator, found))
    return tuple(found)


def assigned_bytes(model: FileModel) -> Iterator[int]:
    """Yield the bytes of each variable, in the order in which they are allocated; none for one that nothing writes."""
    known, allocated = variables(model), set()
    for subgraph in model.subgraphs:
        handles: dict[int, _Name] = {}
        for operator in subgraph.operators:
            if operator.type == _HANDLE:
                handles.update(dict.fromkeys(operator.outputs, _name(operator, known)))
            elif operator.type == "ASSIGN_VARIABLE" and len(operator.inputs) > 1 and operator.inputs[1] >= 0:
                # A handle that comes from another subgraph is not known yet while this one is prepared.
                name = handles.get(operator.inputs[0])
                if name is not None and name not in allocated:
                    allocated.add(name)
                    yield tensor_bytes(subgraph.tensors[operator.inputs[1]])


def _name(operator: FileOperator, known: Iterable[_Name]) -> _Name:
    """Return the variable that a handle is for: without a container, the first one of its name."""
    container, name = (str(operator.attributes.get(key) or "") for key in ("container", "shared_name"))
    return next((one for one in known if one[1] == name and container in ("", one[0])), (container, name))
