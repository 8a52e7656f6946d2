"""One profiled run of a model, which tells the size of every value: the child process's side of `observation`.

Requests and answers are plain values, as ``memsched.runtimes.child`` can pass them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto

from memsched.formats.onnx import functions
from memsched.formats.onnx.observed import scope_paths
from memsched.formats.onnx.structure import analyse, owner
from memsched.runtimes.onnxruntime.inputs import random_feed, read_feeds
from memsched.runtimes.onnxruntime.opened import opened, profile_of, profiled, run_once
from memsched.runtimes.sessions import SessionPoint
from memsched.runtimes.values import INTEGER_BOUNDS

__all__ = ["execute"]

_SESSION: Final = SessionPoint("disabled", pattern=False)
"""Nothing is merged: each node of the file is one of the profile's."""

_NAME: Final = "memsched_observed_"
_EVENT: Final = re.compile(rf"{_NAME}(\d+)_(\d+)_kernel_time")
_NOT_ONNX: Final = {"bool": "BOOL", "float": "FLOAT", "double": "DOUBLE"}

_Seen = dict[str, tuple[int, tuple[int, ...]]]


def execute(request: Mapping[str, Any]) -> dict[str, Any]:
    """Run the model of a request once, in the child process.

    Args:
        request: "model": {"bytes", "folder": of external data, or None}; "feeds": an .npz file or None;
            "input_shapes", "dims": of random inputs; "seed".

    Returns:
        "failed": why it did not run, or None; "values": per graph, named as `scope_paths` does, rows of name, element
        type and dimensions; "executed": the graphs that ran; "inputs": the dimensions of the inputs that are tensors.
    """
    proto = onnx.load_model_from_string(request["model"]["bytes"])
    if functions.calls_functions(proto):
        proto = functions.inline(proto)
    scopes = analyse(proto.graph)
    for index, scope in enumerate(scopes):
        for number, node in enumerate(scope.graph.node):
            node.name = f"{_NAME}{index}_{number}"
    failed = "there are no inputs that it takes"
    for feed, session in _feeds(proto, request):
        if isinstance(feed, str):
            failed = feed
            continue
        try:
            outputs = _run(session, feed)
        except Exception as error:  # the runtime raises classes of its own
            failed = str(error)
            continue
        seen, executed = _read(scopes, outputs)
        _add_inputs(scopes, seen, feed)
        _add_carried(scopes, seen)
        _add_missing(proto, request, scopes, seen, feed)
        paths = scope_paths(scopes)
        return {
            "failed": None,
            "values": {
                paths[index]: [[name, *value] for name, value in found.items()] for index, found in enumerate(seen)
            },
            "executed": sorted({"", *(paths[index] for index in executed)}),
            "inputs": {name: list(array.shape) for name, array in feed.items() if hasattr(array, "shape")},
        }
    return {"failed": failed, "values": {}, "executed": [], "inputs": {}}


def _feeds(proto: Any, request: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    """Yield inputs to try, each with a session of its own, or why there are none."""
    if request["feeds"] is not None:
        session = _open(proto, request)
        try:
            yield read_feeds(request["feeds"], [value.name for value in session.get_inputs()]), session
        except ValueError as error:
            yield str(error), None
        return
    for bound in INTEGER_BOUNDS:
        session = _open(proto, request)
        try:
            rng = np.random.default_rng(request["seed"])
            yield random_feed(session, proto, request, rng, bound), session
        except ValueError as error:
            yield str(error), None


def _open(proto: Any, request: Mapping[str, Any]) -> Any:
    return opened(proto.SerializeToString(), _SESSION, folder=request["model"]["folder"], change=profiled)


def _run(session: Any, feed: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the events of one run."""
    try:
        run_once(session, feed)
    finally:
        events = profile_of(session)
    return events


def _read(scopes: Sequence[Any], events: Sequence[Mapping[str, Any]]) -> tuple[list[_Seen], set[int]]:
    """Return per graph the largest that each tensor was, and the graphs of which a node ran."""
    seen: list[_Seen] = [{} for _ in scopes]
    executed: set[int] = set()
    for event in events:
        place = _EVENT.fullmatch(event.get("name", ""))
        if event.get("cat") != "Node" or place is None:
            continue
        index, number = int(place[1]), int(place[2])
        executed.add(index)
        node = scopes[index].graph.node[number]
        made = [name for name in node.output if name]
        told = [one for one in event["args"].get("output_type_shape", ()) if one]
        if len(made) == len(told):
            for name, one in zip(made, told, strict=True):
                _keep(seen[index], name, one)
    return seen, executed


def _keep(seen: _Seen, name: str, told: Mapping[str, Sequence[int]]) -> None:
    ((kind, dims),) = told.items()
    element = _element(kind)
    if element and (name not in seen or math.prod(dims) > math.prod(seen[name][1])):
        seen[name] = element, tuple(dims)


def _element(kind: str) -> int:
    """Return ONNX's number of an element type as profiles name it; 0 for one that it does not know."""
    names = TensorProto.DataType.keys()
    name = _NOT_ONNX.get(kind, kind.upper())
    return int(TensorProto.DataType.Value(name)) if name in names else 0


def _add_inputs(scopes: Sequence[Any], seen: Sequence[_Seen], feed: Mapping[str, Any]) -> None:
    declared = {value.name: value.type.tensor_type.elem_type for value in scopes[0].graph.input}
    for name, array in feed.items():
        if hasattr(array, "shape"):
            seen[0][name] = declared[name], tuple(array.shape)


def _add_carried(scopes: Sequence[Any], seen: Sequence[_Seen]) -> None:
    """Give the inputs of loops' bodies the sizes of what is handed to them, the larger of first and later ones."""
    for index, scope in enumerate(scopes):
        node = scopes[scope.parent].graph.node[scope.node] if scope.parent >= 0 else None
        if node is None or node.op_type != "Loop":
            continue
        for position, value in enumerate(scope.graph.input[2:]):
            first = node.input[2 + position]
            at = owner(scopes, scope.parent, first)
            later = scope.graph.output[1 + position].name
            found = [one for one in (seen[at].get(first) if at >= 0 else None, seen[index].get(later)) if one]
            if found:
                seen[index][value.name] = max(found, key=lambda one: math.prod(one[1]))


def _add_missing(
    proto: Any,
    request: Mapping[str, Any],
    scopes: Sequence[Any],
    seen: Sequence[_Seen],
    feed: Mapping[str, Any],
) -> None:
    """Run once more with the main graph's values that the profile does not tell as outputs.

    The runtime executes an operator that it has no kernel for as several of other names.
    """
    main = scopes[0]
    outputs = {value.name for value in main.graph.output}
    missing = [
        name
        for number, node in enumerate(main.graph.node)
        for name in node.output
        if name and name not in seen[0] and name not in outputs and not main.constant_node[number]
    ]
    wider = onnx.ModelProto()
    wider.CopyFrom(proto)
    wider.graph.output.extend(onnx.ValueInfoProto(name=name) for name in missing)
    try:
        session = _open(wider, request) if missing else None
        made = run_once(session, feed) if session is not None else []
        names = [value.name for value in session.get_outputs()] if session is not None else []
    except Exception:  # what is missing stays so, and is asked for by name
        return
    for name, array in zip(names, made, strict=True):
        if hasattr(array, "shape") and name not in seen[0]:
            seen[0][name] = int(onnx.helper.np_dtype_to_tensor_dtype(array.dtype)), tuple(array.shape)
