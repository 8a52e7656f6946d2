"""Measure how reading grows with files full of a million names, inputs, attributes and the like.

Each case is written, and read by the command for it in a process of its own; seconds are of the processor, as others
may want it too.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from scripts.bench.runner.declare import Benchmark, Heading, Part, Values, one_of, option, positional
from scripts.bench.runner.processes import Ended, ended

__all__ = ["BENCH", "CASES", "accepted"]


def _onnx(count: int, what: str) -> bytes:
    """Return one Relu, or one Concat, with ``count`` of something beside it."""
    from onnx import TensorProto, ValueInfoProto, helper

    def value(name: str) -> ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, [1])

    node = helper.make_node("Relu", ["x"], ["y"])
    graph = helper.make_graph([node], "g", [value("x")], [value("y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    graph = model.graph
    declared = helper.make_tensor_value_info("", TensorProto.FLOAT, [1])
    lists = {"inputs": graph.input, "value_info": graph.value_info}
    if what in lists:
        for number in range(count):
            declared.name = f"t{number}"
            lists[what].append(declared)
    elif what == "initializers":
        tensor = helper.make_tensor("", TensorProto.FLOAT, [1], [1.0])
        for number in range(count):
            tensor.name = f"t{number}"
            graph.initializer.append(tensor)
    elif what == "operands":
        graph.node[0].op_type = "Sum"
        graph.node[0].input.extend(["x"] * count)
    elif what == "attributes":
        for number in range(count):
            graph.node[0].attribute.add(name=f"a{number}", i=number, type=2)
    elif what == "dimensions":
        shape = graph.input[0].type.tensor_type.shape
        for _ in range(count):
            shape.dim.add().dim_value = 1
    elif what == "operator sets":
        for number in range(count):
            model.opset_import.add(domain=f"d{number}", version=1)
    return bytes(model.SerializeToString())


def _tflite(count: int, what: str) -> bytes:
    """Return one RELU with ``count`` further tensors or buffers."""
    import flatbuffers

    builder = flatbuffers.Builder(64 * count)

    def vector(offsets: list[int]) -> int:
        builder.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            builder.PrependUOffsetTRelative(offset)
        return int(builder.EndVector())

    def whole(numbers: list[int]) -> int:
        builder.StartVector(4, len(numbers), 4)
        for number in reversed(numbers):
            builder.PrependInt32(number)
        return int(builder.EndVector())

    def table(slots: Mapping[int, int], plain: tuple[int, int, int] | None = None, size: int = 8) -> int:
        builder.StartObject(size)
        for slot, offset in slots.items():
            builder.PrependUOffsetTRelativeSlot(slot, offset, 0)
        if plain is not None:
            builder.PrependInt32Slot(*plain)
        return int(builder.EndObject())

    shape = whole([1])
    tensors = []
    for number in range(2 + (count if what == "tensors" else 0)):
        name = builder.CreateString(f"t{number}")
        tensors.append(table({0: shape, 3: name}))
    buffers = [table({}) for _ in range(1 + (count if what == "buffers" else 0))]
    operator = table({1: whole([0]), 2: whole([1])}, size=9)
    listed = (vector(tensors), whole([0]), whole([1]), vector([operator]))
    graph = table(dict(enumerate(listed)))
    builder.StartObject(4)  # RELU is number 19, in the old and in the new field
    builder.PrependInt8Slot(0, 19, 0)
    builder.PrependInt32Slot(2, 1, 0)
    builder.PrependInt32Slot(3, 19, 0)
    code = int(builder.EndObject())
    codes, graphs, described = vector([code]), vector([graph]), vector(buffers)
    builder.Finish(table({1: codes, 2: graphs, 4: described}, (0, 3, 0)), b"TFL3")
    return bytes(builder.Output())


def _csv(count: int, what: str) -> bytes:
    """Return ``count`` buffers one after the other, or one with as many gaps."""
    if what == "gaps":
        gaps = " ".join(f"{2 * number + 1}-{2 * number + 2}" for number in range(count))
        return f"id,lower,upper,size,gaps\na,0,{2 * count + 2},4,{gaps}\nb,0,9,4,\n".encode()
    rows = "".join(f"b{number},{number},{number + 2},{4 * (number % 7 + 1)}\n" for number in range(count))
    return f"id,lower,upper,size\n{rows}".encode()


CASES: Mapping[str, tuple[Callable[[int, str], bytes], str, str]] = {
    "ONNX graph inputs": (_onnx, "inputs", ".onnx"),
    "ONNX value_info": (_onnx, "value_info", ".onnx"),
    "ONNX initializers": (_onnx, "initializers", ".onnx"),
    "ONNX operands of one op": (_onnx, "operands", ".onnx"),
    "ONNX attributes of one op": (_onnx, "attributes", ".onnx"),
    "ONNX dimensions of one tensor": (_onnx, "dimensions", ".onnx"),
    "ONNX operator sets": (_onnx, "operator sets", ".onnx"),
    "TFLite tensors": (_tflite, "tensors", ".tflite"),
    "TFLite buffers": (_tflite, "buffers", ".tflite"),
    "CSV rows": (_csv, "rows", ".csv"),
    "CSV gaps of one buffer": (_csv, "gaps", ".csv"),
}
"""Per case who writes the file, of what it is full, and its extension."""


def accepted(path: Path) -> tuple[Ended, str]:
    """Return how the command for a file ended, and in words whether it was accepted."""
    if path.suffix == ".csv":
        found = ended(["allocate", str(path), "--time-limit", "1", "--quiet"])
    else:
        found = ended(["analyze", str(path), "--quiet"])
    said = found.errors.replace(f"{path}: ", "").removeprefix("memsched: error: ")
    return found, "accepted" if found.code == 0 else f"exit code {found.code}: {said[:100]}"


def tables(values: Values) -> Iterator[Part]:
    """Yield a row per case."""
    yield Heading(f"{values.count:,}", ">file, MB", ">~s", ">~peak memory, MB", "result")
    for name in values.cases or CASES:
        write, what, extension = CASES[name]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"hostile{extension}"
            path.write_bytes(write(values.count, what))
            found, result = accepted(path)
            megabytes = path.stat().st_size / 1e6
        yield name, f"{megabytes:.0f}", f"{found.processor:.1f}", f"{found.memory / 1e6:,.0f}", result


BENCH = Benchmark(
    __doc__,
    tables,
    (
        positional("cases", type=one_of("case", CASES), metavar="CASE", help=f"by default all: {', '.join(CASES)}"),
        option("--count", type=int, default=1_000_000, help="of what a file is full of"),
    ),
    docs="docs/benchmarks/trust.md",
)
