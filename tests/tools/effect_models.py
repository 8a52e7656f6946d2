"""Random models with effects through the whole of memsched, each result executed against the original.

    python -m tests.tools.effect_models --models 2000

The models draw random numbers (with and without seeds, in bodies and functions too), are in training mode, keep a
state, capture tensors, leave the batch open, and hold NaN, infinities, -0.0, denormals and integers that saturate. In
most cases everything is permitted. Both files run in the real runtime with the same seeds, at two batches, twice in a
row: outputs must be equal bit by bit, where products of tiles are added up otherwise up to rounding, and every draw
must be there once. The written file may refuse a batch, but not answer otherwise. `--first N --models 1` repeats a
case, and `--kind onnx` or `--kind tflite` leaves the other format out.
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import memsched
from memsched.base.errors import MemschedError
from memsched.runtimes.litert.draws import draw_mismatch, with_same_seeds
from memsched.runtimes.onnxruntime.draws import same_draws
from tests.effect_nets import draws_of, onnx_model, spoiled, tflite_model
from tests.permissions import allowed

__all__ = ["judge", "main"]

Arrays = Sequence[np.ndarray[Any, Any]]

_BUDGETS = ("80%", "60%", "40%")
_TOLERANCE = 1e-5
"""Of outputs, by their largest finite magnitude, if products of tiles may be added up in another order."""


def main() -> int:
    """Run; 1 if a result was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--effort", type=float, default=0.05, help="of each search, about so many seconds")
    parser.add_argument("--kind", choices=("onnx", "tflite"))
    parser.add_argument("--keep", type=Path, help="a folder for models whose results are wrong")
    args = parser.parse_args()
    counts: Counter[str] = Counter()
    started = time.monotonic()
    for number in range(args.first, args.first + args.models):
        kind = args.kind or ("tflite" if number % 4 == 3 else "onnx")
        try:
            counts.update(judge(number, kind, effort=args.effort))
        except Exception:
            counts["wrong"] += 1
            print(f"--- {number} ({kind})\n{traceback.format_exc()}", flush=True)
            if args.keep:
                args.keep.mkdir(parents=True, exist_ok=True)
                (args.keep / f"{number}.{kind}").write_bytes(model_of(number, kind))
        if (number + 1) % 100 == 0:
            print(f"{number + 1}: {dict(sorted(counts.items()))}", flush=True)
    print(f"{args.models} models in {time.monotonic() - started:.0f} s: {dict(sorted(counts.items()))}")
    print(f"{counts['executed']} executed, {counts['wrong']} wrong")
    return counts["wrong"] > 0


def model_of(number: int, kind: str) -> bytes:
    """Return the file of a case."""
    return tflite_model(number) if kind == "tflite" else bytes(onnx_model(number).SerializeToString(deterministic=True))


def judge(number: int, kind: str, *, effort: float = 0.05) -> list[str]:
    """Return what was done to model ``number``; raises if a result is wrong."""
    rng = random.Random(f"{number} options")
    data = model_of(number, kind)
    run = _OnnxRuns if kind == "onnx" else _TfliteRuns
    runs = run(data, number)
    try:
        expected = {size: runs.outputs(data, size) for size in runs.sizes}
    except Exception as error:  # the runtime raises classes of its own
        return [kind, f"the original is refused: {type(error).__name__}"]
    most = rng.random() < 0.7
    try:
        result = memsched.optimize(
            data,
            allow=allowed(
                tile=most or rng.random() < 0.5,
                remat=most or rng.random() < 0.5,
                algebra=most or rng.random() < 0.5,
                fuse=kind == "onnx" and rng.random() < 0.3,
                inplace=rng.random() < 0.8,
            ),
            max_extra_macs=rng.choice((0.0, 15.0, 100.0, 300.0)),
            max_slowdown=None,
            budget=None if rng.random() < 0.5 else rng.choice(_BUDGETS),
            order_guarantee=rng.choice(("pins", "session", "session")) if kind == "onnx" else None,
            dims=runs.dims,
            target="litert" if kind == "tflite" else None,
            effort=effort,
            seed=number,
            verify=False,
        )
    except MemschedError as error:
        return [kind, f"refused: {_without_names(str(error))}"]
    report = result.report.data
    done = _done(report)
    if result.model == data:
        return [kind, "executed", "unchanged"]
    runs.check_draws(result.model)
    exact = not {"tiled", "fused"} & set(done)
    words = []
    for size, outputs in expected.items():
        try:
            found = runs.outputs(result.model, size)
        except Exception as error:
            if size == runs.sizes[0]:
                raise AssertionError(f"the written file does not run: {error}") from error
            words.append("another batch is refused")
            continue
        words.append(_compared(outputs, found, exact=exact, where=f"at batch {size}"))
    if kind == "tflite":
        words.append(_without_delegates(data, result.model, number, exact=exact))
    return [kind, "executed", *dict.fromkeys(words), *done]


