"""What the child process does with ONNX Runtime: sessions, inputs, profiles. Called through ``run_in_child``.

Requests and answers are plain values, as ``memsched.runtimes.child`` can pass them.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memsched.formats.onnx_pins import shape_nodes
from memsched.formats.onnx_structure import analyse
from memsched.runtimes.compare import close, compare, relative_error
from memsched.runtimes.inputs import random_values

__all__ = ["GRAPH_LEVELS", "execute", "find_data", "optimize_offline", "random_feed", "read_profile", "run_once"]
__all__ += ["unseeded"]

GRAPH_LEVELS = {
    "disabled": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "all": "ORT_ENABLE_ALL",
}
"""Words for levels of graph optimisation to the runtime's own."""

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
_FOREIGN = ("bfloat16", "float8")
_FIRST_FOREIGN_TYPE = 256  # numpy gives the types that packages register numbers from here on
_SMALL_ELEMENTS = 1024


@dataclass(frozen=True, slots=True)
class _Failure:
    """A session that could not be made, or was loaded but could not run on these inputs."""

    session: int
    message: str
    loaded: bool


def execute(request: Mapping[str, Any]) -> dict[str, Any]:
    """Run sessions on the same random inputs, compare their outputs with the first one's, read their profiles.

    Args:
        request: "models": each {"path": absolute path} or {"bytes": model}, with "folder": where its external data
            lies, or None; "sessions": each {"model": index, "level": of graph optimisation, "order": "file" or
            "default", "reuse": whether buffers may be handed on, "required": whether a failure ends it all};
            "runs", "seed", "input_shapes", "dims", "rtol", "atol"; "pinned": whether pins keep the order;
            "expected": the node names of the last model in the order wanted, or None for its own file order.

    Returns:
        "version"; "failed": the number of the session that could not run, or None, with its "message";
        "random": an op that draws random numbers without a seed, or None; "sessions": each {"peak_bytes", "order":
        file positions of nodes as executed, "equal", "close", "max_abs_error", "relative_error", "message": why it
        has no results};
        "models": each {"nodes": [name, op type], "free": positions whose order means nothing, "expected"}.
    """
    import onnx
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    protos = [_load(onnx, model) for model in request["models"]]
    random = next((op for proto in protos for op in unseeded(proto)), None)
    models = [_describe(proto, request) for proto in protos]
    constants: list[dict[str, Any]] = []
    known: dict[bytes, Any] = {}
    for proto, model in zip(protos, request["models"], strict=True):
        _rename(proto)
        constants.append(_fold_constants(onnxruntime, proto, model["folder"], known))
    answer = {"version": onnxruntime.__version__, "random": random, "models": models, "failed": None, "message": None}
    for bound in _INTEGER_BOUNDS:
        results = _run_sessions(onnxruntime, request, protos, constants, bound)
        if not isinstance(results, _Failure):
            return {**answer, "failed": None, "sessions": results}
        # Other inputs may help the first model only; what it runs on, the others must run on too.
        if results.session or answer["failed"] is None:
            model = models[request["sessions"][results.session]["model"]]
            answer.update(failed=results.session, message=_with_names(results.message, model["nodes"]))
        if results.session or not results.loaded:
            break
    return {**answer, "sessions": []}


def _load(onnx: Any, model: Mapping[str, Any]) -> Any:
    if "bytes" in model:
        return onnx.load_model_from_string(model["bytes"])
    return onnx.load_model(model["path"], load_external_data=False)


def _bodies(proto: Any) -> list[Any]:
    """Return the graphs of `_graphs` that are bodies."""
    return [holder for holder in _graphs(proto)[1:] if hasattr(holder, "initializer")]


def _graphs(proto: Any) -> list[Any]:
    """Return everything in a model that holds nodes: the main graph first, then bodies, then functions."""
    holders = [proto.graph, *proto.functions]
    for holder in holders:
        for node in holder.node:
            for attribute in node.attribute:
                holders.extend([attribute.g] if attribute.HasField("g") else [])
                holders.extend(attribute.graphs)
    return holders


def unseeded(proto: Any) -> list[str]:
    """Return the op types that draw random numbers which differ from session to session."""
    found = []
    for holder in _graphs(proto):
        for node in holder.node:
            training = node.op_type == "Dropout" and len(node.input) > 2 and node.input[2]
            if (node.op_type in _RANDOM or training) and not any(a.name == "seed" for a in node.attribute):
                found.append(node.op_type)
    return found


