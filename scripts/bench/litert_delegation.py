"""Measure what LiteRT's default delegate does to an order of operators, and what metadata that states the order saves.

The model has branches of which XNNPACK takes all but one operator, so that it splits the model into many parts. Each
row runs in a process of its own; the peak is the growth of its resident memory while the model is loaded and run.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import memsched
from memsched.runtimes.child import run_in_child
from scripts.bench.runner.declare import Benchmark, Heading, Part, Values, option

MIB = 1 << 20
DELEGATES = {"plain": "none", "default": "XNNPACK", "unclustered": "XNNPACK, clustering off"}


def branchy_model(branches: int, elements: int) -> bytes:
    """Return a TFLite model of so many branches over one input, layer by layer: the worst order.

    A branch is ABS, REVERSE_V2 (which XNNPACK does not take), NEG, each of ``elements`` floats, and a SUM to one.
    """
    from tests.formats.tflite_builder import O, Sub, T, build, int32s, options

    tensors = [T("x", (1, elements)), T("axis", (1,), "INT32", int32s(1))]

    def new(size: int) -> int:
        tensors.append(T(f"t{len(tensors)}", (1, size)))
        return len(tensors) - 1

    layers: list[list[Any]] = [[], [], [], []]
    sums = []
    for _ in range(branches):
        a, b, c, total = new(elements), new(elements), new(elements), new(1)
        layers[0].append(O("ABS", [0], [a]))
        layers[1].append(O("REVERSE_V2", [a, 1], [b], options("ReverseV2Options")))
        layers[2].append(O("NEG", [b], [c]))
        layers[3].append(O("SUM", [c, 1], [total], options("ReducerOptions", keepDims=True)))
        sums.append(total)
    ops = [op for layer in layers for op in layer]
    total = sums[0]
    for one in sums[1:]:
        ops.append(O("ADD", [total, one], [new(1)], options("AddOptions")))
        total = len(tensors) - 1
    return build(Sub(tensors, ops, [0], [total]))


def measure(request: dict[str, Any]) -> dict[str, Any]:
    """Load and run "model" with "delegate", after the "small" one of its kind: in a child process.

    Returns:
        "peak_bytes" of resident memory beyond what was there before, "arena_bytes" of LiteRT's own (tensors that only
        a delegate sees lie elsewhere), and "kept": whether the operators are executed in the file's order.
    """
    import numpy as np

    from memsched.runtimes.litert.probe import probe

    def run(model: bytes) -> Any:
        interpreter, _ = _load(model, request["delegate"])
        detail = interpreter.get_input_details()[0]
        interpreter.set_tensor(detail["index"], np.ones(detail["shape"], np.float32))
        interpreter.invoke()
        return interpreter

    # Libraries that are loaded on first use are no part of the peak.
    run(request["small"])
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = _status("VmRSS")
    interpreter = run(request["model"])
    peak = _status("VmHWM") - before
    del interpreter
    loaded, operators = _load(request["model"], request["delegate"])
    seen = probe(loaded, operators)
    return {"peak_bytes": peak, "arena_bytes": seen.arena_bytes, "kept": seen.order == tuple(range(operators))}


def _load(model: bytes, delegate: str) -> tuple[Any, int]:
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    plain = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = Interpreter(
        model_content=model,
        num_threads=1,
        experimental_op_resolver_type=plain if delegate == "plain" else OpResolverType.AUTO,
        experimental_disable_delegate_clustering=delegate == "unclustered",
    )
    operators = interpreter._interpreter.NumNodes()
    interpreter.allocate_tensors()
    return interpreter, operators


def _status(name: str) -> int:
    """Return a figure of this process's memory in bytes, as Linux shows it."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise LookupError(name)


def files(branches: int, elements: int) -> dict[str, bytes]:
    """Return the model as given, as memsched writes it, and the latter with metadata that states its order."""
    given = branchy_model(branches, elements)
    return {
        "as given": given,
        "memsched": memsched.optimize(given, target="litert-reference", verify=False).model,
        "memsched --control-dependencies": memsched.optimize(
            given, target="litert-reference", control_dependencies=True, verify=False
        ).model,
    }


def rows(branches: int, elements: int) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield (file, delegate, what was measured)."""
    small = files(branches, 16)
    for name, model in files(branches, elements).items():
        for delegate in DELEGATES:
            request = {"model": model, "small": small[name], "delegate": delegate}
            result = run_in_child("scripts.bench.litert_delegation:measure", request, 300)
            if not result.ok:
                raise SystemExit(f"{name}, delegate {delegate}: {result.reason}")
            yield name, delegate, result.value


def tables(values: Values) -> Iterator[Part]:
    """Yield a row per file and delegate."""
    yield f"{values.branches} branches of {4 * values.elements / MIB:g} MiB tensors; MiB."
    yield ""
    yield Heading("file", "delegate", "executed in the file's order", "~peak resident memory", "LiteRT's arena")
    for name, delegate, found in rows(values.branches, values.elements):
        kept = "yes" if found["kept"] else "no"
        arena = "-" if found["arena_bytes"] is None else f"{found['arena_bytes'] / MIB:.1f}"
        yield name, DELEGATES[delegate], kept, f"{found['peak_bytes'] / MIB:.1f}", arena


BENCH = Benchmark(
    __doc__,
    tables,
    (
        option("--branches", type=int, default=6, help="of the model"),
        option("--elements", type=int, default=1 << 20, help="of each wide tensor, 4 bytes each"),
    ),
    docs="docs/benchmarks/runtimes.md",
)
