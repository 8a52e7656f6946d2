"""Let ONNX Runtime store a model with packed weights in a second file. Runs in the child process of `mapped`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from memsched.base.processor import processor_kind
from memsched.runtimes.onnxruntime.block_guard import add_block_guard
from memsched.runtimes.onnxruntime.executed_child import block_of
from memsched.runtimes.onnxruntime.executed_names import in_one_form
from memsched.runtimes.onnxruntime.opened import opened
from memsched.runtimes.sessions import SessionPoint

__all__ = ["store"]

_LEAST_BYTES: Final = 1024
"""Smaller weights stay in the model: one page of the weight file is four times as large."""


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
