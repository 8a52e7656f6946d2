"""What the child process does with ONNX Runtime: sessions, inputs, profiles. Called through ``run_in_child``.

Requests and answers are plain values, as ``memsched.runtimes.child`` can pass them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memsched.runtimes.compare import close, compare
from memsched.runtimes.inputs import random_values

__all__ = ["execute", "optimize_offline", "read_profile"]

_NODE_NAME = "memsched_node_"
_EVENT = re.compile(rf"{_NODE_NAME}(\d+)_kernel_time")
_PIN = "memsched_pin_"
_RANDOM = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)
_NOT_NUMPY = {
    "double": "float64",
    "float": "float32",
    "float8e4m3fn": "float8_e4m3fn",
    "float8e4m3fnuz": "float8_e4m3fnuz",
    "float8e5m2": "float8_e5m2",
    "float8e5m2fnuz": "float8_e5m2fnuz",
    "string": "O",
}
# Integers are often indices: where the first choice is out of bounds, smaller ones may not be.
_INTEGER_BOUNDS = (4, 2, 1)
_SEQUENCE_LENGTH = 2


@dataclass(frozen=True, slots=True)
class _Failure:
    """A session that could not be made, or was loaded but could not run on these inputs."""

    session: int
    message: str
    loaded: bool


def execute(request: Mapping[str, Any]) -> dict[str, Any]:
    """Run sessions on the same random inputs, compare their outputs with the first one's, read their profiles.

    Args:
        request: "models": each {"path": absolute path} or {"bytes": model}; "sessions": each {"model": index,
            "level": "disabled" or "all", "order": "file" or "default", "required": whether a failure ends it all};
            "runs", "seed", "input_shapes", "dims", "rtol", "atol"; "expected": the node names of the last model in
            the order wanted, or None for its own file order.

    Returns:
        "version"; "failed": the number of the session that could not run, or None, with its "message";
        "random": an op that draws random numbers without a seed, or None; "sessions": each {"peak_bytes", "order":
        file positions of nodes as executed, "equal", "close", "max_abs_error", "message": why it has no results};
        "models": each {"nodes": [name, op type], "free": positions whose order means nothing, "expected"}.
    """
    import onnx
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    protos = [_load(onnx, model) for model in request["models"]]
    random = next((op for proto in protos for op in _unseeded(proto)), None)
    models = [_describe(proto, request["expected"]) for proto in protos]
    for proto in protos:
        _rename(proto)
    answer = {"version": onnxruntime.__version__, "random": random, "models": models, "failed": None, "message": None}
    for bound in _INTEGER_BOUNDS:
        results = _run_sessions(onnxruntime, request, protos, bound)
        if not isinstance(results, _Failure):
            return {**answer, "failed": None, "sessions": results}
        # Other inputs may help the first model only; what it runs on, the others must run on too.
        if results.session or answer["failed"] is None:
            answer.update(failed=results.session, message=results.message)
        if results.session or not results.loaded:
            break
    return {**answer, "sessions": []}


def _load(onnx: Any, model: Mapping[str, Any]) -> Any:
    if "bytes" in model:
        return onnx.load_model_from_string(model["bytes"])
    return onnx.load_model(model["path"], load_external_data=False)


def _graphs(proto: Any) -> list[Any]:
    """Return everything in a model that holds nodes: the main graph first, then bodies, then functions."""
    holders = [proto.graph, *proto.functions]
    for holder in holders:
        for node in holder.node:
            for attribute in node.attribute:
                holders.extend([attribute.g] if attribute.HasField("g") else [])
                holders.extend(attribute.graphs)
    return holders


def _unseeded(proto: Any) -> list[str]:
    """Return the op types that draw random numbers which differ from session to session."""
    found = []
    for holder in _graphs(proto):
        for node in holder.node:
            training = node.op_type == "Dropout" and len(node.input) > 2 and node.input[2]
            if (node.op_type in _RANDOM or training) and not any(a.name == "seed" for a in node.attribute):
                found.append(node.op_type)
    return found


def _describe(proto: Any, expected: Sequence[str] | None) -> dict[str, Any]:
    """Return a model's nodes, those whose order means nothing, and the wanted order as file positions."""
    nodes = proto.graph.node
    free = _constant_positions(proto.graph)
    free.extend(at for at, node in enumerate(nodes) if node.name.startswith(_PIN))
    order = list(range(len(nodes)))
    if expected is not None:
        places: dict[str, int] = {}
        for at, node in enumerate(nodes):
            for name in (node.name, *node.output):
                places.setdefault(name, at)
        order = list(dict.fromkeys(places[name] for name in expected if name in places))
    return {"nodes": [[node.name, node.op_type] for node in nodes], "free": free, "expected": order}