def _without_delegates(before: bytes, after: bytes, number: int, *, exact: bool) -> str:
    """Return how near outputs are without delegates; raise if they differ otherwise than that is known of LiteRT.

    Its own kernels give for a sum that is NaN either NaN or the largest float, by the place of the sum in a vector of
    the processor. The default interpreter does not. What follows from such a sum, as after a softmax, is for
    verification to find: it must not let such a file pass.
    """
    runs = _TfliteRuns(before, number, delegates=False)
    first, second = (runs.outputs(data, runs.sizes[0]) for data in (before, after))
    try:
        return f"{_compared(first, second, exact=exact, where='')} without delegates"
    except AssertionError as error:
        try:
            _compared(*(list(map(_unclamped, one)) for one in (first, second)), exact=exact, where="without delegates")
        except AssertionError:
            if _passes(before, after, number):
                raise error from None
            return "refused by verification: NaN clamped otherwise without delegates"
        return "NaN clamped otherwise without delegates"


def _passes(before: bytes, after: bytes, number: int) -> bool:
    """Whether `memsched verify` lets a file pass that is to stand for another one."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in ("before.tflite", "after.tflite")]
        for path, data in zip(paths, (before, after), strict=True):
            path.write_bytes(data)
        done = subprocess.run(
            [sys.executable, "-m", "memsched", "verify", *map(str, paths), "--seed", str(number)],
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode not in {0, 4}:
        raise RuntimeError(f"verify ended with {done.returncode}: {done.stderr}")
    return done.returncode == 0


def _unclamped(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    found: np.ndarray[Any, Any] = np.where(np.abs(values) == np.finfo(np.float32).max, np.float32(np.nan), values)
    return found


def _without_names(message: str) -> str:
    """Return the beginning of a message, in which names and numbers are left out."""
    return " ".join(re.sub(r"'[^']*'|\d+|\S*:\S*", "", message).split())[:60]


def _compared(first: Arrays, second: Arrays, *, exact: bool, where: str) -> str:
    """Return how near outputs are; raise if they differ otherwise than by rounding that is permitted."""
    word = "bit-equal"
    for place, (one, other) in enumerate(zip(first, second, strict=True)):
        if one.shape != other.shape or one.dtype != other.dtype:
            raise AssertionError(f"{where}: output {place} is {other.dtype}{other.shape}, not {one.dtype}{one.shape}")
        if _bits(one) == _bits(other):
            continue
        finite = np.isfinite(one) & np.isfinite(other)
        if not np.array_equal(one[~finite], other[~finite], equal_nan=True):
            raise AssertionError(f"{where}: output {place} has other NaN or infinities")
        largest = float(np.max(np.abs(one[finite]), initial=0.0)) or 1.0
        error = float(np.max(np.abs(one[finite].astype(np.float64) - other[finite]), initial=0.0)) / largest
        if exact or error > _TOLERANCE:
            raise AssertionError(f"{where}: output {place} differs by {error:.1e} of its largest magnitude")
        word = "equal up to rounding"
    return word


def _bits(values: np.ndarray[Any, Any]) -> bytes:
    """Return the bytes of values; all NaN are one."""
    return np.where(np.isnan(values), np.array(np.nan, values.dtype), values).tobytes()


def _done(report: Mapping[str, Any]) -> list[str]:
    words = {"tile": "tiled", "recompute": "again", "chains": "fused", "algebra": "algebra"}
    sections = report["sections"]
    return [word for name, word in words.items() if sections[name] and sections[name]["applied"]]


class _OnnxRuns:
    """Runs files in ONNX Runtime with the same seeds."""

    def __init__(self, data: bytes, number: int) -> None:
        self._given, self._number = onnx.load_from_string(data), number
        shape = self._given.graph.input[0].type.tensor_type.shape.dim
        self._shape = [dim.dim_value for dim in shape]
        size = random.Random(f"{number} size").choice([1, 2])
        self.dims = {"n": size} if not self._shape[0] else {}
        self.sizes = [size, 3] if self.dims else [self._shape[0]]

    def outputs(self, data: bytes, size: int) -> Arrays:
        """Return the outputs of two runs in a row, at a batch."""
        import onnxruntime as ort

        model = same_draws(self._given, [onnx.load_from_string(data)]).models[1]
        options = ort.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        found: list[Any] = []
        for turn in range(2):
            found += session.run(None, {"x": _input((size, *self._shape[1:]), self._number, turn)})
        return found

    def check_draws(self, data: bytes) -> None:
        """Check that every draw is there once, by a count that shares nothing with memsched's."""
        given, found = draws_of(self._given), draws_of(onnx.load_from_string(data))
        if given != found:
            raise AssertionError(f"{dict(found)} draw instead of {dict(given)}")


