"""Random models through the whole of memsched, each result executed against the original in its real runtime.

    python -m tests.tools.random_models --models 10000

Every number stands for one model and one set of options: ONNX graphs of elementwise, reshaping and varied operators,
convolutional networks with branches in ONNX and TFLite; reordering, in-place writes, pieces, repetitions, budgets,
pinned orders, and cuts into segments. `--first N --models 1` repeats a case.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from memsched.base.errors import ModelError, UsageError
from memsched.commands.optimize.optimize import optimize
from memsched.features.pipeline.pipeline import pipeline
from tests.onnx_dags import elementwise, reshaping, varied
from tests.permissions import allowed
from tests.rewrites.tile.random_nets import onnx_net, tflite_net

_TOLERANCE = 1e-5
"""Of outputs, by their largest magnitude, where products of pieces may be added up in another order."""

_ROUNDING = 1e-3
"""What cancellation in a random network can make of rounding; verification refuses it without a model written."""

_SECONDS = 2.0
"""For one search; what it cuts off is valid all the same."""

Values = Mapping[str, np.ndarray[Any, Any]]


def main() -> int:
    """Run; 1 where a result was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    args = parser.parse_args()
    counts: Counter[str] = Counter()
    started = time.monotonic()
    for number in range(args.first, args.first + args.models):
        try:
            counts.update(_one(number))
        except Exception:
            counts["wrong"] += 1
            print(f"--- {number}\n{traceback.format_exc()}", flush=True)
        if (number + 1) % 500 == 0:
            print(f"{number + 1}: {dict(sorted(counts.items()))}", flush=True)
    print(f"{args.models} models in {time.monotonic() - started:.0f} s: {dict(sorted(counts.items()))}")
    return counts["wrong"] > 0


def _one(number: int) -> list[str]:
    """Return what was done to model ``number``; raises where a result is wrong."""
    rng = random.Random(number)
    kind = rng.choice(("elementwise", "reshaping", "varied", "net", "net", "tflite", "tflite"))
    data = _model(kind, number)
    run = _run_tflite if kind == "tflite" else _run_onnx
    if rng.random() < 0.2:
        return _cut(kind, data, number, rng, run)
    rewrite = kind in {"net", "tflite"} or rng.random() < 0.3
    tile, remat = rewrite and rng.random() < 0.7, rewrite and rng.random() < 0.5
    budget = rng.choice((None, None, 1, 4_000, 20_000))
    result = optimize(
        data,
        max_extra_macs=rng.choice((0.0, 15.0, 100.0)),
        budget=budget,
        allow=allowed(tile=tile, remat=remat, inplace=rng.random() < 0.8),
        order_guarantee="pins" if kind != "tflite" and rng.random() < 0.2 else "session",
        target=rng.choice((None, None, "ideal", *(("tflm",) if kind == "tflite" else ()))),
        time_limit=_SECONDS,
        verify=False,
        seed=number,
    )
    extra = result.report["verdict"]["extra_macs_percent"]
    pieces = result.report["sections"]["tile"] is not None and result.report["sections"]["tile"]["applied"]
    again = result.report["sections"]["recompute"] is not None and result.report["sections"]["recompute"]["applied"]
    close = compare(run(data, number), run(result.model, number), exact=not pieces)
    done = [kind, "executed" if close else "executed, verification would refuse it"]
    done += ["in pieces"] * bool(pieces) + ["computed again"] * bool(again) + ["with extra work"] * bool(extra)
    return [*done, *(["unchanged"] if result.model == data else [])]


def _model(kind: str, number: int) -> bytes:
    if kind == "tflite":
        return tflite_net(number)
    if kind == "net":
        return onnx_net(number)
    makers: dict[str, Callable[[], Any]] = {
        "elementwise": lambda: elementwise(number, 17),
        "reshaping": lambda: reshaping(number, 17),
        "varied": lambda: varied(number),
    }
    return bytes(makers[kind]().SerializeToString(deterministic=True))


def _cut(kind: str, data: bytes, number: int, rng: random.Random, run: Callable[..., Values]) -> list[str]:
    stages = rng.randint(2, 5)
    try:
        staged = pipeline(
            data,
            stages=stages,
            scheduler=rng.choice(("exact", "heuristic", "respect")),
            skips=rng.choice(("once", "through")),
            children_together=rng.random() < 0.3,
            time_limit=_SECONDS,
            verify=False,
        )
    except (UsageError, ModelError) as error:
        return [kind, f"not cut: {type(error).__name__}"]
    whole = run(data, number)
    values: dict[str, np.ndarray[Any, Any]] = {}
    for segment in staged.segments:
        values.update(run(segment.model, number, values))
    compare(whole, {name: values[name] for name in whole}, exact=True)
    return [kind, "executed", "in segments"]


def _run_onnx(data: bytes, number: int, given: Values | None = None) -> Values:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    feeds = {value.name: _value(value.name, value.shape, value.type, number, given) for value in session.get_inputs()}
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))


def _value(name: str, shape: Sequence[Any], kind: str, number: int, given: Values | None) -> np.ndarray[Any, Any]:
    if given and name in given:
        return given[name]
    rng = np.random.default_rng([number, *name.encode()])
    lengths = [length if isinstance(length, int) else 2 for length in shape]
    kinds = {"tensor(double)": np.float64, "tensor(float16)": np.float16, "tensor(int64)": np.int64}
    kinds |= {"tensor(int32)": np.int32, "tensor(int8)": np.int8, "tensor(uint8)": np.uint8}
    return np.asarray(rng.normal(size=lengths) * 3).astype(kinds.get(kind, np.float32))


def _run_tflite(data: bytes, number: int, given: Values | None = None) -> Values:
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    interpreter = Interpreter(
        model_content=data,
        num_threads=1,
        experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
    )
    interpreter.allocate_tensors()
    for detail in interpreter.get_input_details():
        name = detail["name"]
        if given and name in given:
            value = given[name]
        else:
            rng = np.random.default_rng([number, *name.encode()])
            drawn = rng.normal(size=detail["shape"]) * (1 if detail["dtype"] == np.float32 else 60)
            value = np.asarray(drawn).astype(detail["dtype"])
        interpreter.set_tensor(detail["index"], value)
    interpreter.invoke()
    return {detail["name"]: interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()}


def compare(first: Values, second: Values, *, exact: bool) -> bool:
    """Return whether outputs are as near as verification demands; raise where they differ by more than rounding."""
    close = True
    if first.keys() != second.keys():
        raise AssertionError(f"other outputs: {sorted(first)} and {sorted(second)}")
    for name, value in first.items():
        other = second[name]
        if np.array_equal(value, other, equal_nan=value.dtype.kind == "f"):
            continue
        largest = float(np.max(np.abs(value))) or 1.0
        error = float(np.max(np.abs(value.astype(np.float64) - other.astype(np.float64)))) / largest
        if exact or value.dtype.kind != "f" or error > _ROUNDING:
            raise AssertionError(f"output '{name}' differs by {error:.1e}")
        close = close and error <= _TOLERANCE
    return close


if __name__ == "__main__":
    sys.exit(main())