def _constant_positions(graph: Any) -> list[int]:
    """Return the positions of nodes that compute constants from constants alone: a runtime may do that at any time."""
    inputs = {value.name for value in graph.input}
    constants = {""} | {tensor.name for tensor in graph.initializer if tensor.name not in inputs}
    constants |= {tensor.values.name for tensor in graph.sparse_initializer}
    found = []
    for at, node in enumerate(graph.node):
        bodies = any(a.HasField("g") or a.graphs for a in node.attribute)
        if not bodies and node.op_type not in _RANDOM and constants.issuperset(node.input):
            constants.update(node.output)
            found.append(at)
    return found


def _rename(proto: Any) -> None:
    """Name each main node by its file position, so that events tell which it was; names may be missing or double."""
    for holder in _graphs(proto)[1:]:
        for node in holder.node:
            node.name = ""
    for at, node in enumerate(proto.graph.node):
        node.name = f"{_NODE_NAME}{at}"


def _run_sessions(
    onnxruntime: Any, request: Mapping[str, Any], protos: Sequence[Any], bound: int
) -> list[Any] | _Failure:
    import numpy as np

    results: list[dict[str, Any]] = []
    session: Any
    reference: list[list[Any]] = []
    feeds: list[dict[str, Any]] = []
    for number, wanted in enumerate(request["sessions"]):
        proto = protos[wanted["model"]]
        session = None
        try:
            session = _session(onnxruntime, request["models"][wanted["model"]], proto, wanted)
            if not feeds:
                rng = np.random.default_rng(request["seed"])
                feeds = [_random_feed(session, proto, request, rng, bound) for _ in range(request["runs"])]
            outputs, profile = _run(session, feeds if wanted["required"] else feeds[:1])
        except Exception as error:  # the runtime raises classes of its own, all of them results here
            if wanted["required"]:
                return _Failure(number, _one_line(error), session is not None)
            results.append({"peak_bytes": None, "order": None, "message": _one_line(error)})
            continue
        reference = reference or outputs
        results.append({**profile, **_compare_runs(reference, outputs, request), "message": None})
    return results


def _compare_runs(reference: Sequence[Any], outputs: Sequence[Any], request: Mapping[str, Any]) -> dict[str, Any]:
    pairs = [compare(one, other) for one, other in zip(reference, outputs, strict=False)]
    near = [close(one, other, request["rtol"], request["atol"]) for one, other in zip(reference, outputs, strict=False)]
    return {
        "equal": all(same for same, _ in pairs),
        "close": all(near),
        "max_abs_error": max((error for _, error in pairs), default=0.0),
    }


def _session(onnxruntime: Any, model: Mapping[str, Any], proto: Any, wanted: Mapping[str, Any]) -> Any:
    """Open a session that measures: profiling on, the memory pattern off, one thread, so that runs can be compared."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.enable_profiling = True
    options.profile_file_prefix = "profile"
    options.enable_mem_pattern = False
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = {
        "disabled": levels.ORT_DISABLE_ALL,
        "basic": levels.ORT_ENABLE_BASIC,
        "extended": levels.ORT_ENABLE_EXTENDED,
        "all": levels.ORT_ENABLE_ALL,
    }[wanted["level"]]
    if wanted["order"] == "file":
        options.execution_order = onnxruntime.ExecutionOrder.PRIORITY_BASED
    if "path" in model:
        folder = str(Path(model["path"]).parent)
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)
    return onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _run(session: Any, feeds: Sequence[Mapping[str, Any]]) -> tuple[list[list[Any]], dict[str, Any]]:
    """Run on all inputs; the profile is the first run's, before the arena keeps anything."""
    outputs = [session.run(None, feeds[0])]
    path = Path(session.end_profiling())
    events = json.loads(path.read_text(encoding="utf-8"))
    path.unlink()
    outputs.extend(session.run(None, feed) for feed in feeds[1:])
    return outputs, read_profile(events)


