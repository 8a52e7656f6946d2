"""Measure what one more operator takes of ONNX Runtime's process: the bytes that `[price]` of the target says.

Convolutions of pieces, each behind a Slice and before a Relu, are opened with the lines that `--session` prints, in a
fresh process: the process's memory less the activations that were requested, by operators.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from memsched.formats.module import LoadOptions
from memsched.runtimes.onnxruntime.session_memory import draw_feeds, measure_session
from memsched.runtimes.sessions import EXECUTED
from memsched.targets.load import load_target
from scripts.bench.runner.declare import Benchmark, Heading, Part, Values, Verdict

if TYPE_CHECKING:
    from onnx import ModelProto

_PIECES: Final = (34, 334, 667)
_FAR: Final = 0.25


def _in_pieces(pieces: int) -> ModelProto:
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    values = np.random.default_rng(0).standard_normal((8, 8, 3, 3)).astype(np.float32)
    constants = [numpy_helper.from_array(values, "w")]
    nodes = []
    for piece in range(pieces):
        for name, number in (("from", 0), ("to", 32 + piece % 3), ("axis", 2)):
            constants.append(numpy_helper.from_array(np.array([number], np.int64), f"{name}{piece}"))
        cut = ["x", f"from{piece}", f"to{piece}", f"axis{piece}"]
        nodes.append(helper.make_node("Slice", cut, [f"s{piece}"], f"slice{piece}"))
        nodes.append(helper.make_node("Conv", [f"s{piece}", "w"], [f"c{piece}"], f"conv{piece}", pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Relu", [f"c{piece}"], [f"r{piece}"], f"relu{piece}"))
    nodes.append(helper.make_node("Concat", [f"r{piece}" for piece in range(pieces)], ["y"], "joined", axis=2))
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 8, 64, 8))]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "pieces", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def _tables(_: Values) -> Iterator[Part]:
    yield Heading("operators", ">~process", ">requested", ">~bytes per operator more")
    before: tuple[int, int] | None = None
    dear = 0.0
    with tempfile.TemporaryDirectory() as held:
        for pieces in _PIECES:
            path, feeds = Path(held, f"{pieces}.onnx"), Path(held, f"{pieces}.npz")
            data = _in_pieces(pieces).SerializeToString()
            path.write_bytes(data)
            draw_feeds(data, None, LoadOptions(), feeds, seed=0)
            found = measure_session(path, feeds, EXECUTED)
            if isinstance(found, str):
                yield Verdict(f"\nit does not run: {found}", wrong=True)
                return
            ops, beside = 3 * pieces + 1, found.peak - (found.requested or 0)
            dear = dear if before is None else (beside - before[1]) / (ops - before[0])
            yield f"{ops:,}", f"{found.peak:,}", f"{found.requested:,}", "" if before is None else f"{dear:,.0f}"
            before = ops, beside
    price = load_target("onnxruntime").price
    stated = 0 if price is None else price.bytes_per_op
    yield Verdict(f"\nthe target states {stated:,} bytes", abs(dear - stated) > _FAR * stated)


BENCH = Benchmark(__doc__, _tables, docs="docs/benchmarks/runtimes.md")
