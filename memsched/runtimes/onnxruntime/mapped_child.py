"""Let ONNX Runtime store a model with packed weights in a second file. Runs in the child process of `mapped`."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from memsched.runtimes.onnxruntime.block_guard import add_block_guard
from memsched.runtimes.onnxruntime.executed_child import block_of
from memsched.runtimes.onnxruntime.executed_names import in_one_form
from memsched.runtimes.onnxruntime.opened import opened
from memsched.runtimes.sessions import SessionPoint

__all__ = ["processor_kind", "store"]

_LEAST_BYTES: Final = 1024
"""Smaller weights stay in the model: one page of the weight file is four times as large."""

_X86_LEVELS: Final = (
    ("v4", {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}),
    ("v3", {"avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"}),
    ("v2", {"popcnt", "sse4_1", "sse4_2", "ssse3"}),
)
"""Levels of the x86-64 ABI, highest first, with their flags in /proc/cpuinfo."""

_KERNELS: Final = ("avx512_vnni", "avx_vnni", "amx_tile", "asimddp", "i8mm", "sve")
"""Further features with separate kernels in ONNX Runtime, which pack weights differently."""


def store(request: Mapping[str, Any]) -> dict[str, Any]:
    """Store the graph of a session, with packed weights in a second file.

    Args:
        request: "path" of the model, "folder" of its external data or None, "point" with the session options, "into"
            with the folder for both files, and their names, "name" and "weights".

    Returns:
        "block": number of channels in a block; None if no tensor has this layout.
    """
    import onnx

    file = Path(request["into"]) / request["name"]

    def stored(options: Any) -> None:
        options.optimized_model_filepath = str(file)
        wanted = "session.optimized_model_external_initializers"
        options.add_session_config_entry(f"{wanted}_file_name", request["weights"])
        options.add_session_config_entry(f"{wanted}_min_size_in_bytes", str(_LEAST_BYTES))
        options.add_session_config_entry("session.save_external_prepacked_constant_initializers", "1")

    opened(request["path"], SessionPoint(**request["point"]), folder=request["folder"], change=stored)
    model = onnx.load_model(file, load_external_data=False)
    block = block_of(onnx, model)
    if block is not None:
        add_block_guard(model, block)
    in_one_form(model)
    entry = model.metadata_props.add()
    entry.key, entry.value = "memsched.weights_packed_for", processor_kind()
    file.write_bytes(model.SerializeToString(deterministic=True))
    return {"block": block}


def processor_kind() -> str:
    """Return the features of this processor that select kernels, such as "x86-64-v4-avx512_vnni"."""
    machine = platform.machine() or "unknown"
    told = Path("/proc/cpuinfo")
    lines = told.read_text(encoding="utf-8", errors="replace").splitlines() if told.exists() else []
    flags = next((line.partition(":")[2].split() for line in lines if line.startswith(("flags", "Features"))), [])
    base = machine
    if machine in {"x86_64", "AMD64"}:
        level = next((name for name, wanted in _X86_LEVELS if wanted <= set(flags)), "v1")
        base = f"x86-64-{level}"
    return "-".join((base, *(one for one in _KERNELS if one in flags)))
