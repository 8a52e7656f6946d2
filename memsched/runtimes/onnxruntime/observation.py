"""Sizes that only a run tells: ONNX Runtime executes the model once, and its profile says what every node made."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Final

from memsched.base.errors import UsageError
from memsched.formats.module import LoadOptions, ObservedSizes
from memsched.runtimes.child import run_in_child
from memsched.runtimes.package import ONNXRUNTIME

__all__ = ["OTHER_INPUTS", "observe"]

_EXECUTE: Final = "memsched.runtimes.onnxruntime.profiled_run:execute"


OTHER_INPUTS: Final = "--shapes-from-run FEEDS.npz names inputs that it runs on"
"""What is said of a model that does not run on random inputs."""


def observe(
    data: bytes, path: str, options: LoadOptions, feeds: str | None, *, seed: int, option: str = "--shapes-from-run"
) -> LoadOptions:
    """Run a model once; return ``options`` with the sizes of its inputs and of all that it computed.

    Args:
        path: Where ``data`` was read from; "-" for standard input. External data lies beside it.
        options: What is stated of the inputs; needed where ``feeds`` says nothing.
        feeds: A file of numpy (.npz) with an array for each input, by name; None for random inputs.
        seed: Of these.
        option: What is said to have asked for the run.

    Raises:
        RuntimeUnavailableError: onnxruntime is not installed.
        UsageError: The model does not run on these inputs, or they cannot be read.
    """
    ONNXRUNTIME.require()
    folder = None if path == "-" else str(Path(path).absolute().parent)
    file = None if feeds is None else str(Path(feeds).absolute())
    request = {
        "model": {"bytes": data, "folder": folder},
        "feeds": file,
        "input_shapes": {name: list(shape) for name, shape in options.input_shapes.items()},
        "dims": dict(options.dims),
        "seed": seed,
    }
    result = run_in_child(_EXECUTE, request)
    source = "random inputs" if feeds is None else f"'{feeds}'"
    if not result.ok:
        problem = f"the model does not run on {source}: {result.reason}"
        raise UsageError(problem, code="fails-at-inputs", location=option)
    if result.value["failed"] is not None:
        problem = " ".join(result.value["failed"].split())
        action = OTHER_INPUTS if feeds is None else ""
        raise UsageError(problem, code="fails-at-inputs", location=f"{option}: {source}", action=action)
    values = {
        scope: {name: (element, tuple(dims)) for name, element, dims in rows}
        for scope, rows in result.value["values"].items()
    }
    given = {name: tuple(dims) for name, dims in result.value["inputs"].items()}
    return dataclasses.replace(
        options,
        input_shapes=options.input_shapes if feeds is None else {**given, **options.input_shapes},
        feeds=file,
        observed=ObservedSizes(source, values, frozenset(result.value["executed"])),
    )
