"""Run stages in a stream, one process each, and hold their throughput against what is predicted from measured kernels.

A stage receives its values, computes, and sends, at the link's pace; different stages work on different inferences.
Processes share this machine's cores and caches: a stage takes "slower" times its own processor's time and its link's,
against a schedule, and the rate is multiplied by that. It computes each inference several times in the time that this
leaves, and its own time is the least: the first brings back to the caches what slow motion let go.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

from memsched.features.pipeline.pipeline import StagedModel, pipeline
from memsched.runtimes.inputs import random_values
from scripts.bench.cluster_runs import with_weights
from scripts.bench.runner.declare import Benchmark, Heading, Part, Values, option, positional, time_limit

_NETWORKS = ("resnet50", "inception_v3", "mobilenet_v2")
_TIMES = 3
"""How often a stage computes an inference."""


def _stage(model: bytes, link: float, slower: float, source: Connection, target: Connection) -> None:
    """Compute until None comes, which is handed on; ``link`` is the seconds that the values' transfer takes."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    given, made = ([one.name for one in ends] for ends in (session.get_inputs(), session.get_outputs()))
    free = 0.0
    target.send("ready")
    while (item := source.recv()) is not None:
        values, ready = item
        own = float("inf")
        for _ in range(_TIMES):
            before = time.thread_time()
            results = session.run(made, {name: values[name] for name in given})
            own = min(own, time.thread_time() - before)
        found = dict(zip(made, results, strict=True))
        free = max(free, ready) + slower * (own + link)
        time.sleep(max(0.0, free - time.perf_counter()))
        # To wake up a little late is this machine's, not the stage's.
        target.send((found, free))
    target.send(None)


def stream_rate(staged: StagedModel, feed: Mapping[str, Any], items: int, slower: float) -> tuple[float, float]:
    """Return inferences per second, slow motion undone, and by how much one was done later than scheduled."""
    context = get_context("spawn")
    links = [context.Pipe(duplex=False) for _ in range(len(staged.segments) + 1)]
    processes = []
    for number, (segment, row) in enumerate(zip(staged.segments, staged.simulation.stages, strict=True)):
        arguments = (segment.model, row.input + row.output, slower, links[number][0], links[number + 1][1])
        processes.append(context.Process(target=_stage, args=arguments, daemon=True))
        processes[-1].start()
        # One after the other: each says that it is ready to the next, which this process hears first.
        links[number + 1][0].recv()
    started = time.perf_counter()
    done: list[float] = []
    late = 0.0
    try:
        Thread(target=_feed, args=(links[0][1], feed, items, started), daemon=True).start()
        while (item := links[-1][0].recv()) is not None:
            done.append(time.perf_counter())
            late = max(late, done[-1] - item[1])
    finally:
        for process in processes:
            process.terminate()
    # The first fills the pipeline; what it meets is cold.
    return (items - 2) * slower / (done[-1] - done[1]), late


def _feed(target: Connection, feed: Mapping[str, Any], items: int, started: float) -> None:
    for _ in range(items):
        target.send((dict(feed), started))
    target.send(None)


def tables(values: Values) -> Iterator[Part]:
    """Yield a row per network."""
    import numpy as np

    yield Heading(
        *("network", ">stages", ">slowest stage, ms", ">predicted, 1/s", ">measured, 1/s", ">off, %", ">~late, ms")
    )
    for name in values.networks:
        with TemporaryDirectory() as folder:
            path = Path(folder) / f"{name}.onnx"
            path.write_bytes(with_weights(name))
            staged = pipeline(
                *(str(path),),
                stages=values.stages,
                balance="time",
                profile="model",
                skips="through",
                time_limit=values.time_limit,
                verify=False,
                annotate=False,
            )
        graph = staged.module.graphs[0]
        random = np.random.default_rng(0)
        feed = {
            graph.tensors[tensor].name: random_values("float32", graph.tensors[tensor].shape or (), random)
            for tensor in graph.inputs
        }
        predicted = staged.simulation.throughput
        measured, late = stream_rate(staged, feed, values.items, values.slower)
        slowest = max(stage.total for stage in staged.simulation.stages)
        figures = (f"{1e3 * slowest:.2f}", f"{predicted:.2f}", f"{measured:.2f}")
        yield name, values.stages, *figures, f"{100 * (measured / predicted - 1):+.1f}", f"{1e3 * late:.0f}"


BENCH = Benchmark(
    __doc__,
    tables,
    (
        positional("networks", default=_NETWORKS, help=f"default: {' '.join(_NETWORKS)}"),
        option("--stages", type=int, default=4, help="processes"),
        option("--items", type=int, default=12, help="inferences"),
        option("--slower", type=float, default=20.0, help="how many times as long everything takes"),
        time_limit(20.0),
    ),
    docs="docs/benchmarks/devices.md",
)
