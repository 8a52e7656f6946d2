"""Write a cluster file for devices like this machine: times of operators measured with ONNX Runtime and fitted.

Every operator runs by itself in a few sizes. To its seconds a line is fitted, base + per_mac * macs + per_byte *
bytes, with no negative coefficient and equal weight for every relative error. Bandwidth and latency of the network
are not measured: state them.

    python -m scripts.calibrate_cluster -o cluster.toml --devices 4 --memory 1GB --bandwidth 12.5e6 --threads 1
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from memsched.base.errors import MemschedError
from memsched.base.units import parse_size
from memsched.features.distribute.space import constant_bytes
from memsched.formats.onnx.reader import read
from memsched.targets.cluster import LinearTime, parse_cluster
from scripts.networks.builder import Builder, Value

if TYPE_CHECKING:
    from onnx import ModelProto

_Point = tuple[float, float, float]
"""(multiply-accumulates, bytes, seconds)."""

_PLANES = ((16, 56), (64, 28), (64, 56), (256, 14), (32, 112))


def _net(build: Callable[[Builder, Value], Value], *shape: int) -> ModelProto:
    net = Builder("calibration")
    return net.model(build(net, net.input("x", *shape)))


def _windows() -> Iterator[ModelProto]:
    for (channels, size), kernel in itertools.product(_PLANES, (1, 3)):
        yield _net(lambda net, x, c=channels, k=kernel: net.conv(x, c, k), 1, channels, size, size)  # type: ignore[misc]
    for channels, size in _PLANES[:3]:
        yield _net(lambda net, x: net.depthwise(x, 3), 1, channels, size, size)


def _planes(build: Callable[[Builder, Value], Value]) -> Iterator[ModelProto]:
    for channels, size in _PLANES:
        yield _net(build, 1, channels, size, size)


def _vectors(build: Callable[[Builder, Value], Value]) -> Iterator[ModelProto]:
    for features in (128, 512, 1024, 2048, 4096):
        yield _net(build, 1, features)


def _average(net: Builder, x: Value) -> Value:
    return net.node("GlobalAveragePool", [x], (*x.shape[:2], 1, 1))


def operators() -> dict[str, list[ModelProto]]:
    """Return models of one operator each, by the operator's type."""
    return {
        "Conv": list(_windows()),
        "Gemm": list(_vectors(lambda net, x: net.classifier(x, 1000))),
        "MaxPool": list(_planes(lambda net, x: net.max_pool(x, 3, 2))),
        "AveragePool": list(_planes(lambda net, x: net.average_pool(x, 3))),
        "GlobalAveragePool": list(_planes(_average)),
        "BatchNormalization": list(_planes(lambda net, x: net.batch_norm(x))),
        "Relu": list(_planes(lambda net, x: net.relu(x))),
        "Sigmoid": list(_planes(lambda net, x: net.unary("Sigmoid", x))),
        "Add": list(_planes(lambda net, x: net.add(x, x))),
        "Concat": list(_planes(lambda net, x: net.concat([x, x]))),
        "Softmax": list(_vectors(lambda net, x: net.unary("Softmax", x))),
    }


def measured(model: ModelProto, threads: int, repeats: int) -> _Point:
    """Return the work of a model's only op, and the least seconds of several runs."""
    import numpy as np
    import onnxruntime

    data = model.SerializeToString()
    graph = read(data, "calibration").graphs[0]
    touched = sum(tensor.size for tensor in graph.tensors) + sum(
        size for op in graph.ops for size in constant_bytes(graph, op).values()
    )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    given = session.get_inputs()[0]
    feed = {given.name: np.random.default_rng(0).random(given.shape, dtype=np.float32)}
    session.run(None, feed)
    least = math.inf
    for _ in range(repeats):
        started = time.perf_counter()
        session.run(None, feed)
        least = min(least, time.perf_counter() - started)
    return float(sum(op.macs for op in graph.ops)), float(touched), least


