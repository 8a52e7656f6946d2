"""Cuts of a module into segments for tests, and what it takes to run ONNX segments in this process."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import onnx
import onnxruntime

from memsched.formats.capabilities import Stages
from memsched.formats.files import load_module
from memsched.formats.known import capability
from memsched.formats.module import LoadOptions, Module
from memsched.formats.segment import Segment
from memsched.formats.segments import check_segments, extract
from memsched.formats.weights import weights

LEVELS = onnxruntime.GraphOptimizationLevel


def random_stages(module: Module, count: int, rng: random.Random) -> list[int]:
    """Return stages that never fall along a dependence, each at least once where there are ops enough."""
    graph = module.graph
    makers = {tensor: op for op, one in enumerate(graph.ops) for tensor in one.outputs}
    before: list[list[int]] = [[makers[t] for t in one.inputs if t in makers] for one in graph.ops]
    for first, second in graph.dependencies:
        before[second].append(first)
    stages: list[int] = []
    limits = sorted(rng.sample(range(1, len(graph.ops)), min(count, len(graph.ops)) - 1))
    for op in range(len(graph.ops)):
        least = max((stages[one] for one in before[op]), default=0)
        by_place = sum(op >= limit for limit in limits)
        stages.append(max(least, by_place - (rng.random() < 0.2)))
    for group in capability(module, Stages).together(module):
        # One state is one segment: everything up to its last op joins the stage of the last.
        for op in range(group[-1] + 1):
            stages[op] = 0
    used = sorted(set(stages))
    return [used.index(stage) for stage in stages]


def segments_of(module: Module, stages: Sequence[int], *, through: bool = False) -> list[Segment]:
    """Return the segments of these stages; ``through``: values reach later stages through all between."""
    graph = module.graph
    count = max(stages) + 1
    home = {tensor: stages[op] for op, one in enumerate(graph.ops) for tensor in one.outputs}
    readers: dict[int, set[int]] = {}
    for op, one in enumerate(graph.ops):
        for tensor in one.inputs:
            readers.setdefault(tensor, set()).add(stages[op])
    given: list[list[str]] = [[] for _ in range(count)]
    handed: list[list[str]] = [[] for _ in range(count)]
    for tensor, value in enumerate(graph.tensors):
        if tensor in graph.variables:
            continue
        start = home.get(tensor, -1)
        reading = sorted(readers.get(tensor, set()) - {start})
        result = tensor in graph.outputs
        if through and start >= 0 and (reading or result):
            last = count - 1 if result else reading[-1]
            for stage in range(start, last + 1):
                if stage > start:
                    given[stage].append(value.name)
                if stage < last or result:
                    handed[stage].append(value.name)
            continue
        for stage in reading:
            given[stage].append(value.name)
        if start >= 0 and (reading or result):
            handed[start].append(value.name)
    return [
        Segment(
            tuple(op for op, stage in enumerate(stages) if stage == number), tuple(given[number]), tuple(handed[number])
        )
        for number in range(count)
    ]


def cut(module: Module, segments: Sequence[Segment]) -> list[bytes]:
    """Return the segments' files, each of which was checked against the module."""
    check_segments(module, segments)
    made = capability(module, Stages).cutter(module)
    files = [made.cut(segment, {"stage": str(number)}) for number, segment in enumerate(segments)]
    stored = weights(module)
    values = {tensor.name: tensor for tensor in module.graph.tensors}
    for number, (segment, data) in enumerate(zip(segments, files, strict=True)):
        if number < 2:
            assert extract(module, segment, {"stage": str(number)}) == data
        if module.format == "onnx":
            onnx.checker.check_model(onnx.load_model_from_string(data), full_check=True)
        part = load_module(data, module.path, capability(module, Stages).segment_options(module, segment))
        assert [op.name for op in part.graph.ops] == [module.graph.ops[op].name for op in segment.ops]
        assert [op.type for op in part.graph.ops] == [module.graph.ops[op].type for op in segment.ops]
        assert {part.graph.tensors[t].name for t in part.graph.outputs} == set(segment.outputs) & values.keys()
        for tensor in part.graph.tensors:
            was = values[tensor.name]
            assert (tensor.size, tensor.shape, tensor.dtype) == (was.size, was.shape, was.dtype)
        read = {constant for op in segment.ops for constant in stored.per_op[op]}
        assert sum(weights(part).sizes) == sum(stored.sizes[constant] for constant in read)
    return files


def session(model: bytes, level: Any = LEVELS.ORT_DISABLE_ALL) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = level
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def run(model: bytes, values: Mapping[str, Any], level: Any = LEVELS.ORT_DISABLE_ALL) -> dict[str, Any]:
    """Return the outputs of one model in ONNX Runtime; ``values`` may hold more than its inputs."""
    opened = session(model, level)
    feed = {value.name: values[value.name] for value in opened.get_inputs()}
    return dict(zip([value.name for value in opened.get_outputs()], opened.run(None, feed), strict=True))


def assert_same(data: bytes, files: Sequence[bytes], feed: Mapping[str, Any], level: Any = None) -> None:
    """Check that segments in a row give the model's outputs bit by bit."""
    level = LEVELS.ORT_DISABLE_ALL if level is None else level
    expected = run(data, feed, level)
    held = dict(feed)
    for file in files:
        held.update(run(file, held, level))
    for name, value in expected.items():
        parts = value if isinstance(value, list) else [value]
        found = held[name] if isinstance(value, list) else [held[name]]
        assert len(parts) == len(found)
        for one, other in zip(parts, found, strict=True):
            assert one.dtype == other.dtype
            assert one.shape == other.shape
            assert one.tolist() == other.tolist() if one.dtype == object else one.tobytes() == other.tobytes()


def load(data: bytes, **options: Any) -> Module:
    return load_module(data, "-", LoadOptions(**options))
