"""The trained pointer network of RESPECT (section III-B, algorithm 1), run by onnxruntime."""

from __future__ import annotations

import gzip
import math
import time
from bisect import insort
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from memsched.base.errors import RuntimeUnavailableError
from memsched.features.pipeline.respect_embedding import embed
from memsched.graph.dag import successors_of

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

__all__ = ["policy_order", "session", "sessions"]

_MOST_CANDIDATES = 1024
"""Most nodes that the pointer chooses from: of more that are ready, those with the least indices."""


def policy_order(
    parents: Sequence[Sequence[int]],
    memory: Sequence[int],
    *,
    deadline: float = math.inf,
    parents_first: bool = True,
    models: tuple[Any, Any] | None = None,
) -> list[int]:
    """Return all nodes in the order in which the trained policy takes them, greedily.

    Nodes that were taken, and nodes with a parent that was not, are masked. Where a single node is ready there is no
    choice: the decoder reads it together with those after it, which saves calls and changes nothing.

    Args:
        parents: Per node those that it needs, all with smaller indices.
        memory: Bytes of parameters per node.
        deadline: A time of `time.monotonic`, after which the ready node with the least index is taken.
        parents_first: Whether nodes wait for their parents; else only taken nodes are masked, as in RESPECT.
        models: Sessions of another policy's encoder and decoder, instead of those of the shipped one.

    Raises:
        RuntimeUnavailableError: onnxruntime is not installed.
    """
    import numpy as np

    encoder, decoder = models or sessions()
    if not parents:
        return []
    rows = embed(parents, memory)[:, None]
    glimpses, pointers, hidden, memories, first = encoder.run(None, {"embeddings": rows})
    children = successors_of(parents)
    waiting = [len(before) if parents_first else 0 for before in parents]
    ready = [node for node, missing in enumerate(waiting) if not missing]
    order: list[int] = []
    unread: list[NDArray[float32]] = [first]
    while ready:
        place = 0
        if len(ready) > 1 and time.monotonic() < deadline:
            candidates = np.array(ready[:_MOST_CANDIDATES])
            chosen, hidden, memories = decoder.run(
                None,
                {
                    "inputs": np.stack(unread),
                    "hidden": hidden,
                    "memory": memories,
                    "glimpses": glimpses[candidates],
                    "pointers": pointers[candidates],
                },
            )
            unread.clear()
            place = int(chosen)
        node = ready.pop(place)
        order.append(node)
        unread.append(rows[node])
        for child in children[node] if parents_first else ():
            waiting[child] -= 1
            if not waiting[child]:
                insort(ready, child)
    return order


@cache
def sessions() -> tuple[Any, Any]:
    """Return the encoder and the step of the decoder, as they are shipped."""
    folder = files("memsched.features.pipeline")
    encoder, decoder = (
        session(gzip.decompress(folder.joinpath(f"respect_{part}.onnx.gz").read_bytes()))
        for part in ("encoder", "decoder")
    )
    return encoder, decoder


def session(model: bytes) -> Any:
    """Return a session of onnxruntime with one thread, so that sums have one order.

    Raises:
        RuntimeUnavailableError: onnxruntime is not installed.
    """
    try:
        import onnxruntime as ort
    except ImportError:
        raise RuntimeUnavailableError(
            "the learned scheduler needs ONNX Runtime, which is not installed", action="pip install onnxruntime"
        ) from None
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
