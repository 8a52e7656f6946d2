"""How long files take that hold a million of something: `python -m scripts.bench.hostile_scale [--count N] [CASE...]`.

Each case is written, and read by the command for it in a process of its own; seconds are of the processor, as others
may want it too. Prints a table.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

__all__ = ["CASES"]


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


def main() -> int:
    """Measure the cases that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"by default all: {', '.join(CASES)}")
    parser.add_argument("--count", type=int, default=1_000_000)
    args = parser.parse_args()
    unknown = sorted(set(args.cases) - set(CASES))
    if unknown:
        parser.error(f"no such case: {', '.join(unknown)}")
    print(f"| {args.count:,} | file, MB | s | peak memory, MB | result |\n|---|--:|--:|--:|---|")
    for name in args.cases or CASES:
        write, what, extension = CASES[name]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"hostile{extension}"
            path.write_bytes(write(args.count, what))
            megabytes = path.stat().st_size / 1e6
            seconds, memory, result = _run(path)
        print(f"| {name} | {megabytes:.0f} | {seconds:.1f} | {memory / 1e6:,.0f} | {result} |", flush=True)
    return 0


def _run(path: Path) -> tuple[float, int, str]:
    """Return seconds of the processor, bytes of resident memory at most, and what the command said."""
    command = [sys.executable, "-m", "memsched"]
    if path.suffix == ".csv":
        command += ["allocate", str(path), "--time-limit", "1", "--quiet"]
    else:
        command += ["analyze", str(path), "--quiet"]
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        said = errors.read().strip().replace(f"{path}: ", "").removeprefix("memsched: error: ")
    result = "accepted" if process.returncode == 0 else f"exit code {process.returncode}: {said[:100]}"
    return used.ru_utime + used.ru_stime, used.ru_maxrss * 1024, result


if __name__ == "__main__":
    sys.exit(main())