def _describe(proto: Any, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return a model's nodes, those whose order means nothing, and the wanted order as file positions."""
    nodes = proto.graph.node
    scope = analyse(proto.graph)[0]
    free = {at for at, node in enumerate(nodes) if scope.constant_node[at] or node.name.startswith(_PIN)}
    if request["pinned"]:
        free.update(shape_nodes(proto))
    expected = request["expected"]
    order = list(range(len(nodes))) if expected is None else _positions(nodes, expected)
    return {"nodes": [[node.name, node.op_type] for node in nodes], "free": sorted(free), "expected": order}


def _positions(nodes: Sequence[Any], names: Sequence[str]) -> list[int]:
    """Return the positions of the nodes with these names; a node without a name of its own has one of its outputs."""
    count = Counter(node.name for node in nodes)
    places = {name: at for at, node in enumerate(nodes) for name in node.output}
    places.update((node.name, at) for at, node in enumerate(nodes) if count[node.name] == 1)
    taken = {places[name] for name in names if name in places}
    for at, node in enumerate(nodes):
        if at not in taken:
            places.setdefault(node.name, at)
    return list(dict.fromkeys(places[name] for name in names if name in places))


def _fold_constants(onnxruntime: Any, proto: Any, folder: str | None, known: dict[bytes, Any]) -> dict[str, Any]:
    """Replace nodes that compute constants by their results: that memory counts as weights, not as activations.

    A model whose constants are no tensors, or cannot be computed, stays as it is.

    Args:
        known: Results of earlier calls, by what computes them.

    Returns:
        The large results, which the model now names as external data.
    """
    import onnx

    graph = proto.graph
    scope = analyse(graph)[0]
    shown = {value.name for value in graph.output}
    constant: list[Any] = []
    kept: list[Any] = []
    for at, node in enumerate(graph.node):
        folds = scope.constant_node[at] and shown.isdisjoint(node.output)
        (constant if folds else kept).append(node)
    if all(node.op_type == "Constant" for node in constant):
        return {}
    holders = [kept, *(holder.node for holder in _graphs(proto)[1:])]
    read = {name for nodes in holders for node in nodes for name in node.input}
    read.update(value.name for holder in _bodies(proto) for value in holder.output)
    part = onnx.ModelProto(ir_version=proto.ir_version, opset_import=proto.opset_import)
    part.graph.name = "constants"
    part.graph.node.extend(constant)
    part.graph.output.extend(
        onnx.ValueInfoProto(name=name) for node in constant for name in node.output if name in read
    )
    needed = {name for node in constant for name in node.input}
    part.graph.initializer.extend(tensor for tensor in graph.initializer if tensor.name in needed)
    for node in part.graph.node:
        node.name = ""
    key = part.SerializeToString()
    if key not in known:
        known[key] = _evaluate(onnxruntime, key, folder)
    values = known[key]
    if values is None:
        return {}
    del graph.node[:]
    graph.node.extend(kept)
    large = {}
    for name, array in values.items():
        if array.size <= _SMALL_ELEMENTS or array.dtype.kind == "O":
            graph.initializer.append(onnx.numpy_helper.from_array(array, name))
        else:
            kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
            tensor = graph.initializer.add(name=name, data_type=kind, dims=array.shape)
            tensor.data_location = onnx.TensorProto.EXTERNAL
            tensor.external_data.add(key="location", value="constants")
            large[name] = onnxruntime.OrtValue.ortvalue_from_numpy(array)
    return large


def _evaluate(onnxruntime: Any, model: bytes, folder: str | None) -> dict[str, Any] | None:
    """Return the outputs of a model without inputs; None when they are no tensors or it does not run."""
    import numpy as np

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    find_data(options, folder)
    try:
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        names = [value.name for value in session.get_outputs()]
        values = dict(zip(names, session.run(names, {}), strict=True))
    except Exception:  # the session on the whole model will say what is wrong, if anything is
        return None
    return values if all(isinstance(value, np.ndarray) for value in values.values()) else None


def _rename(proto: Any) -> None:
    """Name each main node by its file position, so that events tell which it was; names may be missing or double."""
    for holder in _graphs(proto)[1:]:
        for node in holder.node:
            node.name = ""
    for at, node in enumerate(proto.graph.node):
        node.name = f"{_NODE_NAME}{at}"


def _run_sessions(
    onnxruntime: Any, request: Mapping[str, Any], protos: Sequence[Any], constants: Sequence[Any], bound: int
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
            session = _session(
                onnxruntime, request["models"][wanted["model"]]["folder"], proto, constants[wanted["model"]], wanted
            )
            if not feeds:
                rng = np.random.default_rng(request["seed"])
                feeds = [random_feed(session, proto, request, rng, bound) for _ in range(request["runs"])]
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
        "relative_error": max(map(relative_error, reference, outputs), default=0.0),
    }


def _session(
    onnxruntime: Any, folder: str | None, proto: Any, constants: Mapping[str, Any], wanted: Mapping[str, Any]
) -> Any:
    """Open a session that measures: profiling on, the memory pattern off, one thread, so that runs can be compared."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.enable_profiling = True
    options.profile_file_prefix = "profile"
    options.enable_mem_pattern = False
    options.enable_mem_reuse = wanted["reuse"]
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, GRAPH_LEVELS[wanted["level"]])
    if wanted["order"] == "file":
        options.execution_order = onnxruntime.ExecutionOrder.PRIORITY_BASED
    find_data(options, folder)
    if constants:
        options.add_external_initializers(list(constants), list(constants.values()))
    return onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])


def find_data(options: Any, folder: str | None) -> None:
    """Let a session find the external data of a model that is given as bytes."""
    if folder is not None:
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)


def _run(session: Any, feeds: Sequence[Mapping[str, Any]]) -> tuple[list[list[Any]], dict[str, Any]]:
    """Run on all inputs; the profile is the first run's, before the arena keeps anything."""
    outputs = [run_once(session, feeds[0])]
    path = Path(session.end_profiling())
    events = json.loads(path.read_text(encoding="utf-8"))
    path.unlink()
    outputs.extend(run_once(session, feed) for feed in feeds[1:])
    return outputs, read_profile(events)


def run_once(session: Any, feed: Mapping[str, Any]) -> list[Any]:
    """Run a session; values of types that numpy lacks (bfloat16, float8) take a detour as raw bytes."""
    kinds = [value.type for value in (*session.get_inputs(), *session.get_outputs())]
    if not any(foreign in kind for kind in kinds for foreign in _FOREIGN):
        outputs: list[Any] = session.run(None, feed)
        return outputs
    import onnx
    import onnxruntime

    values = {}
    for name, array in feed.items():
        kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
        raw = array.view(f"u{array.dtype.itemsize}") if array.dtype.num >= _FIRST_FOREIGN_TYPE else array
        values[name] = onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(raw, kind)
    return [_array(value) for value in session.run_with_ort_values(None, values)]


def _array(value: Any) -> Any:
    """Return the elements of an OrtValue, of a type that numpy knows or not."""
    kind = value.data_type()
    if not any(foreign in kind for foreign in _FOREIGN):
        return value.numpy()
    import ctypes

    import numpy as np

    data = ctypes.string_at(value.data_ptr(), value.tensor_size_in_bytes())
    return np.frombuffer(data, _dtype(kind[7:-1])).reshape(value.shape())


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


def random_feed(session: Any, proto: Any, request: Mapping[str, Any], rng: Any, bound: int) -> dict[str, Any]:
    """Return values for the inputs of ``session``, whose model is ``proto``; integers lie below ``bound``.

    Args:
        request: "input_shapes" and "dims" as in `execute`.

    Raises:
        ValueError: An input's dimension is unknown, or there are no random values of its type.
    """
    declared = {value.name: value.type for value in proto.graph.input}
    return {
        value.name: _random_value(value.name, value.type, declared[value.name], request, rng, bound)
        for value in session.get_inputs()
    }


def _random_value(
    name: str,
    kind: str,
    declared: Any,
    request: Mapping[str, Any],
    rng: Any,
    bound: int,
    unknown: int | None = None,
) -> Any:
    """Return a value for an input of ONNX Runtime's type ``kind``, such as "tensor(float)" or "seq(tensor(int64))".

    Args:
        unknown: What to take for dimensions that nobody states, as those in sequences, which no option can state.
    """
    if kind.startswith("optional("):
        return _random_value(name, kind[9:-1], declared.optional_type.elem_type, request, rng, bound, unknown)
    if kind.startswith("seq("):
        part = declared.sequence_type.elem_type
        return [_random_value(name, kind[4:-1], part, request, rng, bound, 2) for _ in range(_SEQUENCE_LENGTH)]
    if not kind.startswith("tensor("):
        raise ValueError(f"input '{name}' has type {kind}, for which no random values can be made")
    shape = _shape(name, declared.tensor_type, request, unknown)
    return random_values(_dtype(kind[7:-1]), shape, rng, high=bound)


def _shape(name: str, tensor: Any, request: Mapping[str, Any], unknown: int | None) -> tuple[int, ...]:
    """Return an input's dimensions: as stated by the user, otherwise as the model has them.

    Raises:
        ValueError: A dimension is unknown.
    """
    stated = request["input_shapes"].get(name)
    if stated is not None:
        return tuple(stated)
    if not tensor.HasField("shape"):
        if unknown is not None:
            return (unknown,)
        raise ValueError(f"input '{name}' has no shape: state it with --input-shape {name}:...")
    shape = []
    for dim in tensor.shape.dim:
        size = dim.dim_value if dim.HasField("dim_value") else request["dims"].get(dim.dim_param, unknown)
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
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, GRAPH_LEVELS[request["level"]])
    options.optimized_model_filepath = str(Path("optimized.onnx").absolute())
    onnxruntime.InferenceSession(request["path"], options, providers=["CPUExecutionProvider"])
    return {"bytes": Path("optimized.onnx").read_bytes()}


def _with_names(message: str, nodes: Sequence[Sequence[str]]) -> str:
    """Put the model's own node names into a message of the runtime."""

    def own_name(found: re.Match[str]) -> str:
        name, kind = nodes[int(found.group(1))]
        return name or f"{kind}, number {found.group(1)} of the file"

    return re.sub(rf"{_NODE_NAME}(\d+)", own_name, message)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
