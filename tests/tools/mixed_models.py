"""Random models rewritten in every way at once, each result executed against the original in its real runtime.

    python -m tests.tools.mixed_models --models 2000

Everything is permitted in every case: orders, in-place writes, pieces, loops, repetitions, one operator for a chain,
and inputs and outputs in another form; with and without a budget. Convolutional networks in ONNX have gated
activations, scaled outputs, wide tensors that wait and transposed images, and run in ONNX Runtime; those in TFLite,
many of them quantised with operators at their borders, run in LiteRT and, with loops, in TensorFlow Lite Micro. A
caller does what the report's formulas say, evaluated here. `--first N --models 1` repeats a case.
"""

from __future__ import annotations

import argparse
import functools
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

import memsched
from memsched.runtimes.sessions import LISTED
from tests.bordered_nets import bordered_net
from tests.permissions import allowed
from tests.rewrites.tile.random_nets import onnx_net, tflite_net
from tests.tools.random_models import compare

__all__ = ["judge", "main", "onnx_model"]

Arrays = Sequence[np.ndarray[Any, Any]]

_TARGETS = ("tflm", "tflm-reference", "tflm", "litert")
_BUDGETS = ("80%", "60%", "40%", "20%")


def main() -> int:
    """Run; 1 where a result was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--effort", type=float, default=0.5, help="of each search, about so many seconds")
    args = parser.parse_args()
    counts: Counter[str] = Counter()
    started = time.monotonic()
    for number in range(args.first, args.first + args.models):
        try:
            counts.update(judge(number, effort=args.effort))
        except Exception:
            counts["wrong"] += 1
            print(f"--- {number}\n{traceback.format_exc()}", flush=True)
        if (number + 1) % 100 == 0:
            print(f"{number + 1}: {dict(sorted(counts.items()))}", flush=True)
    print(f"{args.models} models in {time.monotonic() - started:.0f} s: {dict(sorted(counts.items()))}")
    return counts["wrong"] > 0


def judge(number: int, *, effort: float = 0.5) -> list[str]:
    """Return what was done to model ``number``; raises where a result is wrong."""
    rng = random.Random(number)
    kind = rng.choice(("onnx", "onnx", "tflite", "quantised tflite"))
    data = {"onnx": scaled_model, "tflite": tflite_net}.get(kind, bordered_net)(number)
    target = None if kind == "onnx" else rng.choice(_TARGETS)
    result = memsched.optimize(
        data,
        # Pieces nearly always win over repetitions.
        allow=allowed(tile=rng.random() < 0.8, remat=True, io=True, fuse=kind == "onnx"),
        max_extra_macs=rng.choice((0.0, 15.0, 100.0, 300.0)),
        max_slowdown=None,
        budget=None if rng.random() < 0.5 else rng.choice(_BUDGETS),
        budget_for="activations" if target not in {None, "litert"} and rng.random() < 0.5 else None,
        order_guarantee=rng.choice(("pins", "session", "session")) if kind == "onnx" else None,
        target=target,
        effort=effort,
        seed=number,
        # TensorFlow Lite Micro is run by it, with the arena that was predicted.
        verify=target not in {None, "litert"},
    )
    report = result.report.data
    required = report["sections"]["requirement"]
    if required["bytes"] > required["given_bytes"]:
        raise AssertionError(f"{required['bytes']} B after {required['given_bytes']} B")
    checked = report["sections"]["verification"]
    if checked is not None and not (checked["outputs_equal"] and (checked["arena_after"] or {}).get("as_predicted")):
        raise AssertionError(f"{checked['notes']} {checked['arena_after']}")
    close = _same(kind, data, result.model, report, number)
    return [kind, "executed" if close else "executed, verification would refuse it", *_done(report)]


def onnx_model(seed: int) -> bytes:
    """Return a random network with gated activations, whose caller may have other axes."""
    rng = random.Random(seed)
    model = onnx.load_from_string(onnx_net(seed))
    nodes = []
    for node in model.graph.node:
        if node.op_type == "Sigmoid":
            gate = f"{node.output[0]}.gate"
            nodes.append(helper.make_node("Sigmoid", node.input, [gate], gate))
            nodes.append(helper.make_node("Mul", [node.input[0], gate], node.output, node.name))
        else:
            nodes.append(node)
    if rng.random() < 0.5:
        _widen(model, nodes)
    if rng.random() < 0.5:
        nodes.insert(0, _moved(model.graph.input[0], nodes, "input", (0, 3, 1, 2)))
    if rng.random() < 0.5:
        nodes.append(_moved(model.graph.output[0], nodes, "output", (0, 2, 3, 1)))
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString(deterministic=True))


def scaled_model(seed: int) -> bytes:
    """Return such a network, in most cases with something behind convolutions that a runtime makes part of them."""
    rng, numbers = random.Random(f"{seed} scaled"), np.random.default_rng(seed)
    model = onnx.load_from_string(onnx_model(seed))
    share = rng.choice((0.0, 0.3, 0.6))
    channels = {tensor.name: tensor.dims[0] for tensor in model.graph.initializer if tensor.dims}
    made = []
    for node in model.graph.node:
        made.append(node)
        while node.op_type == "Conv" and rng.random() < share:
            kind = rng.choice(("Add", "BatchNormalization", "BatchNormalization", "Mul"))
            count, output = channels[node.input[1]], made[-1].output[0]
            name = f"{output}.{len(made)}"
            shapes = [(count,)] * 4 if kind == "BatchNormalization" else [rng.choice(((count, 1, 1), (1, count, 1, 1)))]
            constants = [f"{name}.{place}" for place in range(len(shapes))]
            for constant, shape in zip(constants, shapes, strict=True):
                value = numbers.uniform(0.5, 1.5, shape).astype("f")
                model.graph.initializer.append(numpy_helper.from_array(value, constant))
            made[-1].output[0] = name
            made.append(helper.make_node(kind, [name, *constants], [output], f"{name}.{kind}"))
    nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in made]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString(deterministic=True))


def _widen(model: Any, nodes: list[Any]) -> None:
    """Let a wide tensor made of the input be read at once, and again with what the network makes: for a second output.

    It waits all the time, or is computed again.
    """
    value = model.graph.input[0]
    depth, *sides = [dim.dim_value for dim in value.type.tensor_type.shape.dim][1:]
    for node in nodes:
        node.input[:] = ["x.narrow" if name == value.name else name for name in node.input]
    numbers = np.random.default_rng(depth)
    for name, shape in (("wide.w", (4 * depth, depth, 1, 1)), ("narrow.w", (depth, 4 * depth, 1, 1))):
        model.graph.initializer.append(numpy_helper.from_array(numbers.normal(size=shape).astype("f") / 4, name))
    nodes[:0] = [
        helper.make_node("Conv", [value.name, "wide.w"], ["x.wide"], "x.wide"),
        helper.make_node("Conv", ["x.wide", "narrow.w"], ["x.narrow"], "x.narrow"),
    ]
    nodes += [
        helper.make_node("ReduceMean", [model.graph.output[0].name], ["mean"], "mean", axes=[1, 2, 3]),
        helper.make_node("Add", ["x.wide", "mean"], ["lifted"], "lifted"),
        helper.make_node("MaxPool", ["lifted"], ["most"], "most", kernel_shape=sides),
    ]
    model.graph.output.append(helper.make_tensor_value_info("most", onnx.TensorProto.FLOAT, [1, 4 * depth, 1, 1]))


def _moved(value: Any, nodes: Sequence[Any], side: str, order: Sequence[int]) -> Any:
    """Return a node that moves the axes of an input or output, whose caller has it as it was moved from or to."""
    inner, outer = f"{value.name}.inner", value.name
    for node in nodes:
        for names in (node.input, node.output):
            names[:] = [inner if name == outer else name for name in names]
    dims = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
    back = [order.index(axis) for axis in range(len(order))] if side == "input" else order
    for dim, axis in zip(value.type.tensor_type.shape.dim, back, strict=True):
        dim.dim_value = dims[axis]
    read, made = (outer, inner) if side == "input" else (inner, outer)
    return helper.make_node("Transpose", [read], [made], f"{outer}.moved", perm=list(order))


def _same(kind: str, before: bytes, after: bytes, report: Mapping[str, Any], number: int) -> bool:
    """Return whether outputs are as near as verification demands; raise where they differ by more than rounding."""
    changed = {(row["side"], row["index"]): row for row in (report["sections"]["border"] or {"changed": ()})["changed"]}
    tiling = report["sections"]["tile"]
    listed = report["output"]["guarantee"]["kind"] == "session"
    run = functools.partial(_run_onnx, listed=listed) if kind == "onnx" else _run_tflite
    drawn = _drawn(kind, before, changed, number)
    given = run(before, drawn)
    feeds = [_formula(changed.get(("input", place)), value) for place, value in enumerate(drawn)]
    made = [_formula(changed.get(("output", place)), value) for place, value in enumerate(run(after, feeds))]
    chains = report["sections"]["chains"]
    exact = not (tiling is not None and tiling["applied"]) and not (chains is not None and chains["applied"])
    return compare(dict(_named(given)), dict(_named(made)), exact=exact)


def _named(values: Arrays) -> list[tuple[str, np.ndarray[Any, Any]]]:
    return [(str(place), value) for place, value in enumerate(values)]


def _formula(row: Mapping[str, Any] | None, value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return what a caller makes of a value by the report's formula, in numbers of 32 bits."""
    if row is None:
        return value
    words = {"transpose": np.transpose, "clamp": np.clip, "round": _rounded(row["halves"])}
    kinds = {name: np.dtype(name).type for name in ("float32", "int8", "uint8", "int16", "int32")}
    name = "x" if row["side"] == "input" else "q"
    if value.dtype != np.float32:
        value = value.astype(np.float32 if "*" in row["formula"] else np.int64)
    found = eval(row["formula"], {"__builtins__": {}}, {**words, **kinds, name: value})  # noqa: S307 - our own report
    other = row["written"] if row["side"] == "input" else row["given"]
    return np.asarray(found).astype(other["dtype"])


