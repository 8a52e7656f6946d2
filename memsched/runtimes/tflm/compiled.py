"""Compare generated C with TensorFlow Lite Micro on this machine: outputs and time."""

from __future__ import annotations

import os
import shutil
from typing import Final

from memsched.base.errors import RuntimeUnavailableError
from memsched.formats.tflite.model import parse
from memsched.runtimes.child import TIMEOUT, run_in_child
from memsched.runtimes.package import TFLM
from memsched.runtimes.runtime import CompiledModel, CompiledRun
from memsched.runtimes.tflm.verification import arena_for, predicted
from memsched.runtimes.values import RUNS

__all__ = ["run_beside"]

_SESSION: Final = "memsched.runtimes.tflm.compiled_session:run"
_COMPILERS: Final = ("cc", "gcc", "clang")


def run_beside(compiled: CompiledModel, seed: int) -> CompiledRun:
    """Compile C with the local compiler, and run the program and the model on the same inputs.

    Raises:
        RuntimeUnavailableError: The runtime is not installed, or there is no compiler.
    """
    compiler = next(
        (found for one in (os.environ.get("CC"), *_COMPILERS) if one and (found := shutil.which(one))), None
    )
    if compiler is None:
        action = "name one in the environment's CC"
        raise RuntimeUnavailableError("this machine has no C compiler", code="no-compiler", action=action)
    runtime = TFLM.require()
    request = {
        "model": compiled.model,
        "files": dict(compiled.files),
        "compiler": compiler,
        "arena": arena_for(predicted(parse(compiled.model))),
        "runs": RUNS,
        "seed": seed,
        "input_scale": compiled.input_scale,
        "output_scales": list(compiled.output_scales),
    }
    answer = run_in_child(_SESSION, request, TIMEOUT)
    if not answer.ok:
        return CompiledRun(runtime, reason=answer.explained())
    found = answer.value
    return CompiledRun(runtime, RUNS, found["equal"], found["vary"], found["time_ratio"])
