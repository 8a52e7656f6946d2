"""Runs a model and its segments: the child process's side of `memsched.runtimes.segments`.

Requests and answers are plain values, as ``memsched.runtimes.child`` can pass them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from memsched.runtimes.compare import compare, relative_error
from memsched.runtimes.inputs import random_values
from memsched.runtimes.onnxruntime.inputs import random_feed
from memsched.runtimes.onnxruntime.sessions import GRAPH_LEVELS, find_data, run_once, unseeded

__all__ = ["run_onnx", "run_tflite"]

# Integers are often indices: where the first choice is out of bounds, smaller ones may not be.
_INTEGER_BOUNDS: Final = (4, 2, 1)
_INVOKES: Final = 2
"""Runs in a row of a TFLite model on one input: state that one leaves behind is the next one's input."""

_PACKED: Final = re.compile(r"\b(u?int[24]|float4)")
"""Types of less than a byte, which ONNX Runtime's Python interface does not give out."""

_Values = dict[str, Any]


class _RunError(Exception):
    """Model ``number`` does not run; 0 is the whole one, or says that segments cannot be run here at all."""

    def __init__(self, number: int, error: Exception) -> None:
        super().__init__(" ".join(str(error).split()) or type(error).__name__)
        self.number = number


def run_onnx(request: Mapping[str, Any]) -> dict[str, Any]:
    """Run "model" and "segments" on "runs" inputs drawn with "seed", without and with graph optimisation.

    Args:
        request: Also "folder" of external data (or None) and "input_shapes".

    Returns:
        "random": an op that draws random numbers without a seed, or None; "plain" and "other", each with "failed"
        (the number of the model that did not run, 0 being the whole one, or None), its "message", "equal",
        "max_abs_error", "relative_error", and "absent": outputs of the model that no segment hands out.
    """
    import onnx
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    proto = onnx.load_model_from_string(request["model"])
    random = next(iter(unseeded(proto)), None)
    del proto.graph.node[:], proto.graph.initializer[:]
    return {
        "random": random,
        "plain": _result(lambda: _run_onnx(onnxruntime, request, proto, "disabled")),
        "other": _result(lambda: _run_onnx(onnxruntime, request, proto, "all")),
    }


def _result(run: Any) -> dict[str, Any]:
    try:
        expected, found = run()
    except _RunError as failure:
        return {"failed": failure.number, "message": str(failure)}
    names = [name for name in expected[0] if name in found[0]]
    first = [one[name] for one in expected for name in names]
    second = [one[name] for one in found for name in names]
    equal, error = compare(first, second)
    return {
        "failed": None,
        "message": None,
        "equal": equal,
        "max_abs_error": error,
        "relative_error": relative_error(first, second),
        "absent": [name for name in expected[0] if name not in found[0]],
    }


