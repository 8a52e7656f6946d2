"""Measure what pieces take of ONNX Runtime's time: nodes and weights, as `[price]` of the target says.

A convolution whole and in pieces of rows, each behind a Slice, and a product of many rows whole and in pieces of few
are run with the lines that ``--order-guarantee session`` prints. Each session is alone while it is timed, and the least
of its runs counts: processor time of one thread, time of two, which need two idle cores. What is added, by nodes or by
bytes of weights read again, is in the multiply-accumulates that the whole layer does meanwhile.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from memsched.runtimes.onnxruntime.opened import opened
from memsched.runtimes.sessions import LISTED
from memsched.targets.load import load_target
from memsched.targets.model import CautiousPrice
from scripts.bench.runner.declare import Benchmark, Heading, Part, Values, Verdict, repeats

if TYPE_CHECKING:
    import numpy.typing as npt

_PIECES: Final = 16
_SIDE: Final = 64
_CHANNELS: Final = 32
_INNER: Final = 512
_WIDE: Final = 4096
_THREADS: Final = (1, 2)


@dataclasses.dataclass(frozen=True, slots=True)
class _Layer:
    """A layer that can be cut along ``axis``: its operator, input and weights, with its multiply-accumulates."""

    operator: str
    shape: tuple[int, ...]
    weights: tuple[int, ...]
    axis: int
    macs: int

    def model(self, pieces: int) -> bytes:
        """Return it with a Relu behind it, in so many pieces."""
        import numpy as np
        from onnx import TensorProto, helper, numpy_helper

        values = np.random.default_rng(0).standard_normal(self.weights).astype(np.float32)
        constants, nodes, parts = [numpy_helper.from_array(values, "w")], [], []
        rows = self.shape[self.axis] // pieces
        more: dict[str, Any] = {"pads": [0, 1, 0, 1]} if self.operator == "Conv" else {}
        for piece in range(pieces):
            read = "x"
            if pieces > 1:
                ends = {"from": piece * rows, "to": (piece + 1) * rows, "axis": self.axis}
                constants += [
                    numpy_helper.from_array(np.array([end], np.int64), f"{name}{piece}") for name, end in ends.items()
                ]
                read = f"s{piece}"
                nodes.append(helper.make_node("Slice", ["x", *(f"{name}{piece}" for name in ends)], [read]))
            nodes.append(helper.make_node(self.operator, [read, "w"], [f"c{piece}"], **more))
            nodes.append(helper.make_node("Relu", [f"c{piece}"], [f"r{piece}"]))
            parts.append(f"r{piece}")
        nodes.append(helper.make_node("Concat", parts, ["y"], axis=self.axis))
        inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)]
        outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
        graph = helper.make_graph(nodes, "layer", inputs, outputs, constants)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        return bytes(made.SerializeToString())


_CONVOLUTION: Final = _Layer(
    "Conv", (1, _CHANNELS, _SIDE, _SIDE), (_CHANNELS, _CHANNELS, 1, 3), 2, 3 * _CHANNELS**2 * _SIDE**2
)
_PRODUCT: Final = _Layer("MatMul", (1, _INNER, _INNER), (_INNER, _WIDE), 1, _INNER * _INNER * _WIDE)


def _seconds(layer: _Layer, pieces: int, threads: int, times: int) -> float:
    import numpy as np

    session = opened(layer.model(pieces), dataclasses.replace(LISTED, threads=threads))
    values: npt.NDArray[np.float32] = np.random.default_rng(1).standard_normal(layer.shape).astype(np.float32)
    session.run(None, {"x": values})
    clock, taken = time.process_time if threads == 1 else time.perf_counter, []
    for _ in range(times):
        begun = clock()
        session.run(None, {"x": values})
        taken.append(clock() - begun)
    return min(taken)


def _tables(given: Values) -> Iterator[Part]:
    yield Heading("threads", ">~macs per us", ">~us per node more", ">~macs per node", ">~macs per byte of weights")
    for threads in _THREADS:
        whole, cut = (_seconds(_CONVOLUTION, pieces, threads, given.repeats) for pieces in (1, _PIECES))
        rate, each = _CONVOLUTION.macs / whole, (cut - whole) / (3 * _PIECES - 2)
        large, few = (_seconds(_PRODUCT, pieces, threads, given.repeats) for pieces in (1, _PIECES))
        again = 4 * _INNER * _WIDE * (_PIECES - 1)
        weight = max(0.0, (few - large - each * (3 * _PIECES - 2)) * _PRODUCT.macs / large / again)
        yield threads, f"{rate / 1e6:,.0f}", f"{each * 1e6:.1f}", f"{rate * each:,.0f}", f"{weight:.2f}"
    price = load_target("onnxruntime").price
    dear = None if price is None else price.cautious
    if price is not None and isinstance(dear, CautiousPrice):
        stated = f"{price.macs_per_op:,.0f} for a node on one thread, {dear.macs_per_op:,.0f} on several"
        said = f"{stated}, and {dear.macs_per_weight_byte:g} for a byte of weights"
        yield Verdict(f"\nthe target states {said}", wrong=False)


_REPEATS: Final = repeats(200, "runs of each session; the quickest counts")

BENCH = Benchmark(__doc__, _tables, (_REPEATS,), docs="docs/benchmarks/runtimes.md")
