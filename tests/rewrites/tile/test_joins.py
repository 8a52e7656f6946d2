"""Joins of more pieces than a runtime's concatenation takes: nested, in no more memory, and loaded by that runtime."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import memsched
from memsched.formats.files import load_module
from memsched.formats.module import LoadOptions
from memsched.formats.tflite import rewriter
from memsched.graph.liveness import Storage, evaluate
from memsched.graph.model import Graph
from memsched.lowering.apply import apply_target
from memsched.plan.rewrite import dialect_of, read_back
from memsched.rewrites.tile.pieces import Pieces, TilingGroup, plan_pieces
from memsched.rewrites.tile.rewrite import rewrite
from memsched.targets.load import load_target
from tests.formats.tflite_builder import O, Sub, T, build, options
from tests.runtimes.tflm.interpreter import needs_tflm, run_all, same_outputs

ROWS, COLUMNS = 144, 12
WAYS = (
    *(((1,), (count,)) for count in (9, 10, 11, 12, 19, 20, 24, 91, 100, 101, 144)),
    *(((1, 2), counts) for counts in ((12, 12), (11, 2), (2, 11), (10, 10), (12, 7))),
)


def network() -> bytes:
    """One channel becomes 16, which a pool and a function look at, and one again: the middle is wide."""
    weights = np.random.default_rng(1).standard_normal(16).astype(np.float32).tobytes()
    tensors = [
        *(T(name, (1, ROWS, COLUMNS, channels)) for name, channels in zip("xabcy", (1, 16, 16, 16, 1), strict=True)),
        T("up", (16, 1, 1, 1), data=weights),
        T("down", (1, 1, 1, 16), data=weights),
        T("bias", (16,), data=bytes(64)),
        T("one", (1,), data=bytes(4)),
    ]
    pool = options("Pool2DOptions", padding=1, strideH=1, strideW=1, filterHeight=1, filterWidth=1)
    conv = options("Conv2DOptions", padding=1, strideH=1, strideW=1)
    ops = [
        O("CONV_2D", [0, 5, 7], [1], conv),
        O("MAX_POOL_2D", [1], [2], pool),
        O("LOGISTIC", [2], [3]),
        O("CONV_2D", [3, 6, 8], [4], conv),
    ]
    return build(Sub(tensors, ops, [0], [4]))


def joined(data: bytes, axes: tuple[int, ...], counts: tuple[int, ...], most: int | None) -> Graph:
    graph = load_module(data, "net.tflite", LoadOptions()).graphs[0]
    dialect = replace(rewriter.dialect(load_module(data, "net.tflite", LoadOptions())), most_joined=most)
    pieces = plan_pieces(graph, TilingGroup((0, 1, 2, 3), axes, counts), dialect)
    assert isinstance(pieces, Pieces)
    return rewrite(graph, [pieces], dialect).graph


def peak(graph: Graph, target: str) -> int:
    lowered = apply_target(graph, load_target(target))
    return evaluate(Storage.of(lowered), range(len(lowered.ops))).peak


@pytest.mark.parametrize(("axes", "counts"), WAYS)
def test_nested_joins_cost_no_memory_and_are_as_few_as_can_be(axes: tuple[int, ...], counts: tuple[int, ...]) -> None:
    data = network()
    flat, nested = joined(data, axes, counts, None), joined(data, axes, counts, 10)
    joins = [op for op in nested.ops if op.type == "CONCATENATION"]
    assert max(len(op.inputs) for op in joins) <= 10
    # A join of n takes n - 1 from the number of parts.
    parts = counts[0] if len(counts) == 1 else counts[1]
    least = -(-(parts - 1) // 9) * (1 if len(counts) == 1 else counts[0]) + (
        -(-(counts[0] - 1) // 9) if len(counts) == 2 else 0
    )
    assert len(joins) == least
    others = Counter(op.type for op in nested.ops if op.type != "CONCATENATION")
    assert others == Counter(op.type for op in flat.ops if op.type != "CONCATENATION")
    for target in ("tflm", "tflm-reference", "litert"):
        assert peak(nested, target) == peak(flat, target)
    lowered = apply_target(nested, load_target("tflm-reference"))
    kept = [op for op in lowered.ops if op.type == "CONCATENATION" and len(op.views) == len(op.inputs)]
    if len(axes) == 1:
        assert len(kept) == len(joins)


def test_only_targets_with_a_limit_nest() -> None:
    data = network()
    module = load_module(data, "net.tflite", LoadOptions())
    limits = {name: dialect_of(module, load_target(name)).most_joined for name in ("tflm", "tflm-reference", "litert")}
    assert limits == {"tflm": 10, "tflm-reference": 10, "litert": None}


@needs_tflm
def test_tflm_loads_files_with_many_pieces_and_computes_the_same() -> None:
    data = network()
    module = load_module(data, "net.tflite", LoadOptions())
    tflm, litert = load_target("tflm"), load_target("litert")
    files = [read_back(module, joined(data, axes, counts, 10), LoadOptions(), tflm)[1] for axes, counts in WAYS]
    many = joined(data, (1,), (11,), None)
    given, flat, *found = run_all([data, read_back(module, many, LoadOptions(), litert)[1], *files])
    assert flat.refused
    assert all(same_outputs(given, one) for one in found)


@needs_tflm
@pytest.mark.parametrize("target", ["tflm", "tflm-reference"])
def test_what_optimize_writes_for_tflm_loads_there(target: str) -> None:
    data = network()
    result = memsched.optimize(data, target=target, level=2, verify=False)
    assert result.report["sections"]["tile"]["applied"]
    given, made = run_all([data, result.model])
    assert same_outputs(given, made)
    assert given.head is not None
    assert made.head is not None
    assert made.head < given.head
