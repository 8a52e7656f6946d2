"""Memory plans for models with a WHILE: found from a file, judged from its bytes, executed in the real runtime."""

from __future__ import annotations

import random
import struct
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from memsched.base.errors import InternalError
from memsched.commands.optimize import optimize as compiler
from memsched.commands.optimize.analysis import analyze
from memsched.formats.tflite import metadata
from memsched.formats.tflite.metadata import OFFLINE_PLAN
from memsched.formats.tflite.model import parse
from memsched.runtimes.tflm.layout import best_offsets
from memsched.runtimes.tflm.loops import LoopAccesses
from memsched.runtimes.tflm.plan import encode_plan, kernel_scratch, needs_memory, predict
from memsched.runtimes.tflm.plan_check import check_plan
from memsched.search.limits import QUICK
from memsched.search.run import Run
from memsched.targets.load import load_target
from tests.failures import fails
from tests.runtimes.tflm.interpreter import needs_tflm, run_all, same_outputs
from tests.runtimes.tflm.loop_models import LoopModel, looped, random_loop

PLAIN, REFERENCE = load_target("tflm"), load_target("tflm-reference")
BARE = structs.replace(PLAIN, views=(), part_views=(), in_place=(), overwrite_inputs=False)
"""Nothing but what WHILE copies shares bytes."""

Y = [(0, 4), (0, 6), (1, 1), (2, 1), (2, 13)]
"""All that holds the output that a loop makes: before it, behind it, and in its bodies."""

XP = [(0, 2), (0, 7), (1, 2), (2, 2)]


def with_plan(data: bytes, offsets: Mapping[tuple[int, int], int]) -> bytes:
    model = parse(data)
    return metadata.with_metadata(data, model, OFFLINE_PLAN, encode_plan(model, offsets))[0]


def plan_of(one: LoopModel) -> tuple[bytes, dict[tuple[int, int], int]]:
    data = looped(one)
    model = parse(data)
    return data, best_offsets(model, REFERENCE, kernel_scratch(model), Run(QUICK))


def counted(seed: int) -> LoopModel:
    """A counter that is a random input would begin far below zero."""
    return replace(random_loop(seed), known=True)


def moved(offsets: Mapping[tuple[int, int], int], keys: list[tuple[int, int]], by: int) -> dict[tuple[int, int], int]:
    return {key: offset + by if key in keys else offset for key, offset in offsets.items()}


@pytest.mark.parametrize(
    ("one", "bare", "plain", "reference"),
    [
        (LoopModel(), 896, 544, 544),
        (LoopModel(start="fill"), 816, 736, 736),
        (LoopModel(start="fill", early=True), 816, 544, 544),
        (LoopModel(again=True), 896, 896, 736),
        (LoopModel(again=True, unread=True), 896, 736, 736),
        (LoopModel(first=4), 1088, 640, 640),
        (LoopModel(known=False), 912, 736, 736),
        (LoopModel(twice=True), 1008, 1008, 1008),
        (LoopModel(twice=True, again=True), 1360, 1360, 1360),
    ],
)
def test_the_head_with_all_that_a_loop_copies_on_one_address(
    one: LoopModel, bare: int, plain: int, reference: int
) -> None:
    data = looped(one)
    model = parse(data)
    assert predict(model, {}, own=True).head > 1900
    for target, head in ((BARE, bare), (PLAIN, plain), (REFERENCE, reference)):
        offsets = best_offsets(model, target, {}, Run(QUICK))
        assert check_plan(with_plan(data, offsets), target, {}) == head


@pytest.mark.parametrize("seed", range(40))
def test_a_target_that_permits_more_never_needs_more(seed: int) -> None:
    model = parse(looped(random_loop(seed)))
    heads = [predict(model, {}, plan=best_offsets(model, one, {}, Run(QUICK))).head for one in (BARE, PLAIN, REFERENCE)]
    assert heads == sorted(heads, reverse=True)


