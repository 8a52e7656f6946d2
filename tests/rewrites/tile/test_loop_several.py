"""Loops that read several tensors, and that make several: what of each a tile needs, and which cannot be."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from memsched.check.rewrite import check_rewrite
from memsched.formats.module import LoadOptions, Module
from memsched.formats.tflite import metadata, reader
from memsched.formats.tflite.metadata import OFFLINE_PLAN
from memsched.formats.tflite.model import parse
from memsched.formats.tflite.rewriter import dialect
from memsched.graph.dialect import Dialect
from memsched.graph.loop import Loop, LoopPart
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
from tests.failures import check_refusal
from tests.rewrites.tile.looped_nets import branched_net
from tests.rewrites.tile.small_nets import SmallNet
from tests.runtimes.tflm.interpreter import needs_tflm, run_all, same_outputs


def words_of(module: Module, *, unrolled: bool = False) -> Dialect:
    words = dialect(module)
    assert words.loop is not None
    return replace(words, most_joined=10, loop=replace(words.loop, unrolled=unrolled))


def planned(
    module: Module, first: int, last: int, sizes: tuple[int, int] = (3, 3), *, unrolled: bool = False
) -> Loop | Refusal:
    group = LoopGroup(tuple(range(first, last + 1)), (1, 2), sizes)
    return plan_loop(module.graphs[0], group, words_of(module, unrolled=unrolled))


def loop_in(module: Module, first: int, last: int, sizes: tuple[int, int] = (3, 3), *, unrolled: bool = False) -> Loop:
    found = planned(module, first, last, sizes, unrolled=unrolled)
    assert isinstance(found, Loop), found
    return found


# Nets, each with the first op and the last of a loop ----------------------------------------------------------------


def residual(*, quantised: bool = False) -> tuple[Module, int, int]:
    """A sum over a border of the loop: of what the loop makes, and of what an op before it makes."""
    net = SmallNet(quantised=quantised)
    x = net.value(1, 8, 9, 4)
    before = net.conv(x)
    inner = net.conv(net.conv(before))
    return net.module([x], [net.add(inner, before)]), 2, 3


def join(*, quantised: bool = False) -> tuple[Module, int, int]:
    """A concatenation of three tensors that are made before it, of which the largest is an output of the graph."""
    net = SmallNet(quantised=quantised)
    x = net.value(1, 8, 9, 4)
    parts = [net.conv(x, channels=channels) for channels in (2, 5, 3)]
    return net.module([x], [net.conv(net.concat(*parts), 1), parts[1]]), 3, 4


def read_later(*, quantised: bool = False) -> tuple[Module, int, int]:
    """What an op in the loop makes is read behind it, too."""
    net = SmallNet(quantised=quantised)
    x = net.value(1, 8, 9, 4)
    inner = net.conv(x)
    last = net.conv(inner, 1)
    return net.module([x], [net.add(last, inner)]), 0, 1


def larger_leaf(*, quantised: bool = False) -> tuple[Module, int, int]:
    """What an op makes for what follows alone is twice as long as what the loop makes last."""
    net = SmallNet(quantised=quantised)
    x = net.value(1, 8, 12, 4)
    leaf = net.relu(x)
    last = net.conv(net.pool(x), 1)
    return net.module([x], [leaf, last]), 0, 2


def overlapping(*, quantised: bool = False) -> tuple[Module, int, int]:
    """Windows that overlap cover all that they read, whose lengths are no multiples of what they make."""
    net = SmallNet(quantised=quantised)
    x = net.value(1, 9, 11, 4)
    inner = net.relu(x)
    last = net.conv(inner, 3, stride=2, same=False)
    return net.module([x], [inner, last]), 0, 1


def in_a_row(*, quantised: bool = False) -> tuple[Module, int, int]:
    """What an op reads twice, and tensors of which one shows the other in another shape, and a batch of two."""
    net = SmallNet(quantised=quantised)
    x = net.value(2, 6, 8, 4)
    twice = net.add(x, x)
    shown = net.shown(twice, 2, 8, 6, 4)
    again = net.shown(shown, 2, 6, 8, 4)
    return net.module([x], [net.add(net.conv(twice), again), net.relu(shown)]), 3, 4


Maker = Callable[..., tuple[Module, int, int]]

MAKERS: tuple[Maker, ...] = (residual, join, read_later, larger_leaf, overlapping, in_a_row)


# Plans --------------------------------------------------------------------------------------------------------------


def test_a_sum_over_the_border_of_a_loop_reads_a_second_tensor_without_padding() -> None:
    module, first, last = residual()
    graph = module.graphs[0]
    loop = loop_in(module, first, last)
    assert loop.input == graph.ops[first].inputs[0]
    assert loop.side_inputs == (graph.ops[0].outputs[0],)
    assert loop.side_outputs == ()
    assert loop.pads == ((1, 1), (1, 1))
    assert loop.parts[loop.input] == LoopPart((1, 1), (-1, -1), (5, 5))
    assert loop.parts[loop.side_inputs[0]] == LoopPart((1, 1), (0, 0), (3, 3))


def test_of_inputs_without_padding_the_largest_that_is_gone_afterwards_is_the_input() -> None:
    module, first, last = join()
    graph = module.graphs[0]
    made = [graph.ops[op].outputs[0] for op in range(3)]
    loop = loop_in(module, first, last)
    # The one of five channels is an output.
    assert loop.inputs == (made[2], made[0], made[1])
    assert loop.inputs == loop_in(module, first, last, (8, 9)).inputs


def test_what_is_read_later_is_made_beside_the_output() -> None:
    module, first, last = read_later()
    loop = loop_in(module, first, last)
    assert loop.outputs == tuple(module.graphs[0].ops[op].outputs[0] for op in (last, first))
    assert loop.begins(loop.side_outputs[0]) == loop.begins(loop.output)
    assert loop.covers(loop.side_outputs[0])


def test_what_nothing_in_the_loop_reads_is_made_in_step_with_the_output() -> None:
    module, first, last = larger_leaf()
    loop = loop_in(module, first, last)
    assert loop.parts[loop.side_outputs[0]] == LoopPart((2, 2), (0, 0), (6, 6))
    assert loop.covers(loop.side_outputs[0])


def test_what_the_loop_reads_itself_needs_no_lengths_in_step() -> None:
    module, first, last = overlapping()
    loop = loop_in(module, first, last, (2, 2))
    assert loop.parts[loop.side_outputs[0]] == LoopPart((2, 2), (0, 0), (5, 5))
    assert loop.covers(loop.side_outputs[0])


def _two_padded() -> tuple[Module, int, int]:
    net = SmallNet()
    x, y = net.value(1, 8, 9, 4), net.value(1, 8, 9, 4)
    return net.module([x, y], [net.add(net.conv(x), net.conv(y))]), 0, 2


def _read_with_padding() -> tuple[Module, int, int]:
    net = SmallNet()
    x = net.value(1, 8, 9, 4)
    inner = net.conv(x)
    return net.module([x], [inner, net.conv(inner)]), 0, 1


def _other_lengths() -> tuple[Module, int, int]:
    net = SmallNet()
    x = net.value(1, 9, 12, 4)
    return net.module([x], [net.relu(x), net.conv(net.pool(x), 1)]), 0, 2


def _not_covered() -> tuple[Module, int, int]:
    net = SmallNet()
    x = net.value(1, 8, 12, 4)
    inner = net.relu(x)
    return net.module([x], [inner, net.conv(inner, 1, stride=2)]), 0, 1


def _fewer_axes_made() -> tuple[Module, int, int]:
    net = SmallNet()
    x = net.value(1, 8, 9, 4)
    return net.module([x], [net.sum_of_channels(x), net.relu(x)]), 0, 1


def _fewer_axes_made_last() -> tuple[Module, int, int]:
    net = SmallNet()
    x = net.value(1, 8, 9, 4)
    return net.module([x], [net.relu(x), net.sum_of_channels(x)]), 0, 1


def _a_part() -> tuple[Module, int, int]:
    net = SmallNet()
    x = net.value(1, 8, 9, 4)
    half = net.half(x)
    return net.module([x], [half, net.relu(half)]), 0, 1


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (_two_padded, "two-padded"),
        (_read_with_padding, "not-covered"),
        (_other_lengths, "lengths-differ"),
        (_not_covered, "not-covered"),
        (_fewer_axes_made, "rank"),
        (_fewer_axes_made_last, "rank"),
        (_a_part, "output-not-made"),
    ],
)
def test_what_cannot_be_a_loop_is_refused_with_the_reason(
    make: Callable[[], tuple[Module, int, int]], code: str
) -> None:
    module, first, last = make()
    check_refusal(planned(module, first, last), code)


def test_an_op_for_each_tile_makes_one_tensor() -> None:
    module, first, last = read_later()
    check_refusal(planned(module, first, last, unrolled=True), "output-count", "2")


def test_what_a_loop_reads_and_makes_is_of_one_type() -> None:
    module, first, last = residual()
    graph = module.graphs[0]
    tensors = [
        replace(one, dtype="int32") if number == graph.ops[0].outputs[0] else one
        for number, one in enumerate(graph.tensors)
    ]
    other = replace(graph, tensors=tuple(tensors))
    found = plan_loop(other, LoopGroup((first, last), (1, 2), (3, 3)), words_of(module))
    check_refusal(found, "types-differ")


def test_what_is_made_beside_the_output_is_no_state() -> None:
    module, first, last = read_later()
    graph = replace(module.graphs[0], variables=(module.graphs[0].ops[first].outputs[0],))
    found = plan_loop(graph, LoopGroup((first, last), (1, 2), (3, 3)), words_of(module))
    check_refusal(found, "state")


# Files --------------------------------------------------------------------------------------------------------------


def written_with(module: Module, loops: Sequence[Loop], words: Dialect) -> tuple[list[bytes], list[int | None]]:
    """Return a file with loops, and the same with a plan for each target, and the head that each plan takes."""
    looped = with_loops(module.graphs[0], loops, words)
    check_rewrite(module.graphs[0], looped)
    written = read_back(module, looped, LoadOptions(), load_target("tflm"))[1]
    model = parse(written)
    scratch = kernel_scratch(model)
    files: list[bytes] = [written]
    heads: list[int | None] = [None]
    for target in (load_target("tflm"), load_target("tflm-reference")):
        plan = encode_plan(model, best_offsets(model, target, scratch, Run(QUICK)))
        files.append(metadata.with_metadata(written, model, OFFLINE_PLAN, plan)[0])
        heads.append(check_plan(files[-1], target, scratch))
    return files, heads


@needs_tflm
@pytest.mark.parametrize("quantised", [False, True])
@pytest.mark.parametrize("make", MAKERS)
def test_files_compute_the_same_and_take_what_was_predicted(make: Maker, quantised: bool) -> None:
    """As TFLM plans them itself, and with plans for each target; in loops, and with an op for each tile."""
    module, first, last = make(quantised=quantised)
    files: list[bytes] = [module.native.model.data]
    heads: list[int | None] = [None]
    for unrolled in (False, True):
        words = words_of(module, unrolled=unrolled)
        for sizes in ((1, 1), (3, 2), (2, 5)):
            loop = planned(module, first, last, sizes, unrolled=unrolled)
            if unrolled and isinstance(loop, Refusal):
                continue
            assert isinstance(loop, Loop)
            for one in (loop, loop.padded_inside()):
                more, needed = written_with(module, [one], words)
                files += more
                heads += needed
    ran = run_all(files)
    assert len(files) > 12
    assert all(same_outputs(ran[0], one) for one in ran), [one.words for one in ran if one.refused]
    assert all(head in {None, one.head} for head, one in zip(heads, ran, strict=True))


@pytest.mark.parametrize("make", MAKERS)
def test_litert_computes_the_same(make: Maker) -> None:
    module, first, last = make(quantised=True)
    known = run_in_litert(module.native.model.data)
    assert len({value.tobytes() for value in known}) == len(known)
    for sizes in ((1, 1), (3, 2)):
        files, _ = written_with(module, [loop_in(module, first, last, sizes)], words_of(module))
        for file in files:
            assert all(map(np.array_equal, known, run_in_litert(file)))


def run_in_litert(file: bytes) -> list[np.ndarray[Any, Any]]:
    interpreter = Interpreter(
        model_content=file, experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    )
    interpreter.allocate_tensors()
    for number, one in enumerate(interpreter.get_input_details()):
        drawn = np.random.default_rng(number).integers(-128, 128, one["shape"], np.int8)
        interpreter.set_tensor(one["index"], drawn)
    interpreter.invoke()
    return [interpreter.get_tensor(one["index"]) for one in interpreter.get_output_details()]


def branches(seed: int, words: Callable[[Module], Dialect]) -> tuple[bytes, list[bytes], list[int | None], set[str]]:
    """Return a network, files with a loop or two in a row over some of its layers, their heads, and what loops had."""
    rng = random.Random(seed)
    data = branched_net(seed, sliced=seed % 4 == 0)
    module = reader.read(data, "net.tflite", LoadOptions())
    said = words(module)
    graph = fold_pads(module.graphs[0], said)
    files: list[bytes] = []
    heads: list[int | None] = []
    had = set()
    for _ in range(3):
        first = rng.randrange(len(graph.ops))
        last = rng.randrange(first, len(graph.ops))
        middle = rng.randrange(first, last) if first < last and rng.random() < 0.4 else last
        loops = []
        for begin, end in [(first, middle), (middle + 1, last)][: 1 if middle == last else 2]:
            shape = graph.tensors[graph.ops[end].outputs[0]].shape or ()
            sizes = tuple(rng.randint(1, size) for size in shape[1:3])
            rows, inside = rng.choice([0, 0, 2]), rng.random() < 0.5
            found = plan_loop(graph, LoopGroup(tuple(range(begin, end + 1)), (1, 2), sizes, rows, inside), said)
            loops += [found] if isinstance(found, Loop) else []
        had |= {"inputs" for loop in loops if loop.side_inputs} | {"outputs" for loop in loops if loop.side_outputs}
        if loops:
            more, needed = written_with(replace(module, graphs=(graph,)), loops, said)
            files += more
            heads += needed
    return data, files, heads, had


@needs_tflm
@pytest.mark.parametrize(("unrolled", "joined"), [(False, False), (False, True), (True, False)])
def test_loops_over_branches_compute_what_the_layers_do(unrolled: bool, joined: bool) -> None:
    def words(module: Module) -> Dialect:
        found = words_of(module, unrolled=unrolled)
        assert found.loop is not None
        return replace(found, loop=replace(found.loop, joined=joined))

    files: list[bytes] = []
    wholes: list[bytes] = []
    heads: list[int | None] = []
    kinds = Counter[str]()
    for seed in range(30):
        data, made, needed, had = branches(seed, words)
        files += made
        heads += needed
        wholes += [data] * len(made)
        kinds.update(had)
    known = dict(zip(dict.fromkeys(wholes), run_all(list(dict.fromkeys(wholes))), strict=True))
    assert not [one.words for one in known.values() if one.refused]
    ran = run_all(files)
    assert all(same_outputs(known[data], one) for data, one in zip(wholes, ran, strict=True))
    assert all(head in {None, one.head} for head, one in zip(heads, ran, strict=True))
    assert kinds["inputs"] > 10
    assert unrolled or kinds["outputs"] > 6
