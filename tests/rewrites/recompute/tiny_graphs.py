"""Small graphs whose ops are executed again, and every sequence of them."""

from __future__ import annotations

import random
from collections.abc import Iterator

from memsched.graph.dialect import Dialect
from memsched.graph.model import Graph, Op, Tensor
from memsched.lowering.apply import apply_target
from memsched.ops.onnx import by_type
from memsched.rewrites.recompute.cost import work_of
from memsched.rewrites.recompute.rewrite import repeatable
from memsched.rewrites.recompute.trace import Tracer
from memsched.targets.model import Target

__all__ = ["PLAIN", "every_sequence", "layered", "tiny", "tracer_of", "unet"]

PLAIN = Dialect(
    slice_type="Slice",
    concat_type="Concat",
    pad_type="Pad",
    slice_attributes=lambda *_: {},
    concat_attributes=lambda _: {},
    pad_attributes=lambda _: {},
    piece_attributes=lambda *_: None,
    pads_by_size=lambda _: False,
    copy_attributes=lambda op, number: {**op.attributes, "copy": number},
)


def tensor(name: str, size: int) -> Tensor:
    return Tensor(name, size, (size,), "int8")


def graph_of(sizes: list[int], ops: list[tuple[str, tuple[int, ...], int]], given: int = 1) -> Graph:
    """Return the graph of (type, inputs, multiply-accumulates); op i makes tensor ``given`` + i."""
    tensors = tuple(tensor(f"t{index}", size) for index, size in enumerate(sizes))
    nodes = tuple(
        Op(
            *(f"op{index}", kind, read, (given + index,)),
            positions=tuple(range(len(read))),
            macs=macs,
            effects=by_type(kind),
        )
        for index, (kind, read, macs) in enumerate(ops)
    )
    used = {read for node in nodes for read in node.inputs}
    outputs = tuple(given + index for index in range(len(ops)) if given + index not in used)
    return Graph("tiny", tensors, nodes, tuple(range(given)), outputs)


def tiny(rng: random.Random, ops: int) -> Graph:
    """Return a random graph of few ops, some elementwise, one perhaps not repeatable."""
    sizes = [rng.randint(1, 6)]
    nodes: list[tuple[str, tuple[int, ...], int]] = []
    for index in range(ops):
        read = tuple(rng.sample(range(index + 1), min(index + 1, rng.choice([1, 1, 2]))))
        kind = rng.choice(["Conv", "Conv", "Relu", "Add", "RandomNormalLike"])
        same = kind in {"Relu", "Add"} or rng.random() < 0.3
        sizes.append(sizes[read[0]] if same else rng.randint(1, 9))
        nodes.append((kind, read, rng.randint(0, 30)))
    return graph_of(sizes, nodes)


def layered(seed: int, ops: int, width: int = 6) -> Graph:
    """Return layers of ops that read one or two results of the layer before, and now and then an older one."""
    rng = random.Random(seed)
    sizes = [rng.randint(1, 64)]
    nodes: list[tuple[str, tuple[int, ...], int]] = []
    layers = [[0]]
    while len(nodes) < ops:
        made = []
        for _ in range(min(width, ops - len(nodes))):
            read = rng.sample(layers[-1], min(len(layers[-1]), rng.randint(1, 2)))
            if rng.random() < 0.4:
                read.append(rng.choice(rng.choice(layers)))
            nodes.append(("Conv", tuple(dict.fromkeys(read)), rng.randint(1, 600)))
            sizes.append(rng.randint(1, 64))
            made.append(len(nodes))
        layers.append(made)
    nodes.append(("Conv", tuple(layers[-1]), 1))
    return graph_of([*sizes, 1], nodes)


def unet() -> Graph:
    """Return a small deep layer, upsampled early for a skip, whose large result idles while the other branch runs."""
    ops = [
        ("Conv", (0,), 400),  # 1: small
        ("Resize", (1,), 0),  # 2: the skip, upsampled
        ("Conv", (2,), 900),  # 3: reads it at once
        ("Conv", (3,), 900),  # 4: large
        ("Conv", (4,), 900),  # 5
        ("Concat", (5, 2), 0),  # 6: and reads it again at the end
    ]
    return graph_of([4, 4, 16, 16, 40, 4, 20], ops)


def every_sequence(graph: Graph, copies: int) -> Iterator[tuple[int, ...]]:
    """Yield every sequence with the first executions in file order and at most ``copies`` executions of an op."""
    may = repeatable(graph)

    def grow(done: list[int], counts: list[int], after: int) -> Iterator[tuple[int, ...]]:
        if after == len(graph.ops):
            yield tuple(done)
            return
        for op in range(after + 1):
            if op < after and (not may[op] or counts[op] >= copies):
                continue
            counts[op] += 1
            yield from grow([*done, op], counts, after + (op == after))
            counts[op] -= 1

    yield from grow([], [0] * len(graph.ops), 0)


def tracer_of(graph: Graph, target: Target) -> Tracer:
    """Return the tracer of a graph that is in an order of execution."""
    return Tracer(apply_target(graph, target), work_of(graph).costs, repeatable(graph))