def test_what_lies_where() -> None:
    _, offsets = plan_of(LoopModel())
    assert len({offsets[key] for key in Y}) == len({offsets[key] for key in XP}) == 1
    # The output over the beginning of the input, which the PAD wrote in front of its own input.
    assert offsets[0, 4] == offsets[0, 2]
    assert offsets[0, 0] - offsets[0, 2] == 96
    _, apart = plan_of(LoopModel(again=True))
    assert apart[0, 2] + 320 <= apart[0, 4] or apart[0, 4] + 192 <= apart[0, 2]


@needs_tflm
def test_heads_and_outputs_in_the_runtime() -> None:
    files, heads = [], []
    for seed in range(24):
        data = looped(counted(seed))
        model = parse(data)
        files.append(data)
        heads.append(predict(model, {}, own=True).head)
        for target in (PLAIN, REFERENCE):
            written = with_plan(data, best_offsets(model, target, {}, Run(QUICK)))
            heads.append(check_plan(written, target, {}))
            files.append(written)
    ran = run_all(files)
    assert [one.head for one in ran] == heads
    assert all(same_outputs(ran[3 * seed], ran[3 * seed + which]) for seed in range(24) for which in (1, 2))
    assert all(len({run[0].tobytes() for run in one.outputs or ()}) > 1 for one in ran)


@needs_tflm
def test_a_plan_that_passes_computes_the_same_whatever_was_moved() -> None:
    """The judge is asked about plans that nobody made: the runtime tells who is right."""
    generator = random.Random(5)
    files, refused = [], 0
    for seed in range(60):
        data, offsets = plan_of(counted(seed))
        for _ in range(4):
            group = generator.choice([Y, XP, [(0, 0)], [generator.choice(list(offsets))]])
            step = 16 * generator.randint(-8, 8)
            changed = {key: max(0, low + step) if key in group else low for key, low in offsets.items()}
            written = with_plan(data, changed)
            try:
                check_plan(written, REFERENCE, {})
            except InternalError:
                refused += 1
            else:
                files += [data, written]
    ran = run_all(files)
    assert refused > 60
    assert len(files) > 60
    assert all(same_outputs(one, other) for one, other in zip(ran[::2], ran[1::2], strict=True))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6))
