"""Groups of layers as loops: the parts of tensors by brute force, and the written files in the real runtime."""

from __future__ import annotations

import random
from collections import Counter

from memsched.formats.module import LoadOptions
from memsched.formats.tflite import reader
from memsched.formats.tflite.rewriter import dialect
from memsched.planning.rewrite import read_back
from memsched.regions.rules import Refusal
from memsched.targets.load import load_target
from memsched.tiling.fold import fold_pads
from memsched.tiling.loop import LoopGroup, plan_loop
from memsched.tiling.loop_rewrite import with_loops
from tests.runtimes.tflm.interpreter import needs_tflm, run_all, same_outputs
from tests.tiling.looped_nets import looped_net


def _looped(seed: int) -> tuple[bytes, list[bytes], list[str]]:
    """Return a network, files with some of its layers in a loop, and why other groups cannot be."""
    rng, data = random.Random(seed), looped_net(seed)
    module = reader.read(data, "net.tflite", LoadOptions())
    words = dialect(module)
    graph = fold_pads(module.graphs[0], words)
    made, reasons = [], []
    for _ in range(4):
        first = rng.randrange(len(graph.ops))
        last = rng.randrange(first, len(graph.ops))
        shape = graph.tensors[graph.ops[last].outputs[0]].shape or ()
        sizes = tuple(rng.randint(1, shape[axis]) for axis in (1, 2))
        group = LoopGroup(tuple(range(first, last + 1)), (1, 2), sizes, rng.choice([0, 0, 2]))
        loop = plan_loop(graph, group, words)
        if isinstance(loop, Refusal):
            reasons.append(loop.reason)
            continue
        looped = with_loops(graph, [loop], words)
        made.append(read_back(module, looped, LoadOptions(), load_target("tflm"))[1])
    return data, made, reasons


@needs_tflm
def test_loops_compute_what_the_layers_do() -> None:
    files, wholes, reasons = [], [], Counter[str]()
    for seed in range(80):
        data, made, why = _looped(seed)
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
