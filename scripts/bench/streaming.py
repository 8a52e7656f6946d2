"""Measure C that streams: its RAM, flash and time beside TensorFlow Lite Micro's, with equal outputs on 20 inputs.

RAM is the arena and the state, as the header states them; the stack comes on top. Times are of the processor, in turns
in one process, beside the wheel `tflite-micro`; where that refuses a model, LiteRT without delegates gives the outputs
that are compared, and there is no time.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np

from memsched.base.errors import MemschedError
from memsched.codegen.streaming.emit import ram_bytes
from memsched.codegen.streaming.plan import InputPlace
from scripts.bench.runner.declare import Benchmark, Heading, Part, Values, Verdict, option, positional

__all__ = ["BENCH", "CALLS", "Row", "in_micro", "rows_of"]

Row = Callable[[str, bytes, InputPlace, str], tuple[tuple[str, ...], bool]]
"""Of a name, contents, the input's place and the compiler's level: the cells, and whether outputs are equal."""

PLACES: Final[tuple[InputPlace, ...]] = ("held", "elsewhere", "rows")

_FOLDER: Final = Path(__file__).parents[2] / "models"
_NAMES: Final = ("hello_world_int8", "micro_speech_quantized", "person_detect", "mobilenetv2_035_96_int8")
_INPUTS: Final = 20
_ARENA: Final = 1 << 24

_TAKES: Final = """
import sys
import numpy
from tflite_micro.python.tflite_micro import runtime
interpreter = runtime.Interpreter.from_file(sys.argv[1], arena_size=int(sys.argv[2]))
detail = interpreter.get_input_details(0)
interpreter.set_input(numpy.zeros([int(length) for length in detail["shape"]], detail["dtype"]), 0)
interpreter.invoke()
"""

CALLS: Final = """
#include "model.h"
void run(const int8_t *in, int8_t *out)
{
#if defined(ROWS)
    unsigned row;
    model_begin(out);
    for (row = 0; row < MODEL_INPUT_ROWS; row++) model_push_row(in + row * MODEL_ROW_BYTES);
    model_end();
#else
    model_invoke(in, out);
#endif
}
"""


def _row(name: str, model: bytes, place: InputPlace, optimize: str) -> tuple[tuple[str, ...], bool]:
    from tests.codegen.harness import COMPILER
    from tests.codegen.streaming.harness import extremes, in_reference, streamed

    begun = time.process_time()
    plan, code = streamed(model, place)
    seconds = time.process_time() - begun
    inputs = extremes(plan.network.maps[0].size, _INPUTS)
    with tempfile.TemporaryDirectory() as folder:
        for file, data in {**code.files, "calls.c": CALLS.encode()}.items():
            (Path(folder) / file).write_bytes(data)
        library = Path(folder) / "library.so"
        macros = ["-DROWS"] if place == "rows" else []
        sources = [str(Path(folder) / file) for file in ("model.c", "calls.c")]
        command = [str(COMPILER), "-std=c99", f"-{optimize}", "-shared", "-fPIC", *macros, *sources, "-o", str(library)]
        subprocess.run(command, check=True)
        run = ctypes.CDLL(str(library)).run
    made = np.zeros(plan.network.maps[plan.network.outputs[0]].size, np.int8)

    def ours(values: Any) -> Any:
        run(values.ctypes.data_as(ctypes.c_void_p), made.ctypes.data_as(ctypes.c_void_p))
        return made

    micro = in_micro(model)
    if micro is None:
        wanted = in_reference(model, inputs)
        same, ratio = all(np.array_equal(ours(one), other) for one, other in zip(inputs, wanted, strict=True)), None
    else:
        same, ratio = _in_turns(inputs, ours, micro)
    cells = (
        name, place, f"{ram_bytes(plan.arena, code.state):,}", f"{plan.arena:,}", f"{code.flash:,}", f"{len(model):,}",
        "" if ratio is None else f"{ratio:.2f} x", "equal" if same else "DIFFERENT", f"{seconds:.1f}",
    )  # fmt: skip
    return cells, same


def in_micro(model: bytes) -> Callable[[Any], Any] | None:
    """Return what runs a model of 8 bits in TensorFlow Lite Micro, if that takes it."""
    from tests.codegen.streaming.harness import tflm_runner

    if b"TFL3" not in model[:8] or len(model) > _ARENA:
        return None
    with tempfile.NamedTemporaryFile(suffix=".tflite") as file:
        file.write(model)
        file.flush()
        # The wheel aborts on some models, with the process.
        if subprocess.run(
            [sys.executable, "-c", _TAKES, file.name, str(_ARENA)], capture_output=True, check=False
        ).returncode:
            return None
    return tflm_runner(model, _ARENA)


def _in_turns(inputs: Any, ours: Callable[[Any], Any], micro: Callable[[Any], Any]) -> tuple[bool, float]:
    """Return whether outputs are equal, twice in a row, and the ratio of times."""
    same, ratios = True, []
    for values in inputs:
        times = []
        for run in (micro, ours, micro, ours):
            begun = time.process_time()
            run(values)
            times.append(time.process_time() - begun)
        wanted = micro(values).copy()
        same = same and np.array_equal(ours(values), wanted) and np.array_equal(ours(values), wanted)
        ratios.append((times[1] + times[3]) / max(times[0] + times[2], 1e-9))
    return same, median(ratios)


def default_models(files: Sequence[Path]) -> dict[str, bytes]:
    """Return models by name: those of files, or the four of the project and two networks with random weights."""
    from tests.codegen.streaming.networks import mobilenet_v2, resnet_8

    if files:
        return {path.stem: path.read_bytes() for path in files}
    found = {name: (_FOLDER / f"{name}.tflite").read_bytes() for name in _NAMES}
    return found | {"ResNet-8": resnet_8(), "MobileNetV2 1.0 at 224": mobilenet_v2()}


def tables(values: Values) -> Iterator[Part]:
    """Yield a row for each model and place of the input."""
    yield Heading(
        *("model", "input", ">RAM, B", ">arena, B", ">flash, B", ">file, B", ">time", "outputs"),
        ">planned and checked in, s",
    )
    yield from rows_of(values, _row, 9)


def rows_of(values: Values, row: Row, columns: int) -> Iterator[Part]:
    """Yield a row of so many columns for each model and place of the input, and at last what was wrong."""
    wrong = []
    for name, model in default_models(values.models).items():
        for place in PLACES:
            try:
                cells, right = row(name, model, place, values.optimize)
            except MemschedError as error:
                yield (name, f"refused: {error}", *[""] * (columns - 2))
                break
            wrong += [] if right else [f"{name} {place}"]
            yield cells
    yield Verdict(f"\nwrong: {', '.join(wrong) or 'none'}", bool(wrong))


BENCH = Benchmark(
    __doc__,
    tables,
    (
        positional("models", type=Path, help="TFLite files; default: four, and two networks with random weights"),
        option("--optimize", default="O2", help="of the compiler"),
    ),
    docs="docs/benchmarks/devices.md",
)
