"""Groups of layers as loops: the parts of tensors by brute force, and the written files in the real runtime."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import tflite

from memsched.base.errors import InternalError
from memsched.formats.module import LoadOptions
from memsched.formats.tflite import metadata, reader
from memsched.formats.tflite.metadata import OFFLINE_PLAN
from memsched.formats.tflite.model import parse
from memsched.formats.tflite.rewriter import dialect
from memsched.ops.rules import Refusal
from memsched.plan.rewrite import read_back
from memsched.rewrites.tile.fold import fold_pads
from memsched.rewrites.tile.loop import LoopGroup, plan_loop
from memsched.rewrites.tile.loop_rewrite import with_loops
from memsched.runtimes.tflm.layout import best_offsets
from memsched.runtimes.tflm.plan import encode_plan, kernel_scratch
from memsched.runtimes.tflm.plan_check import check_plan
from memsched.search.limits import QUICK
from memsched.search.run import Run
from memsched.targets.load import load_target
from tests.rewrites.tile.looped_nets import looped_net
from tests.runtimes.tflm.interpreter import needs_tflm, run_all, same_outputs
from tests.suites import Draws


def _looped(
    seed: int, *, unrolled: bool, lead: bool = True, joined: bool = False, sliced: bool = False
) -> tuple[bytes, list[bytes], list[str]]:
    """Return a network, files with some of its layers in a loop, and why other groups cannot be.

    Args:
        unrolled: Each tile has an op of its own.
        joined: Rows ahead are joined to the input.
        sliced: Some of the layers are slices.
    """
    rng, data = random.Random(seed), looped_net(seed, sliced=sliced)
    module = reader.read(data, "net.tflite", LoadOptions())
    words = dialect(module)
    assert words.loop is not None
    words = replace(words, most_joined=10, loop=replace(words.loop, unrolled=unrolled, joined=joined))
    graph = fold_pads(module.graphs[0], words)
    made, reasons = [], []
    for _ in range(4):
        first = rng.randrange(len(graph.ops))
        last = rng.randrange(first, len(graph.ops))
        shape = graph.tensors[graph.ops[last].outputs[0]].shape or ()
        sizes = tuple(rng.randint(1, shape[axis]) for axis in (1, 2))
        rows, inside = rng.choice([0, 0, 2]) if lead else 0, rng.random() < 0.5
        group = LoopGroup(tuple(range(first, last + 1)), (1, 2), sizes, rows, inside)
        loop = plan_loop(graph, group, words)
        if isinstance(loop, Refusal):
            reasons.append(loop.reason)
            continue
        looped = with_loops(graph, [loop], words)
        made.append(read_back(module, looped, LoadOptions(), load_target("tflm"))[1])
    return data, made, reasons


@needs_tflm
@pytest.mark.parametrize(
    ("unrolled", "joined", "sliced"),
    [(False, False, False), (True, False, False), (False, True, False), (False, False, True), (True, False, True)],
)
def test_loops_compute_what_the_layers_do(unrolled: bool, joined: bool, sliced: bool) -> None:
    files, wholes, reasons = [], [], Counter[str]()
    for seed in range(80):
        data, made, why = _looped(seed, unrolled=unrolled, joined=joined, sliced=sliced)
        files += made
        wholes += [data] * len(made)
        reasons.update(reason.split(": ")[-1] for reason in why)
    known = dict(zip(dict.fromkeys(wholes), run_all(list(dict.fromkeys(wholes))), strict=True))
    looped = run_all(files)
    wrong = [
        number
        for number, (data, one) in enumerate(zip(wholes, looped, strict=True))
        if not known[data].refused and not same_outputs(known[data], one)
    ]
    ran = sum(not one.refused for one in known.values())
    assert ran > 60, [one.words for one in known.values() if one.refused][:3]
    assert not wrong, (len(wrong), len(files), looped[wrong[0]].words)
    assert len(files) > 160, reasons


@needs_tflm
@pytest.mark.parametrize("joined", [False, True])
def test_plans_for_loops_pass_and_compute_the_same_whatever_was_moved(joined: bool, draws: Draws) -> None:
    """Of the plans that were made, all pass; of those with something moved, those that pass compute the same.

    Each tile has an op of its own, and all share a body; or rows ahead are joined to the input of a loop.
    """
    generator, files, wholes, heads, refused = random.Random(9), [], [], [], 0
    for seed in range(100, 100 + draws(5, 25)):
        data, made, _ = _looped(seed, unrolled=not joined, lead=joined, joined=joined)
        for one in made[:2]:
            model = parse(one)
            for target in (load_target("tflm"), load_target("tflm-reference")):
                scratch = kernel_scratch(model)
                offsets = best_offsets(model, target, scratch, Run(QUICK))
                moved = [
                    {**offsets, key: max(0, offsets[key] + 16 * generator.randint(-12, 12))}
                    for key in generator.choices(list(offsets), k=3)
                ]
                for number, plan in enumerate([offsets, *moved]):
                    written = metadata.with_metadata(one, model, OFFLINE_PLAN, encode_plan(model, plan))[0]
                    try:
                        head = check_plan(written, target, scratch)
                    except InternalError:
                        assert number, "a plan that was made is refused"
                        refused += 1
                    else:
                        files.append(written)
                        wholes.append(data)
                        heads.append(head)
    known = dict(zip(dict.fromkeys(wholes), run_all(list(dict.fromkeys(wholes))), strict=True))
    ran = run_all(files)
    assert [one.head for one in ran if not one.refused] == [
        head for head, one in zip(heads, ran, strict=True) if not one.refused
    ]
    assert all(known[data].refused or same_outputs(known[data], one) for data, one in zip(wholes, ran, strict=True))
    assert refused > draws(12, 60)
    assert len(files) > draws(18, 90)


def test_rows_ahead_are_joined_where_nothing_else_is_padded() -> None:
    """They are the zero point, and the file's plan lays the input behind them."""
    seen = 0
    for seed in range(40):
        _, made, _ = _looped(seed, unrolled=False, joined=True)
        for one in made:
            model = parse(one)
            graph = model.subgraphs[0]
            for op in graph.operators:
                if op.type != "CONCATENATION" or len(op.inputs) == 1:
                    continue
                constants = [number for number in op.inputs if graph.tensors[number].has_data]
                given = [number for number in op.inputs if number not in constants]
                if len(given) != 1 or not constants:
                    continue
                stated = tflite.Model.GetRootAs(one).Subgraphs(0).Tensors(given[0]).Quantization()
                zero = stated.ZeroPoint(0) if stated is not None and stated.ZeroPointLength() else 0
                kind = {"int8": np.int8, "int16": np.int16, "float32": np.float32}[graph.tensors[given[0]].dtype]
                for number in constants:
                    assert set(np.frombuffer(model.contents(graph.tensors[number].buffer), kind).tolist()) == {zero}
                offsets = best_offsets(model, load_target("tflm"), kernel_scratch(model), Run(QUICK))
                ahead = graph.tensors[op.inputs[0]].size if op.inputs[0] in constants else 0
                seen += offsets[0, given[0]] == offsets[0, op.outputs[0]] + ahead
    assert seen > 3