def _open(onnxruntime: Any, request: Mapping[str, Any], model: bytes, level: str) -> Any:
    """Open a session of one thread, so that runs can be compared; it follows the file's order."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, GRAPH_LEVELS[level])
    if level == "disabled":
        options.execution_order = onnxruntime.ExecutionOrder.PRIORITY_BASED
        options.enable_mem_reuse = False
    find_data(options, request["folder"])
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _run_onnx(
    onnxruntime: Any, request: Mapping[str, Any], proto: Any, level: str
) -> tuple[list[_Values], list[_Values]]:
    """Return per run the outputs of the whole model, and everything that its segments hand out."""
    feeds, expected = _run_whole(onnxruntime, request, proto, level)
    values = [dict(feed) for feed in feeds]
    for number in range(1, len(request["segments"]) + 1):
        _run_segment(onnxruntime, request, number, level, values)
    return expected, values


def _run_segment(
    onnxruntime: Any, request: Mapping[str, Any], number: int, level: str, values: Sequence[_Values]
) -> None:
    """Add what segment ``number`` hands out to the ``values`` of each run."""
    try:
        session = _open(onnxruntime, request, request["segments"][number - 1], level)
        strange = [
            value.type for value in (*session.get_inputs(), *session.get_outputs()) if _PACKED.search(value.type)
        ]
        if strange:
            raise _RunError(0, ValueError(f"values of type {strange[0]} cannot be handed over in Python"))
        reads = [value.name for value in session.get_inputs()]
        made = [value.name for value in session.get_outputs()]
        for held in values:
            held.update(zip(made, run_once(session, {name: held[name] for name in reads}), strict=True))
    except _RunError:
        raise
    except Exception as error:  # the runtime raises classes of its own
        raise _RunError(number, error) from error


def _run_whole(
    onnxruntime: Any, request: Mapping[str, Any], proto: Any, level: str
) -> tuple[list[_Values], list[_Values]]:
    """Return the inputs of each run, with the largest bound of integers that the model runs on, and its outputs."""
    import numpy as np

    try:
        session = _open(onnxruntime, request, request["model"], level)
        made = [value.name for value in session.get_outputs()]
    except Exception as error:
        raise _RunError(0, error) from error
    failure: _RunError | None = None
    for bound in _INTEGER_BOUNDS:
        rng = np.random.default_rng(request["seed"])
        try:
            feeds = [random_feed(session, proto, {**request, "dims": {}}, rng, bound) for _ in range(request["runs"])]
            return feeds, [dict(zip(made, run_once(session, feed), strict=True)) for feed in feeds]
        except Exception as error:
            # The first message is about usual inputs.
            failure = failure or _RunError(0, error)
    raise failure or _RunError(0, ValueError("it does not run"))


def run_tflite(request: Mapping[str, Any]) -> dict[str, Any]:
    """Do what `run_onnx` does in LiteRT, without and with its delegates.

    Args:
        request: Also "names": pairs of the index of a tensor of the whole model and the name that segments give it.
    """
    plain = _result(lambda: _run_tflite(request, "plain"))
    random = None
    if plain["failed"] is None and not plain["equal"]:
        again = _result(lambda: (_run_tflite(request, "plain")[0], _run_tflite(request, "plain")[0]))
        random = None if again["equal"] else "an operator"
    return {"random": random, "plain": plain, "other": _result(lambda: _run_tflite(request, "default"))}


def _run_tflite(request: Mapping[str, Any], mode: str) -> tuple[list[_Values], list[_Values]]:
    """Return per invocation the outputs of the whole model, and everything that its segments hand out."""
    names = {int(tensor): str(name) for tensor, name in request["names"]}
    models = [request["model"], *request["segments"]]
    loaded = [_load(model, mode, {} if number else names, number) for number, model in enumerate(models)]
    failure: _RunError | None = None
    for bound in _INTEGER_BOUNDS:
        found = _attempt(loaded, request, bound)
        if not isinstance(found, _RunError):
            return found
        # The first message is about usual inputs; on inputs that suit the whole model the segments must run too.
        failure = found if failure is None or found.number else failure
        if found.number:
            break
    raise failure or ValueError("no bound was tried")


def _attempt(
    loaded: Sequence[_Interpreter], request: Mapping[str, Any], bound: int
) -> tuple[list[_Values], list[_Values]] | _RunError:
    try:
        return _run_loaded(loaded, request, bound)
    except _RunError as error:
        return error


def _load(model: bytes, mode: str, names: Mapping[int, str], number: int) -> _Interpreter:
    try:
        return _Interpreter(model, mode, names)
    except (ValueError, RuntimeError) as error:
        raise _RunError(number, error) from error


def _run_loaded(
    loaded: Sequence[_Interpreter], request: Mapping[str, Any], bound: int
) -> tuple[list[_Values], list[_Values]]:
    import numpy as np

    expected: list[_Values] = []
    found: list[_Values] = []
    for run in range(request["runs"]):
        rng = np.random.default_rng(np.random.SeedSequence([request["seed"], run]))
        for one in loaded:
            one.reset()
        for _ in range(_INVOKES):
            values = loaded[0].random(rng, bound)
            expected.append(_invoke(loaded[0], 0, values))
            held = dict(values)
            for number, one in enumerate(loaded[1:], 1):
                held.update(_invoke(one, number, held))
            found.append(held)
    return expected, found


def _invoke(interpreter: _Interpreter, number: int, values: _Values) -> _Values:
    try:
        return interpreter.invoke(values)
    except (ValueError, RuntimeError, KeyError) as error:
        raise _RunError(number, error) from error


class _Interpreter:
    """One model in LiteRT, fed and asked by names."""

    def __init__(self, model: bytes, mode: str, names: Mapping[int, str]) -> None:
        from ai_edge_litert.interpreter import Interpreter, OpResolverType

        resolver = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES if mode == "plain" else OpResolverType.AUTO
        self._interpreter = Interpreter(model_content=model, num_threads=1, experimental_op_resolver_type=resolver)
        self._interpreter.allocate_tensors()
        self._names = names

    def reset(self) -> None:
        """Forget all state."""
        self._interpreter.reset_all_variables()

    def random(self, rng: Any, bound: int) -> _Values:
        """Return random values for all inputs; integers that are not quantised lie below ``bound``."""
        import numpy as np

        values = {}
        for detail in self._interpreter.get_input_details():
            dtype = "S4" if np.dtype(detail["dtype"]).kind in "OSU" else detail["dtype"]
            quantized = detail["quantization"][0] != 0
            values[self._name(detail)] = random_values(dtype, detail["shape"], rng, full_range=quantized, high=bound)
        return values

    def invoke(self, values: _Values) -> _Values:
        """Run once; the inputs take the shapes of the values that are given."""
        details: Sequence[Mapping[str, Any]] = self._interpreter.get_input_details()
        changed = False
        for detail in details:
            value = values[self._name(detail)]
            if tuple(detail["shape"]) != value.shape:
                self._interpreter.resize_tensor_input(detail["index"], value.shape)
                changed = True
        if changed:
            self._interpreter.allocate_tensors()
        for detail in details:
            self._interpreter.set_tensor(detail["index"], values[self._name(detail)])
        self._interpreter.invoke()
        return {
            self._name(detail): self._interpreter.get_tensor(detail["index"])
            for detail in self._interpreter.get_output_details()
        }

    def _name(self, detail: Mapping[str, Any]) -> str:
        return self._names.get(detail["index"], detail["name"])