def _rounded(halves: str | None) -> Any:
    return np.round if halves == "to the even one" else lambda x: np.trunc(x + np.copysign(np.float32(0.5), x))


def _drawn(kind: str, data: bytes, changed: Mapping[Any, Any], number: int) -> Arrays:
    """Return random inputs of a model; those that a caller is to quantise lie on the grid, where no rounding tells."""
    rng = np.random.default_rng(number)
    found = []
    for place, (shape, dtype) in enumerate(_inputs(kind, data)):
        whole = np.iinfo(dtype) if np.issubdtype(dtype, np.integer) else None
        drawn = rng.normal(size=shape) if whole is None else rng.integers(whole.min, whole.max + 1, shape)
        scale = changed.get(("input", place), {}).get("written", {}).get("scale")
        if whole is None and scale:
            drawn = rng.integers(-100, 100, shape) * np.float32(scale)
        found.append(np.asarray(drawn).astype(dtype))
    return found


def _inputs(kind: str, data: bytes) -> list[tuple[Sequence[int], Any]]:
    if kind == "onnx":
        value = onnx.load_from_string(data).graph.input[0]
        return [([dim.dim_value for dim in value.type.tensor_type.shape.dim], np.float32)]
    from ai_edge_litert.interpreter import Interpreter

    return [(one["shape"], one["dtype"]) for one in Interpreter(model_content=data).get_input_details()]


