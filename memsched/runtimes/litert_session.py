"""Runs two models in LiteRT on the same random inputs: the child process's side of `memsched.runtimes.litert`."""

from __future__ import annotations

from typing import Any

__all__ = ["run"]

_INVOKES = 2
"""Runs in a row on one input: state that one leaves behind is the next one's input."""

_RANGES = (4, 1)
"""Exclusive bounds tried for integer inputs: they may be indices into an axis of unknown length."""


def run(request: dict[str, Any]) -> dict[str, Any]:
    """Compare models "before" and "after" over "runs" inputs drawn with "seed", with and without LiteRT's delegates.

    Returns:
        Per mode ("plain" without delegates, "default" with those that LiteRT applies by itself) a dictionary: either
        "before_error" or "after_error" (a model could not be loaded or run), or "runs", "equal", "max_abs_error",
        "repeatable" (whether the model as given gives the same outputs twice), and with "probe" also
        "order_before", "order_after" (lists or None), "arena_before", "arena_after" (bytes or None).
    """
    return {mode: _compare_models(request, mode) for mode in ("plain", "default")}


def _load(model: bytes, mode: str) -> Any:
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    resolver = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES if mode == "plain" else OpResolverType.AUTO
    interpreter = Interpreter(model_content=model, num_threads=1, experimental_op_resolver_type=resolver)
    operators = interpreter._interpreter.NumNodes()
    interpreter.allocate_tensors()
    return interpreter, operators


def _compare_models(request: dict[str, Any], mode: str) -> dict[str, Any]:
    import numpy as np

    from memsched.runtimes.compare import compare

    try:
        before, _ = _load(request["before"], mode)
        high = _runnable_range(before, request["seed"])
    except (ValueError, RuntimeError) as error:
        return {"before_error": _one_line(error)}
    equal, max_abs_error = True, 0.0
    try:
        after, _ = _load(request["after"], mode)
        for number in range(request["runs"]):
            seed = np.random.SeedSequence([request["seed"], number])
            same, distance = compare(_outputs(before, seed, high), _outputs(after, seed, high))
            equal, max_abs_error = equal and same, max(max_abs_error, distance)
    except (ValueError, RuntimeError) as problem:
        return {"after_error": _one_line(problem)}
    repeatable = equal or _is_repeatable(request, mode, high)
    result = {"runs": request["runs"], "equal": equal, "max_abs_error": max_abs_error, "repeatable": repeatable}
    if request["probe"]:
        result.update(_probe_both(request, mode))
    return result


def _runnable_range(interpreter: Any, seed: int) -> int:
    """Return the largest bound of integer inputs with which the model runs."""
    import numpy as np

    for high in _RANGES[:-1]:
        try:
            _outputs(interpreter, np.random.SeedSequence(seed), high)
        except RuntimeError:
            continue
        return high
    _outputs(interpreter, np.random.SeedSequence(seed), _RANGES[-1])
    return _RANGES[-1]


def _outputs(interpreter: Any, seed: Any, high: int) -> list[Any]:
    """Reset the state, run a few times in a row and return all outputs of all runs."""
    import numpy as np

    from memsched.runtimes.inputs import random_values

    rng = np.random.default_rng(seed)
    interpreter.reset_all_variables()
    found = []
    for _ in range(_INVOKES):
        for detail in interpreter.get_input_details():
            quantized = detail["quantization"][0] != 0
            dtype = "S4" if np.dtype(detail["dtype"]).kind in "OSU" else detail["dtype"]
            values = random_values(dtype, detail["shape"], rng, full_range=quantized, high=high)
            interpreter.set_tensor(detail["index"], values)
        interpreter.invoke()
        found += [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]
    return found


def _is_repeatable(request: dict[str, Any], mode: str, high: int) -> bool:
    """Return whether two copies of the model as given agree with each other."""
    import numpy as np

    from memsched.runtimes.compare import compare

    seed = np.random.SeedSequence([request["seed"], 0])
    first, second = (_outputs(_load(request["before"], mode)[0], seed, high) for _ in range(2))
    return compare(first, second)[0]


def _probe_both(request: dict[str, Any], mode: str) -> dict[str, Any]:
    from memsched.runtimes.litert_probe import probe

    found: dict[str, Any] = {}
    for name in ("before", "after"):
        seen = probe(*_load(request[name], mode))
        found[f"order_{name}"] = None if seen.order is None else list(seen.order)
        found[f"arena_{name}"] = seen.arena_bytes
    return found


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
