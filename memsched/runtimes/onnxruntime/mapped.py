"""Mapped weights: weights packed for the kernels in a second file, so that processes need no private copies.

When a session opens, its kernels pack their weights and compare them with the file. If they differ, the session keeps
its private copy. Hence the file is correct on every processor, and saves memory on processors like the one that wrote
it. Tensors in blocks of channels need more care; see `block_guard`.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Final

from memsched.base.errors import ModelError
from memsched.base.processor import processor_kind
from memsched.formats.module import LoadOptions
from memsched.runtimes.child import TIMEOUT, run_in_child
from memsched.runtimes.measure import SteadyRule, measure
from memsched.runtimes.onnxruntime.session_memory import least_runs, race_pair
from memsched.runtimes.onnxruntime.session_opener import SessionOpener
from memsched.runtimes.onnxruntime.verification import try_other_sizes
from memsched.runtimes.package import ONNXRUNTIME
from memsched.runtimes.process_memory import MappedComparison, ProcessMemory, compared_processes
from memsched.runtimes.sessions import MappedModel, SessionPoint
from memsched.runtimes.values import EXECUTED_TOLERANCE

__all__ = ["apart_at_other_sizes", "compare_mapped", "mapped_model"]

_STORE: Final = "memsched.runtimes.onnxruntime.mapped_child:store"


_NAME: Final = "mapped.onnx"


def mapped_model(path: Path, folder: Path | None, point: SessionPoint, into: Path, stem: str) -> MappedModel:
    """Store the graph of a session, with packed weights in a second file.

    Args:
        path: The model.
        folder: Folder of its external data; None if that is the model's folder.
        point: Session options, for this model and for the stored one.
        into: Folder for both files.
        stem: First part of the name of the weight file, which the kind of this processor follows.

    Raises:
        RuntimeUnavailableError: onnxruntime is not installed.
        ModelError: ONNX Runtime cannot load the model, or not store it.
    """
    ONNXRUNTIME.require()
    kind = processor_kind()
    weights = f"{stem}.{kind}.weights"
    request = {
        "path": str(path.absolute()),
        "folder": None if folder is None else str(folder.absolute()),
        "point": dataclasses.asdict(point),
        "into": str(into.absolute()),
        "name": _NAME,
        "weights": weights,
    }
    result = run_in_child(_STORE, request, TIMEOUT)
    if not result.ok:
        raise ModelError(f"onnxruntime cannot store packed weights: {result.reason}", code="not-loaded")
    return MappedModel(into / _NAME, into / weights, point, kind, result.value["block"])


def compare_mapped(
    given: Path,
    written: Path,
    mapped: MappedModel,
    feeds: Path,
    folder: Path | None,
    *,
    limit: float,
    large: int,
) -> MappedComparison | str:
    """Compare sessions on a model with mapped weights, on its source, and on the original; or return why one failed.

    Args:
        given: The original, opened without options.
        written: The source of ``mapped``; may be the original.
        feeds: Inputs.
        folder: Folder of the external data of ``given`` and ``written``; None if that is the folder of each.
        limit: Largest permitted ratio of the processor times of ``mapped`` and ``given``.
        large: Bytes of a process from which one process for each file is enough.
    """
    outside = None if folder is None else str(folder)
    inputs = (str(feeds),)
    original = SessionOpener(str(given), inputs, folder=outside)
    first = SessionOpener(str(written), inputs, mapped.point, outside)
    second = SessionOpener(str(mapped.model), inputs, mapped.point)
    rule = SteadyRule(least_runs(written))
    seen = compared_processes(first, second, rule, limit, large=large)
    if isinstance(seen, str):
        return seen
    ratio = race_pair(original, second)
    if isinstance(ratio, str):
        return ratio
    before = seen.given
    if original != first:
        figures = [measure(original, rule, timeout=TIMEOUT) for _ in before.private]
        failed = next((one for one in figures if isinstance(one, str)), None)
        if failed is not None:
            return failed
        before = ProcessMemory.of([one for one in figures if not isinstance(one, str)])
    return MappedComparison(seen.given, dataclasses.replace(seen, given=before, time_ratio=ratio))


def apart_at_other_sizes(
    model: bytes, folder: Path | None, mapped: Path, options: LoadOptions, *, seed: int
) -> str | None:
    """Return the size of an open dimension for which a model with mapped weights is wrong, in words, or None.

    Args:
        model: Its source, with external data in ``folder``.
        options: Sizes of the inputs.
    """
    sizes, _ = try_other_sizes(
        model,
        mapped,
        guarantee="default",
        tolerance=EXECUTED_TOLERANCE,
        seed=seed,
        input_shapes=options.input_shapes,
        dims=options.dims,
        data_folder=folder,
    )
    wrong = next((one for one in sizes if one.outcome == "wrong"), None)
    return None if wrong is None else f"wrong at {wrong.dimension} = {wrong.size}: {wrong.reason}"