def test_every_plan_that_is_made_passes(seed: int) -> None:
    data = looped(random_loop(seed))
    model = parse(data)
    for target in (PLAIN, REFERENCE):
        offsets = best_offsets(model, target, {}, Run(QUICK))
        assert check_plan(with_plan(data, offsets), target, {}) <= predict(model, {}, own=True).head


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(-12, 40))
def test_the_enumeration_and_the_replay_agree_where_an_output_may_lie(seed: int, place: int) -> None:
    """For any distance: the one counts bytes per iteration, the other executes the plan."""
    one = replace(random_loop(seed), start="fill", early=True, again=False, twice=False, known=True)
    data = looped(one)
    model = parse(data)
    loop = next(number for number, op in enumerate(model.subgraphs[0].operators) if op.type == "WHILE")
    access = LoopAccesses(model).of(0, loop, 2, 1)
    assert access is not None
    assert access.covers
    # Everything else lies apart.
    offsets, end = {}, 4096
    for index, graph in enumerate(model.subgraphs):
        for number, tensor in enumerate(graph.tensors):
            if needs_memory(graph, number):
                offsets[index, number] = end
                end += -(-tensor.size // 16) * 16
    offsets |= dict.fromkeys(XP, 2048) | dict.fromkeys(Y, 2048 + 16 * place)
    try:
        check_plan(with_plan(data, offsets), REFERENCE, {})
    except InternalError:
        assert not access.permits(16 * place)
    else:
        assert access.permits(16 * place)


def test_an_output_that_overtakes_what_is_read_is_refused() -> None:
    one = LoopModel(shape=(8, 14, 4), first=1)
    data, offsets = plan_of(one)
    assert check_plan(with_plan(data, offsets), REFERENCE, {})
    assert offsets[0, 4] == offsets[0, 2]
    row = 14 * 4
    with fails("overlap"):
        check_plan(with_plan(data, moved(offsets, Y, 2 * row)), REFERENCE, {})
    # From below, the first band that is written lies where later ones are read.
    below = looped(replace(one, order=(3, 2, 1, 0)))
    with fails("overlap"):
        check_plan(with_plan(below, offsets), REFERENCE, {})


@pytest.mark.parametrize(
    ("group", "by"),
    [([(2, 13)], 16), ([(0, 4)], 16), ([(0, 7)], 16), ([(1, 1), (2, 1)], 16), ([(0, 0)], -16), (XP, 16)],
)
def test_a_piece_of_a_plan_that_was_moved_is_refused(group: list[tuple[int, int]], by: int) -> None:
    data, offsets = plan_of(LoopModel())
    with fails("overlap"):
        check_plan(with_plan(data, moved(offsets, group, by)), REFERENCE, {})


def test_what_is_read_behind_a_loop_is_not_overwritten_in_it() -> None:
    _, offsets = plan_of(LoopModel())
    data, apart = plan_of(LoopModel(again=True))
    assert check_plan(with_plan(data, apart), REFERENCE, {})
    over = {**offsets, (0, 15): 1024}
    with fails("overlap"):
        check_plan(with_plan(data, {key: over.get(key, low) for key, low in apart.items()}), REFERENCE, {})


def test_other_tables_make_another_loop() -> None:
    """The judge reads the begins: two rows of a table in another order make a sound plan unsound."""
    data, offsets = plan_of(LoopModel(shape=(8, 14, 4)))
    written = with_plan(data, offsets)
    assert check_plan(written, REFERENCE, {})
    rows = struct.pack("<16i", *(value for low in (0, 2, 4, 6) for value in (0, low, 0, 0)))
    swapped = struct.pack("<16i", *(value for low in (6, 2, 4, 0) for value in (0, low, 0, 0)))
    assert written.count(rows) in {1, 2}
    with fails("overlap"):
        check_plan(written.replace(rows, swapped), REFERENCE, {})


def test_kernels_that_are_not_known_to_bear_it_overwrite_nothing() -> None:
    data, offsets = plan_of(LoopModel())
    with fails("overlap"):
        check_plan(with_plan(data, offsets), PLAIN, {})


@needs_tflm
@pytest.mark.parametrize("one", [LoopModel(), LoopModel(start="fill"), LoopModel(stride=2)])
def test_the_whole_arena_is_the_one_that_is_told(one: LoopModel) -> None:
    found = compiler.optimize(looped(one), target="tflm-reference", tflm_plan=True, effort=1).report["sections"][
        "verification"
    ]
    assert found["outputs_equal"]
    assert found["arena_before"]["as_predicted"]
    assert found["arena_after"]["as_predicted"]
    assert found["arena_after"]["measured_head_bytes"] < found["arena_before"]["measured_head_bytes"]


def test_a_sound_plan_in_the_file_has_no_fault() -> None:
    data, offsets = plan_of(LoopModel())
    for rules, sound in ((REFERENCE, True), (PLAIN, False)):
        report = analyze(with_plan(data, offsets), target=rules.name).report
        assert (report["sections"]["tflm"]["plan_fault"] is None) is sound


@pytest.mark.parametrize("one", [LoopModel(), LoopModel(stride=2), LoopModel(again=True)])
def test_no_bound_of_repetitions_counts_what_a_loop_does_not_copy(one: LoopModel) -> None:
    report = compiler.optimize(
        looped(one),
        target="tflm-reference",
        allow=("reorder", "inplace", "remat"),
        max_extra_macs=50,
        effort=1,
        verify=False,
    ).report
    remat = report["sections"]["recompute"]
    assert remat["lower_bound_bytes"] <= report["written"]["schedule"]["peak_bytes"]
    assert not remat["settled"]
    assert remat["status"] == "feasible"
