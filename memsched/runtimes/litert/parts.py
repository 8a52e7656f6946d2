"""Parts of a TFLite model on a device: the process's side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from memsched.runtimes.litert.draws import with_same_seeds
from memsched.runtimes.litert.probe import probe
from memsched.runtimes.litert.session import opened

__all__ = ["LiteRtParts"]


class LiteRtParts:
    """LiteRT without its delegates, whose kernels give the same values for parts as for the whole."""

    def __init__(self) -> None:
        import ai_edge_litert.interpreter  # noqa: F401 - what loading it takes is no part of what a device takes

    @property
    def version(self) -> str:
        """Return name and version."""
        return f"litert {version('ai-edge-litert')}"

    def open(self, model: str | bytes, number: int, names: Mapping[int, str]) -> _LiteRtPart:
        """Load a model; its arena is taken when it first runs."""
        del number
        content = model if isinstance(model, bytes) else Path(model).read_bytes()
        # What draws random numbers gets the same seeds in the whole model and in parts of it.
        (content,) = with_same_seeds([content])
        return _LiteRtPart(opened(content, "plain"), names)


class _LiteRtPart:
    """An interpreter, and its arena from its first run to the question for its size."""

    def __init__(self, interpreter: Any, names: Mapping[int, str]) -> None:
        self._interpreter, self._names = interpreter, names
        self._operators: int = interpreter._interpreter.NumNodes()
        self._ready = False
        self._handed = 0

    def run(self, outputs: Sequence[str], feeds: Mapping[str, Any]) -> list[Any]:
        if not self._ready:
            self._interpreter.allocate_tensors()
            self._ready = True
        for detail in self._interpreter.get_input_details():
            self._interpreter.set_tensor(detail["index"], feeds[self._name(detail)])
        self._interpreter.invoke()
        found = {self._name(one): one["index"] for one in self._interpreter.get_output_details()}
        results = [self._interpreter.get_tensor(found[name]) for name in outputs]
        self._handed = sum(one.nbytes for one in results)
        return results

    def peak(self) -> int | None:
        arena = probe(self._interpreter, self._operators).arena_bytes
        self._interpreter = None
        return None if arena is None else arena + self._handed

    def nodes(self) -> dict[str, list[float]]:
        return {}

    def _name(self, detail: Mapping[str, Any]) -> str:
        return self._names.get(detail["index"], str(detail["name"]))