def fitted(points: Sequence[_Point]) -> tuple[LinearTime, float]:
    """Return the line through points, and the mean of its relative errors."""
    import numpy as np

    rows = np.array([(1.0, macs, size) for macs, size, _ in points])
    seconds = np.array([one for _, _, one in points])
    best, error = LinearTime(float(seconds.mean())), math.inf
    for count in (3, 2, 1):
        for columns in itertools.combinations(range(3), count):
            chosen = rows[:, columns]
            if not chosen.any(axis=0).all():
                continue
            found, *_ = np.linalg.lstsq(chosen / seconds[:, None], np.ones(len(seconds)), rcond=None)
            off = float(np.abs(chosen @ found / seconds - 1).mean())
            if (found >= 0).all() and off < error:
                values = [0.0, 0.0, 0.0]
                for column, value in zip(columns, found, strict=True):
                    values[column] = float(value)
                best, error = LinearTime(*values), off
    return best, error


def text_of(arguments: argparse.Namespace, times: dict[str, LinearTime]) -> str:
    """Return the cluster file."""
    lines = [
        f'name = "{arguments.devices} devices like this one"',
        "",
        "[router]",
        f"bandwidth_bytes_per_second = {arguments.bandwidth!r}",
        f"latency_seconds = {arguments.latency!r}",
        f'mode = "{arguments.mode}"',
        "",
        "[compute.this]",
    ]
    for kind, one in times.items():
        pairs = (("base_seconds", one.base), ("seconds_per_mac", one.per_mac), ("seconds_per_byte", one.per_byte))
        lines.append(f"{kind} = {{ {', '.join(f'{key} = {value:.4g}' for key, value in pairs if value)} }}")
    lines += [
        *("", "[[devices]]", 'name = "device"', f"count = {arguments.devices}"),
        *(f"memory_bytes = {parse_size(arguments.memory)}", 'compute = "this"', ""),
    ]
    return "\n".join(lines)


def main() -> None:
    """Measure, fit, show how well, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True, help="the cluster file to write")
    parser.add_argument("--devices", type=int, default=4, help="default: %(default)s")
    parser.add_argument("--memory", default="1GB", help="of each device; default: %(default)s")
    parser.add_argument("--bandwidth", type=float, default=12.5e6, help="bytes per second; default: %(default)s")
    parser.add_argument("--latency", type=float, default=0.001, help="seconds; default: %(default)s")
    parser.add_argument("--mode", choices=("broadcast", "point-to-point"), default="broadcast")
    parser.add_argument("--threads", type=int, default=1, help="of ONNX Runtime; default: %(default)s")
    parser.add_argument("--repeats", type=int, default=20, help="runs of each operator; default: %(default)s")
    arguments = parser.parse_args()
    if arguments.repeats < 1 or arguments.threads < 1:
        parser.error("--repeats and --threads must be 1 or more")
    times: dict[str, LinearTime] = {}
    print("| operator | sizes | base, us | per million MACs, us | per megabyte, us | mean error |")
    print("|---|--:|--:|--:|--:|--:|")
    for kind, models in operators().items():
        time_of, error = fitted([measured(model, arguments.threads, arguments.repeats) for model in models])
        times[kind] = time_of
        print(
            f"| {kind} | {len(models)} | {1e6 * time_of.base:.1f} | {1e12 * time_of.per_mac:.1f} "
            f"| {1e12 * time_of.per_byte:.1f} | {100 * error:.0f} % |",
            flush=True,
        )
    text = text_of(arguments, {"default": times["Relu"], **times})
    parse_cluster(text, str(arguments.output))
    arguments.output.write_text(text, encoding="utf-8")
    print(f"{arguments.output}: {arguments.devices} devices")


if __name__ == "__main__":
    try:
        main()
    except (MemschedError, OSError) as error:
        sys.exit(f"error: {error}")
