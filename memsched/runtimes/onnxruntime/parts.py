"""Parts of an ONNX model on a device: the process's side."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from memsched.runtimes.onnxruntime.draws import same_draws
from memsched.runtimes.onnxruntime.sessions import find_data, load_proto, read_profile

__all__ = ["OnnxRuntimeParts"]

_KERNEL: Final = "_kernel_time"


class OnnxRuntimeParts:
    """ONNX Runtime, all of whose sessions take memory from one arena that grows by what is asked for."""

    def __init__(self) -> None:
        import onnxruntime

        self._onnxruntime: Any = onnxruntime
        onnxruntime.set_default_logger_severity(4)
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
        options = self._onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.enable_profiling = True
        # The runtime adds the time in whole seconds, which several sessions share.
        options.profile_file_prefix = f"profile_{number}"
        options.enable_mem_pattern = False
        options.enable_mem_reuse = False
        options.graph_optimization_level = self._onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.execution_order = self._onnxruntime.ExecutionOrder.PRIORITY_BASED
        options.add_session_config_entry("session.use_env_allocators", "1")
        source, folder = _seeded(model)
        find_data(options, folder)
        return _OnnxPart(self._onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"]))


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
        found: int | None = read_profile(self._profile())["peak_bytes"]
        return found

    def nodes(self) -> dict[str, list[float]]:
        took: dict[str, list[float]] = {}
        for event in self._profile():
            name = str(event.get("name", ""))
            if event.get("cat") == "Node" and name.endswith(_KERNEL):
                took.setdefault(name.removesuffix(_KERNEL), []).append(1e-6 * float(event["dur"]))
        return took

    def _profile(self) -> Any:
        path = Path(self._session.end_profiling())
        events = json.loads(path.read_text(encoding="utf-8"))
        path.unlink()
        return events