def read_profile(events: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the peak and the order of nodes in the profile of one run.

    "peak_bytes" is the most that was requested from the CPU arena at any node's end, less what was in use before the
    first node (the weights); "order" has the file positions of the main graph's nodes.
    """
    order: list[int] = []
    base: int | None = None
    highest = 0
    for event in events:
        if event.get("cat") != "Node" or not event["name"].endswith("_kernel_time"):
            continue
        found = _EVENT.fullmatch(event["name"])
        if found:
            order.append(int(found.group(1)))
        arguments = event.get("args", {})
        if "mem_bytes_requested_in_use" in arguments:
            in_use = int(arguments["mem_bytes_requested_in_use"])
            if base is None:
                base = in_use - int(arguments["mem_requested_in_use_delta"])
            highest = max(highest, in_use - base)
    return {"peak_bytes": highest if base is not None else None, "order": order}


def _random_feed(session: Any, proto: Any, request: Mapping[str, Any], rng: Any, bound: int) -> dict[str, Any]:
    declared = {value.name: value.type for value in proto.graph.input}
    return {
        value.name: _random_value(value.name, value.type, declared[value.name], request, rng, bound)
        for value in session.get_inputs()
    }


def _random_value(name: str, kind: str, declared: Any, request: Mapping[str, Any], rng: Any, bound: int) -> Any:
    """Return a value for an input of ONNX Runtime's type ``kind``, such as "tensor(float)" or "seq(tensor(int64))"."""
    if kind.startswith("optional("):
        return _random_value(name, kind[9:-1], declared.optional_type.elem_type, request, rng, bound)
    if kind.startswith("seq("):
        part = declared.sequence_type.elem_type
        return [_random_value(name, kind[4:-1], part, request, rng, bound) for _ in range(_SEQUENCE_LENGTH)]
    if not kind.startswith("tensor("):
        raise ValueError(f"input '{name}' has type {kind}, for which no random values can be made")
    shape = _shape(name, declared.tensor_type, request)
    return random_values(_dtype(kind[7:-1]), shape, rng, high=bound)


def _shape(name: str, tensor: Any, request: Mapping[str, Any]) -> tuple[int, ...]:
    """Return an input's dimensions: as stated by the user, otherwise as the model has them.

    Raises:
        ValueError: A dimension is unknown.
    """
    stated = request["input_shapes"].get(name)
    if stated is not None:
        return tuple(stated)
    if not tensor.HasField("shape"):
        raise ValueError(f"input '{name}' has no shape: state it with --input-shape {name}:...")
    shape = []
    for dim in tensor.shape.dim:
        size = dim.dim_value if dim.HasField("dim_value") else request["dims"].get(dim.dim_param)
        if size is None or size < 0:
            raise ValueError(f"input '{name}' has a dimension of unknown size: state it with --input-shape {name}:...")
        shape.append(size)
    return tuple(shape)


def _dtype(kind: str) -> Any:
    import numpy as np

    name = _NOT_NUMPY.get(kind, kind)
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))


def optimize_offline(request: Mapping[str, Any]) -> dict[str, bytes]:
    """Return {"bytes": the model at "path" as ONNX Runtime's graph optimisation at "level" rewrites it}."""
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = {
        "basic": levels.ORT_ENABLE_BASIC,
        "extended": levels.ORT_ENABLE_EXTENDED,
    }[request["level"]]
    options.optimized_model_filepath = str(Path("optimized.onnx").absolute())
    onnxruntime.InferenceSession(request["path"], options, providers=["CPUExecutionProvider"])
    return {"bytes": Path("optimized.onnx").read_bytes()}


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