class _TfliteRuns:
    """Runs files in LiteRT with the same seeds, in the interpreter as people open it unless told otherwise."""

    def __init__(self, data: bytes, number: int, *, delegates: bool = True) -> None:
        self._given, self._number, self._delegates = data, number, delegates
        self.dims: dict[str, int] = {}
        from ai_edge_litert.interpreter import Interpreter

        signature = Interpreter(model_content=data).get_input_details()[0]["shape_signature"]
        self.sizes = [1, 3] if signature[0] < 0 else [1]

    def outputs(self, data: bytes, size: int) -> Arrays:
        """Return the outputs of two runs in a row, at a batch."""
        from ai_edge_litert.interpreter import Interpreter, OpResolverType

        resolver = OpResolverType.AUTO if self._delegates else OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
        model = with_same_seeds([data])[0]
        interpreter = Interpreter(model_content=model, num_threads=1, experimental_op_resolver_type=resolver)
        detail = interpreter.get_input_details()[0]
        shape = (size, *detail["shape"][1:])
        if size != detail["shape"][0]:
            interpreter.resize_tensor_input(detail["index"], shape)
        interpreter.allocate_tensors()
        found: list[Any] = []
        for turn in range(2):
            interpreter.set_tensor(detail["index"], _input(shape, self._number, turn))
            interpreter.invoke()
            found += [interpreter.get_tensor(one["index"]) for one in interpreter.get_output_details()]
        return found

    def check_draws(self, data: bytes) -> None:
        """Check that every draw is there once."""
        if mismatch := draw_mismatch(self._given, [data]):
            raise AssertionError(mismatch)


def _input(shape: Sequence[int], number: int, turn: int) -> np.ndarray[Any, Any]:
    rng = random.Random(f"{number} {turn} input")
    values = np.random.default_rng([number, turn]).normal(size=shape).astype(np.float32)
    return spoiled(values, rng) if rng.random() < 0.4 else values


if __name__ == "__main__":
    sys.exit(main())
