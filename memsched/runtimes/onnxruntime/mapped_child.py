"""ONNX Runtime stores a model with its weights packed, in a file of their own: the child process's side of `mapped`."""

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
"""A smaller weight stays in the model: a page of the other file is four times as large."""

_X86_LEVELS: Final = (
    ("v4", {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}),
    ("v3", {"avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"}),
    ("v2", {"popcnt", "sse4_1", "sse4_2", "ssse3"}),
)
"""The levels of x86-64 that its ABI names, the highest first, with what /proc/cpuinfo has for each."""

_KERNELS: Final = ("avx512_vnni", "avx_vnni", "amx_tile", "asimddp", "i8mm", "sve")
"""Further features for which ONNX Runtime has kernels of its own, with weights packed in other ways."""


def store(request: Mapping[str, Any]) -> dict[str, Any]:
    """Store a model as a session has it, with its weights packed in another file beside it.

    Args:
        request: "path" of the model; "folder" of its external data, or None; "point", the session's options; "into",
            the folder for both files; "name" of the model's file there, and "weights" of the other one.

    Returns:
        "block": channels of a block, None if no operator is of that layout.
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
    """Return the kind of this processor by what its kernels depend on, such as "x86-64-v4-avx512_vnni"."""
    machine = platform.machine() or "unknown"
    told = Path("/proc/cpuinfo")
    lines = told.read_text(encoding="utf-8", errors="replace").splitlines() if told.exists() else []
    flags = next((line.partition(":")[2].split() for line in lines if line.startswith(("flags", "Features"))), [])
    base = machine
    if machine in {"x86_64", "AMD64"}:
        level = next((name for name, wanted in _X86_LEVELS if wanted <= set(flags)), "v1")
        base = f"x86-64-{level}"
    return "-".join((base, *(one for one in _KERNELS if one in flags)))
