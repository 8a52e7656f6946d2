"""Loops that hold pools which pad by themselves: windows of a whole input, moved inside where they reach past it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from memsched.base.errors import InternalError
from memsched.check.rewrite import check_rewrite
from memsched.formats.module import LoadOptions, Module
from memsched.formats.tflite import reader
from memsched.graph.loop import Loop, LoopPart, LoopRead
from memsched.ops.rules import Refusal
from memsched.rewrites.tile.fold import fold_pads
from memsched.rewrites.tile.loop import LoopGroup, plan_loop
from memsched.rewrites.tile.loop_rewrite import with_loops
from tests.rewrites.tile.looped_nets import branched_net
from tests.rewrites.tile.small_nets import SmallNet
from tests.rewrites.tile.test_loop_several import loop_in, planned, run_in_litert, words_of, written_with
from tests.runtimes.tflm.interpreter import needs_tflm, run_all, same_outputs
from tests.suites import Draws

Made = tuple[Module, int, int]
Maker = Callable[[SmallNet], Made]

# Nets, each with the first op and the last of a loop ----------------------------------------------------------------


def beside(net: SmallNet) -> Made:
    """A sum of what a pool makes and of what it reads."""
    x = net.value(1, 7, 9, 4)
    return net.module([x], [net.add(net.padded_pool(x), x)]), 0, 1


def joined(net: SmallNet) -> Made:
    """A concatenation of a pool of one tensor, a sum with another, and both, of two images."""
    x, y = net.value(2, 6, 7, 3), net.value(2, 6, 7, 3)
    pool = net.padded_pool(x, (5, 3), largest=True)
    return net.module([x, y], [net.concat(net.add(pool, y), x, pool)]), 0, 2


def only_read_by_a_pool(net: SmallNet) -> Made:
    """Pools of one tensor with windows of different lengths, beside layers over another one."""
    x, y = net.value(1, 8, 7, 4), net.value(1, 8, 7, 4)
    one, other = net.padded_pool(y, (2, 4)), net.padded_pool(y, (4, 1), largest=True)
    wide = net.padded_pool(y, (3, 2))
    return net.module([x, y], [net.concat(net.conv(x), one, wide), other]), 0, 4


def larger_than_the_image(net: SmallNet) -> Made:
    """Windows longer than the image, whichever way."""
    x = net.value(1, 5, 6, 2)
    wide, high = net.padded_pool(x, (3, 13)), net.padded_pool(x, (12, 15), largest=True)
    return net.module([x], [net.concat(wide, x, high)]), 0, 2


def read_later(net: SmallNet) -> Made:
    """What a pool makes is read behind the loop, too."""
    x = net.value(1, 8, 9, 4)
    pool = net.padded_pool(x)
    return net.module([x], [net.conv(net.add(pool, x)), pool]), 0, 1


def padded_for_another(net: SmallNet) -> Made:
    """A convolution with padding reads what a pool reads."""
    x = net.value(1, 8, 9, 4)
    before = net.relu(x) if not net.wide else net.conv(x, 1)
    return net.module([x], [net.add(net.conv(net.conv(before)), net.padded_pool(before, (3, 5)))]), 1, 4


def read_without_padding(net: SmallNet) -> Made:
    """A convolution and a pool without padding read what pools make; their tiles move by twos."""
    x = net.value(1, 10, 12, 4)
    pool = net.padded_pool(x, (3, 2))
    inner = net.pool(net.add(pool, x))
    return net.module([x], [net.add(inner, net.conv(net.padded_pool(x), 2, stride=2, same=False))]), 0, 5


def at_another_pace(net: SmallNet) -> Made:
    """The upper left quarter of what a pool makes, and a layer that moves twice as fast through what the pool reads."""
    x = net.value(1, 8, 12, 4)
    quarter = net.half(net.half(net.padded_pool(x)), axis=2)
    return net.module([x], [net.add(quarter, net.pool(x))]), 0, 4


MAKERS: tuple[Maker, ...] = (
    at_another_pace,
    beside,
    joined,
    only_read_by_a_pool,
    larger_than_the_image,
    read_later,
    padded_for_another,
    read_without_padding,
)

# Plans --------------------------------------------------------------------------------------------------------------


def test_a_pool_reads_a_window_of_the_whole_input_that_is_moved_inside() -> None:
    module, first, last = beside(SmallNet())
    loop = loop_in(module, first, last, (3, 4))
    window = loop.steps[0].window
    assert window is not None
    assert window.window == LoopPart((1, 1), (-1, -1), (5, 6))
    assert loop.parts[loop.input] == LoopPart((1, 1), (0, 0), (3, 4))
    assert loop.pads == ((0, 0), (0, 0))
    assert loop.tiles == ((0, 3, 4), (0, 4, 5))
    rows, columns = zip(*loop.moved(window), strict=True)
    assert (sorted({*rows}), sorted({*columns})) == ([0, 2], [0, 3])
    assert {at for at, _ in loop.inside(loop.steps[0], window)} == {0, 1, 2}
    assert loop.windowed(loop.input)


def test_windows_hold_what_layers_that_pad_need() -> None:
    """Against the definition: an element's window, cut off at the image's ends or at those of what was taken."""
    tried = 0
    for length in range(2, 9):
        for kernel in range(2, 12):
            net = SmallNet()
            x = net.value(1, length, 3, 1)
            module = net.module([x], [net.add(net.padded_pool(x, (kernel, 3)), x)])
            before = (kernel - 1) // 2
            for size in range(1, length + 1):
                loop = loop_in(module, 0, 1, (size, 2))
                read = loop.steps[0].window
                assert read is not None
                taken, step = read.sizes[0], loop.steps[0]
                for tile, (moved, _), (inside, _) in zip(
                    loop.each(), loop.moved(read), loop.inside(step, read), strict=True
                ):
                    assert 0 <= moved <= length - taken
                    for number in range(size):
                        whole = tile[0] + number - before
                        part = inside + number - before
                        assert inside + number < taken
                        wanted = range(max(0, whole), min(length, whole + kernel))
                        assert [*wanted] == [*range(moved + max(0, part), moved + min(taken, part + kernel))]
                        tried += 1
    assert tried > 4_000


def test_an_input_that_only_pools_read_is_read_beside_the_input() -> None:
    module, first, last = only_read_by_a_pool(SmallNet())
    loop = loop_in(module, first, last)
    x, y = module.graphs[0].inputs
    assert (loop.input, loop.side_inputs) == (x, (y,))
    assert loop.parts[y] == LoopPart((0, 0), (0, 0), (0, 0))


def _padding_behind(net: SmallNet) -> Made:
    x = net.value(1, 8, 9, 4)
    return net.module([x], [net.add(net.conv(net.padded_pool(x)), x)]), 0, 2


def _inside(net: SmallNet) -> Made:
    x = net.value(1, 8, 9, 4)
    return net.module([x], [net.padded_pool(net.relu(x))]), 0, 1


def _in_twos(net: SmallNet) -> Made:
    x = net.value(1, 9, 9, 4)
    return net.module([x], [net.add(net.padded_pool(x, stride=2), net.conv(x, 1, stride=2))]), 0, 2


def _alone(net: SmallNet) -> Made:
    x = net.value(1, 9, 9, 4)
    return net.module([x], [net.padded_pool(x)]), 0, 0


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (_padding_behind, "padded-twice"),
        (_inside, "pool-padding"),
        (_in_twos, "pool-padding"),
        (_alone, "all-pad"),
    ],
)
def test_other_pools_with_padding_are_refused(make: Maker, code: str) -> None:
    module, first, last = make(SmallNet())
    found = planned(module, first, last)
    assert isinstance(found, Refusal)
    assert found.code == code


def test_pools_that_need_no_padding_read_parts() -> None:
    net = SmallNet()
    x = net.value(1, 8, 8, 4)
    module = net.module([x], [net.add(net.padded_pool(x, (2, 2), stride=2), net.pool(x))])
    loop = loop_in(module, 0, 2, (3, 2))
    assert not loop.windowed(x)
    assert loop.parts[x] == LoopPart((2, 2), (0, 0), (6, 4))


# Files --------------------------------------------------------------------------------------------------------------

KINDS: tuple[dict[str, bool], ...] = ({}, {"quantised": True}, {"wide": True})


@needs_tflm
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("make", MAKERS)
def test_files_compute_the_same_and_take_what_was_predicted(make: Maker, kind: dict[str, bool]) -> None:
    module, first, last = make(SmallNet(**kind))
    files: list[bytes] = [module.native.model.data]
    heads: list[int | None] = [None]
    for unrolled in (False, True):
        words = words_of(module, unrolled=unrolled)
        for sizes in ((1, 1), (3, 2), (2, 5), (5, 6)):
            loop = planned(module, first, last, sizes, unrolled=unrolled)
            if isinstance(loop, Refusal):
                assert unrolled or sizes == (5, 6)
                continue
            for one in [loop, loop.padded_inside()][: 1 + any(map(any, loop.pads))]:
                more, needed = written_with(module, [one], words)
                files += more
                heads += needed
    ran = run_all(files)
    assert len(files) >= 10
    assert all(same_outputs(ran[0], one) for one in ran), [one.words for one in ran if one.refused]
    assert all(head in {None, one.head} for head, one in zip(heads, ran, strict=True))


@pytest.mark.parametrize("make", MAKERS)
def test_litert_computes_the_same(make: Maker) -> None:
    module, first, last = make(SmallNet(quantised=True))
    known = run_in_litert(module.native.model.data)
    for sizes in ((1, 1), (3, 2)):
        files, _ = written_with(module, [loop_in(module, first, last, sizes)], words_of(module))
        for file in files:
            assert all(map(np.array_equal, known, run_in_litert(file)))


def pooled(seed: int) -> tuple[bytes, list[bytes], list[int | None], list[str]]:
    """Return a network, files with a loop over some of its layers, their heads, and what was in the loops."""
    rng = random.Random(seed)
    data = branched_net(seed, 5, sliced=seed % 4 == 1, pooled=True)
    module = reader.read(data, "net.tflite", LoadOptions())
    words = words_of(module, unrolled=seed % 2 == 0)
    graph = fold_pads(module.graphs[0], words)
    files: list[bytes] = []
    heads: list[int | None] = []
    had: list[str] = []
    for _ in range(16):
        first = rng.randrange(len(graph.ops))
        last = rng.randrange(first, len(graph.ops))
        shape = graph.tensors[graph.ops[last].outputs[0]].shape or ()
        sizes = tuple(rng.randint(1, size) for size in shape[1:3])
        rows, inside = rng.choice([0, 0, 2]), rng.random() < 0.5
        loop = plan_loop(graph, LoopGroup(tuple(range(first, last + 1)), (1, 2), sizes, rows, inside), words)
        if isinstance(loop, Refusal) or all(step.window is None for step in loop.steps) or len(files) > 5:
            continue
        more, needed = written_with(replace(module, graphs=(graph,)), [loop], words)
        files += more
        heads += needed
        had += [f"{graph.tensors[loop.output].dtype}"]
        had += ["windows of the input"] if loop.windowed(loop.input) else []
        had += ["padded input"] if loop.windowed(loop.input) and any(map(any, loop.pads)) else []
        had += ["an op for each tile"] if seed % 2 == 0 else []
    return data, files, heads, had


@needs_tflm
def test_loops_over_random_pools_compute_what_the_layers_do(draws: Draws) -> None:
    found = [pooled(seed) for seed in range(draws(40, 110))]
    kinds = Counter(one for *_, had in found for one in had)
    files = [file for data, made, *_ in found if made for file in (data, *made)]
    heads = [head for _, made, needed, _ in found if made for head in (None, *needed)]
    ran = run_all(files)
    places = [place for place, (_, made, *_) in enumerate(found) for _ in range(len(made) + 1) if made]
    whole = dict(reversed([*zip(places, ran, strict=True)]))
    assert all(same_outputs(whole[place], one) for place, one in zip(places, ran, strict=True))
    assert all(head in {None, one.head} for head, one in zip(heads, ran, strict=True))
    assert min(kinds[one] for one in ("int8", "int16", "float32", "padded input", "an op for each tile")) > draws(0, 2)


# What is checked ----------------------------------------------------------------------------------------------------


def _of_window(make: Maker) -> tuple[Module, Loop, LoopRead]:
    module, first, last = make(SmallNet())
    loop = loop_in(module, first, last)
    read = next(step.window for step in loop.steps if step.window is not None)
    return module, loop, read


def _with(loop: Loop, read: LoopRead, **changes: object) -> Loop:
    """Return a loop with changes to what a pool reads."""
    changed = replace(read, **changes)  # type: ignore[arg-type]
    steps = tuple(replace(step, reads=(changed,)) if step.window is read else step for step in loop.steps)
    return replace(loop, steps=steps)


@pytest.mark.parametrize("make", MAKERS)
def test_loops_with_windows_are_taken(make: Maker) -> None:
    module, first, last = make(SmallNet())
    graph, words = module.graphs[0], words_of(module)
    check_rewrite(graph, with_loops(graph, [loop_in(module, first, last)], words))


@pytest.mark.parametrize("make", [beside, only_read_by_a_pool, padded_for_another])
def test_windows_that_do_not_hold_what_is_needed_are_refused(make: Maker) -> None:
    module, loop, read = _of_window(make)
    graph, words, window = module.graphs[0], words_of(module), read.window
    assert window is not None
    length = loop.lengths[read.tensor][0]
    inner = next((step for step in loop.steps[:-1] if step.window is None), None)
    tampered = [
        # Longer than the image, which none of its tiles can take.
        _with(loop, read, sizes=(length + 1, read.sizes[1]), window=replace(window, sizes=(length + 1, read.sizes[1]))),
        # Of other lengths than those by which it was moved inside.
        _with(loop, read, sizes=(read.sizes[0] + 1, read.sizes[1])),
        _with(loop, read, window=replace(window, sizes=(window.sizes[0] + 1, window.sizes[1]))),
        # Too short, too far ahead, too far behind, too slow.
        _with(loop, read, sizes=(1, 1), window=replace(window, sizes=(1, 1))),
        _with(loop, read, window=replace(window, offsets=(-9, window.offsets[1]))),
        _with(loop, read, window=replace(window, offsets=(window.offsets[0], 2))),
        _with(loop, read, window=replace(window, strides=(0, 0))),
    ]
    if inner is not None:
        # Of what the loop makes.
        tampered.append(_with(loop, read, tensor=inner.output))
    for one in tampered:
        with pytest.raises(InternalError) as caught:
            check_rewrite(graph, with_loops(graph, [one], words))
        assert caught.value.code in {"window", "read-unmade"}
