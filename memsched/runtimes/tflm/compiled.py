"""Compare generated C with TensorFlow Lite Micro on this machine: outputs and time."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from typing import Final

from memsched.base.errors import RuntimeUnavailableError
from memsched.base.shown import LONGEST_REASON
from memsched.formats.tflite.model import parse
from memsched.runtimes.arena_facts import round_up
from memsched.runtimes.child import TIMEOUT, run_in_child
from memsched.runtimes.package import TFLM
from memsched.runtimes.runtime import CompiledRun
from memsched.runtimes.tflm.plan import kernel_scratch, predict
from memsched.runtimes.tflm.verification import LEAST_ARENA
from memsched.runtimes.values import RUNS

__all__ = ["run_compiled"]

_SESSION: Final = "memsched.runtimes.tflm.compiled_session:run"
_COMPILERS: Final = ("cc", "gcc", "clang")


def run_compiled(
    model: bytes,
    files: Mapping[str, bytes],
    input_scale: tuple[float, int] | None,
    output_scales: Sequence[tuple[float, int] | None],
    seed: int,
) -> CompiledRun:
    """Compile C with the local compiler, and run the program and the model on the same inputs.

    Args:
        files: All sources, including a program that reads inputs and writes outputs.
        input_scale: Scale and zero point of an input that is float in the model and 8-bit in C.
        output_scales: Scale and zero point of each output.

    Raises:
        RuntimeUnavailableError: The runtime is not installed, or there is no compiler.
    """
    compiler = next(
        (found for one in (os.environ.get("CC"), *_COMPILERS) if one and (found := shutil.which(one))), None
    )
    if compiler is None:
        action = "name one in the environment's CC"
        raise RuntimeUnavailableError("this machine has no C compiler", code="no-compiler", action=action)
    runtime, parsed = TFLM.require(), parse(model)
    head = predict(parsed, kernel_scratch(parsed)).head
    request = {
        "model": model,
        "files": dict(files),
        "compiler": compiler,
        "arena": round_up(LEAST_ARENA + 2 * head),
        "runs": RUNS,
        "seed": seed,
        "input_scale": input_scale,
        "output_scales": list(output_scales),
    }
    answer = run_in_child(_SESSION, request, TIMEOUT)
    if not answer.ok:
        said = " ".join(answer.stderr.split())[-LONGEST_REASON:]
        return CompiledRun(runtime, reason=f"{answer.reason}{': ' if said else ''}{said}")
    found = answer.value
    return CompiledRun(runtime, RUNS, found["equal"], found["vary"], found["time_ratio"])
