"""LiteRT's default interpreter as an `Opener`: files are opened so to be measured and timed, in fresh processes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from memsched.runtimes.measure import Opener

__all__ = ["InterpreterOpener"]

_LIBRARIES: Final = "/ai_edge_litert/"

_POPULATE_READ: Final = 22
"""``MADV_POPULATE_READ`` of Linux 5.14 and later."""


class InterpreterOpener(Opener, frozen=True):
    """``Interpreter(model_path=...)`` on a file.

    Attributes:
        seed: Of its inputs.
    """

    path: str
    seed: int

    def prepare(self) -> Callable[[], _OpenInterpreter]:
        """Load the runtime, and what draws inputs; return what opens the file."""
        from ai_edge_litert.interpreter import Interpreter

        _map_libraries()
        draw = _drawing(self.seed)
        return lambda: _OpenInterpreter(Interpreter(model_path=self.path), draw)


def _map_libraries() -> None:
    """Map all pages of LiteRT's libraries, so that no file's memory counts them.

    How many a run maps beside those that it needs, up to 2 MB, depends on the state of the page cache. An older kernel
    refuses; then the peak has these pages.
    """
    advise = ctypes.CDLL(None).madvise
    advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        if _LIBRARIES in line and line.split()[1].startswith("r"):
            start, end = (int(one, 16) for one in line.split()[0].split("-"))
            advise(start, end - start, _POPULATE_READ)


_Draw = Callable[[Any], Any]
"""Gives an array for an input, of which an interpreter says the details."""


class _OpenInterpreter:
    """An interpreter, as an `RunnableModel` that runs on the same inputs each time."""

    def __init__(self, interpreter: Any, draw: _Draw) -> None:
        interpreter.allocate_tensors()
        self._interpreter = interpreter
        self._inputs = [(one["index"], draw(one)) for one in interpreter.get_input_details()]

    def start(self, size: int) -> None:
        """Do nothing: inputs are there."""

    def run(self, size: int) -> None:
        """Run once."""
        del size
        for index, values in self._inputs:
            self._interpreter.set_tensor(index, values)
        self._interpreter.invoke()

    def outputs(self, size: int) -> Sequence[Any]:
        """Run once and return the outputs."""
        self.run(size)
        return [self._interpreter.get_tensor(one["index"]) for one in self._interpreter.get_output_details()]


def _drawing(seed: int) -> _Draw:
    import numpy as np

    from memsched.runtimes.inputs import random_values

    rng = np.random.default_rng(seed)
    # What drawing loads is no part of the interpreter.
    other = np.random.default_rng(seed)
    for dtype in (np.float32, np.int8):
        random_values(dtype, (64,), other, full_range=True)

    def draw(one: Any) -> Any:
        text = np.dtype(one["dtype"]).kind in "OSU"
        # Integers that are not quantised are 0: they may be indices into an axis of any length.
        quantized = one["quantization"][0] != 0
        return random_values("S4" if text else one["dtype"], one["shape"], rng, full_range=quantized, high=1)

    return draw
