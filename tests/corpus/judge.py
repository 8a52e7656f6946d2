"""Optimise one case of the corpus, run it before and after, and say what happened."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import onnxruntime

import memsched
from memsched.base.errors import MemschedError
from memsched.formats.module import Module
from memsched.formats.onnx import writer
from memsched.graph import dag
from memsched.graph.model import Graph
from tests.corpus.onnx_corpus import Case

__all__ = ["Outcome", "judge"]

Verdict = Literal["verified", "optimised, not run", "refused", "WRONG"]


@dataclass(frozen=True)
class Outcome:
    """What became of a case: the verdict, the reason where there is one, and whether another order was tried."""

    verdict: Verdict
    reason: str
    improved: bool = False
    shuffled: bool = False


def judge(case: Case) -> Outcome:
    """Optimise and run ``case``; the written model must give the very outputs of the given one.

    Beside the optimised order, a random one is written and run, so that models which leave no choice of a better order
    test the writer too.
    """
    try:
        result = memsched.optimize(case.model, verify=False, effort=2.0)
    except MemschedError as error:
        return Outcome("refused", str(error))
    report = result.report.data
    before, after = report["original"]["schedule"]["peak_bytes"], report["written"]["schedule"]["peak_bytes"]
    if after > before:
        return Outcome("WRONG", f"worse: {before} -> {after}")
    shuffled = _shuffled(case)
    run = _runner(case.model)
    if isinstance(run, str):
        return Outcome("optimised, not run", run, after < before)
    for inputs, recorded in case.data_sets:
        reference = run(inputs)
        if isinstance(reference, str):
            return Outcome("optimised, not run", reference, after < before)
        if not _close(reference, recorded, case.rtol, case.atol):
            return Outcome("optimised, not run", "ONNX Runtime's outputs are not the recorded ones", after < before)
        for changed in (result.model, shuffled):
            if changed is None or changed == case.model:
                continue
            rerun = _runner(changed)
            outputs = rerun if isinstance(rerun, str) else rerun(inputs)
            if isinstance(outputs, str):
                return Outcome("WRONG", f"the written model does not run: {outputs}")
            if not _identical(reference, outputs):
                return Outcome("WRONG", "the written model's outputs differ")
    return Outcome("verified", "", after < before, shuffled is not None)


def _shuffled(case: Case) -> bytes | None:
    """Return the model with a random order of each graph's ops; None when there is only one."""
    module: Module = memsched.load(case.model)
    rng = random.Random(case.name)
    orders = {index: _random_order(rng, graph) for index, graph in enumerate(module.graphs)}
    changed = {index: order for index, order in orders.items() if list(order) != sorted(order)}
    return writer.serialize(module, changed, {}) if changed else None


def _random_order(rng: random.Random, graph: Graph) -> tuple[int, ...]:
    preds = dag.predecessors(graph)
    succs = dag.successors_of(preds)
    waiting = [len(befores) for befores in preds]
    ready = [op for op, count in enumerate(waiting) if not count]
    order = []
    while ready:
        order.append(ready.pop(rng.randrange(len(ready))))
        for after in succs[order[-1]]:
            waiting[after] -= 1
            if not waiting[after]:
                ready.append(after)
    return tuple(order)


class _Runner:
    def __init__(self, session: Any) -> None:
        self._session = session

    def __call__(self, inputs: Sequence[Any]) -> list[Any] | str:
        names = [value.name for value in self._session.get_inputs()]
        try:
            return list(self._session.run(None, dict(zip(names, inputs, strict=False))))
        except Exception as error:
            return _first_line(error)


def _runner(model: bytes) -> _Runner | str:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        return _Runner(onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"]))
    except Exception as error:
        return _first_line(error)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:160]


def _identical(left: Any, right: Any) -> bool:
    if isinstance(left, list):
        return isinstance(right, list) and len(left) == len(right) and all(map(_identical, left, right))
    if left is None or isinstance(left, str):
        return bool(left == right)
    if isinstance(left, dict):
        return isinstance(right, dict) and left == right
    one, other = np.asarray(left), np.asarray(right)
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return bool((one == other).all()) if one.dtype == object else one.tobytes() == other.tobytes()


def _close(left: Any, right: Any, rtol: float, atol: float) -> bool:
    if isinstance(left, list):
        return len(left) == len(right) and all(_close(a, b, rtol, atol) for a, b in zip(left, right, strict=True))
    if left is None or right is None:
        return left is right
    one, other = np.asarray(left), np.asarray(right)
    if one.shape != other.shape:
        return False
    if object in (one.dtype, other.dtype) or one.dtype.kind in "USO":
        return bool((one.astype(str) == other.astype(str)).all())
    if one.dtype.kind not in "biufc" or other.dtype.kind not in "biufc":
        return True
    return bool(np.allclose(one.astype(np.complex128), other.astype(np.complex128), rtol, atol, equal_nan=True))
