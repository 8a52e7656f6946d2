"""Parts of an ONNX model on a device: the process's side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from memsched.runtimes.onnxruntime.draws import same_draws
from memsched.runtimes.onnxruntime.opened import opened, profile_of, read_profile, runtime
from memsched.runtimes.onnxruntime.sessions import load_proto
from memsched.runtimes.sessions import EXECUTED

__all__ = ["OnnxRuntimeParts"]

_KERNEL: Final = "_kernel_time"


class OnnxRuntimeParts:
    """ONNX Runtime, all of whose sessions take memory from one arena that grows by what is asked for."""

    def __init__(self) -> None:
        self._onnxruntime = onnxruntime = runtime()
        kind = onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR
        memory = onnxruntime.OrtMemoryInfo("Cpu", kind, 0, onnxruntime.OrtMemType.DEFAULT)
        growth = {
            "max_mem": 0,
            "arena_extend_strategy": 1,
            "initial_chunk_size_bytes": -1,
            "max_dead_bytes_per_chunk": -1,
        }
        onnxruntime.create_and_register_allocator(memory, onnxruntime.OrtArenaCfg(growth))

    @property
    def version(self) -> str:
        """Return name and version."""
        return f"onnxruntime {self._onnxruntime.__version__}"

    def open(self, model: str | bytes, number: int, names: Mapping[int, str]) -> _OnnxPart:
        """Open a session that executes the file's order and measures, as verification does."""
        del names

        def measured(options: Any) -> None:
            options.enable_profiling = True
            # The runtime adds the time in whole seconds, which several sessions share.
            options.profile_file_prefix = f"profile_{number}"
            options.add_session_config_entry("session.use_env_allocators", "1")

        source, folder = _seeded(model)
        return _OnnxPart(opened(source, replace(EXECUTED, threads=1), folder=folder, change=measured))


def _seeded(model: str | bytes) -> tuple[str | bytes, str | None]:
    """Return a model in which what draws random numbers has seeds, and where its external data lies if it was a path.

    The whole model and the parts of it get the same seeds, by the names of values.
    """
    import onnx

    path = Path(model).absolute() if isinstance(model, str) else None
    source = {"bytes": model} if path is None else {"path": str(path)}
    draws = same_draws(load_proto(onnx, source), ())
    if not draws.count:
        return model, None
    return draws.models[0].SerializeToString(), None if path is None else str(path.parent)


class _OnnxPart:
    """A session that profiles."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def run(self, outputs: Sequence[str], feeds: Mapping[str, Any]) -> list[Any]:
        return [np.asarray(one) for one in self._session.run(list(outputs), dict(feeds))]

    def peak(self) -> int | None:
        found: int | None = read_profile(profile_of(self._session))["peak_bytes"]
        return found

    def nodes(self) -> dict[str, list[float]]:
        took: dict[str, list[float]] = {}
        for event in profile_of(self._session):
            name = str(event.get("name", ""))
            if event.get("cat") == "Node" and name.endswith(_KERNEL):
                took.setdefault(name.removesuffix(_KERNEL), []).append(1e-6 * float(event["dur"]))
        return took