def _run_onnx(data: bytes, given: Arrays, *, listed: bool) -> Arrays:
    """Return the outputs of a session, with the graph optimisation of the options that are listed, or with none."""
    import onnxruntime as ort

    levels = ort.GraphOptimizationLevel
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    options.graph_optimization_level = levels.ORT_ENABLE_BASIC if listed else levels.ORT_DISABLE_ALL
    if listed:
        options.add_session_config_entry("session.disable_quant_qdq", "1")
    left_out = list(LISTED.disabled) if listed else None
    session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"], disabled_optimizers=left_out)
    feeds = {value.name: array for value, array in zip(session.get_inputs(), given, strict=True)}
    found: Arrays = session.run(None, feeds)
    return found


def _run_tflite(data: bytes, given: Arrays) -> Arrays:
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    interpreter = Interpreter(
        model_content=data,
        num_threads=1,
        experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
    )
    interpreter.allocate_tensors()
    for detail, array in zip(interpreter.get_input_details(), given, strict=True):
        interpreter.set_tensor(detail["index"], array)
    interpreter.invoke()
    return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]


def _done(report: Mapping[str, Any]) -> list[str]:
    """Return in words which rewrites were applied, and how many of them together."""
    groups = (report["sections"]["tile"] or {"groups": ()})["groups"]
    done = {
        "loops": any(group["form"] == "loop" for group in groups),
        "pieces": any(group["form"] != "loop" for group in groups),
        "again": bool(report["sections"]["recompute"] and report["sections"]["recompute"]["applied"]),
        "io": bool(report["sections"]["border"] and report["sections"]["border"]["applied"]),
        "fused": bool(report["sections"]["chains"] and report["sections"]["chains"]["applied"]),
    }
    words = [word for word, applied in done.items() if applied]
    return [*words, f"{len(words)} together", *(["extra work"] if report["verdict"]["extra_macs_percent"] else [])]


if __name__ == "__main__":
    sys.exit(main())
