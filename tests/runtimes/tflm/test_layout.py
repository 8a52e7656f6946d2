"""Memory plans in which some of what may share bytes does: none is worse than those in which all does, or nothing."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import msgspec
import pytest

from memsched.formats.tflite.metadata import OFFLINE_PLAN
from memsched.formats.tflite.model import FileModel, parse
from memsched.runtimes.tflm import layout
from memsched.runtimes.tflm.layout import best_offsets
from memsched.runtimes.tflm.plan import encode_plan, predict
from memsched.runtimes.tflm.plan_check import check_plan
from memsched.search.limits import QUICK, Limits
from memsched.search.pace import MachinePace
from memsched.search.run import Run
from memsched.targets.load import load_target
from tests.formats.tflite_builder import O, Sub, T, build, int32s, options

PLAIN = load_target("tflm")
BARE = msgspec.structs.replace(PLAIN, views=(), part_views=(), in_place=(), overwrite_inputs=False)


def sliced_and_joined(seed: int, *, metadata: Sequence[tuple[str, bytes]] = ()) -> bytes:
    """Build a net of element-wise ops, slices of whole rows and concatenations of rows, in random order."""
    rng = random.Random(seed)
    tensors, rows, made = [T("x", (8, 4))], {0: 8}, [0]
    found: list[O] = []

    def add(size: int) -> int:
        tensors.append(T(f"t{len(tensors)}", (size, 4)))
        rows[len(tensors) - 1] = size
        made.append(len(tensors) - 1)
        return len(tensors) - 1

    for _ in range(24):
        kind, read = rng.choice(("EXP", "SLICE", "CONCATENATION")), rng.choice(made[-5:])
        if kind == "SLICE" and rows[read] > 1:
            size = rng.randint(1, rows[read] - 1)
            begin = rng.randint(0, rows[read] - size)
            places = [len(tensors), len(tensors) + 1]
            tensors.append(T(f"begin{len(tensors)}", (2,), "INT32", int32s(begin, 0)))
            tensors.append(T(f"size{len(tensors)}", (2,), "INT32", int32s(size, 4)))
            found.append(O("SLICE", [read, *places], [add(size)]))
        elif kind == "CONCATENATION" and len(set(made[-5:])) > 1:
            parts = rng.sample(made[-5:], 2)
            whole = add(sum(rows[part] for part in parts))
            found.append(O(kind, parts, [whole], options("ConcatenationOptions", axis=0)))
        else:
            found.append(O("EXP", [read], [add(rows[read])]))
    return build(Sub(tensors, found, [0], [made[-1]]), metadata=metadata)


def crowded(seed: int) -> bytes:
    """Build a net of 400 ops that read one or two of the last tensors, which are of seven sizes."""
    rng = random.Random(seed)
    tensors = [T("x", (16,))]
    found: list[O] = []
    for _ in range(400):
        reads = sorted({max(0, len(tensors) - 1 - rng.choice((0, 0, 1, 2, 5, 9, 20))) for _ in range(2)})
        tensors.append(T(f"t{len(tensors)}", (16 * rng.choice((1, 2, 3, 5, 8, 13, 21)),)))
        found.append(O("EXP", reads, [len(tensors) - 1]))
    return build(Sub(tensors, found, [0], [len(tensors) - 1]))


def head(model: FileModel, offsets: Mapping[tuple[int, int], int]) -> int:
    return predict(model, {}, plan=offsets).head


@pytest.mark.parametrize(("seed", "all_or_nothing", "expected"), [(27, 512, 448), (26, 2528, 2416)])
def test_joins_are_made_where_much_is_in_use(
    seed: int, all_or_nothing: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = parse(sliced_and_joined(seed))
    found = head(model, best_offsets(model, PLAIN, {}, Run(QUICK)))
    monkeypatch.setattr(layout, "_few_joins", lambda *_: iter(()))
    before = head(model, best_offsets(model, PLAIN, {}, Run(QUICK)))
    assert (before, found) == (all_or_nothing, expected)


def test_what_is_shown_whole_may_lie_in_what_it_is_joined_to() -> None:
    """Its address is then no multiple of the alignment."""
    tensors = [T(name, (1, 3)) for name in "xabcd"] + [T("e", (2, 3)), T("f", (2, 3))]
    tensors += [T("begin", (2,), "INT32", int32s(0, 0)), T("size", (2,), "INT32", int32s(1, 3))]
    ops = [O("EXP", [0], [1]), O("SLICE", [1, 7, 8], [2]), O("EXP", [0], [3]), O("SLICE", [3, 7, 8], [4])]
    ops += [O("CONCATENATION", [2, 4], [5], options("ConcatenationOptions", axis=0)), O("EXP", [5], [6])]
    net = Sub(tensors, ops, [0], [6])
    model = parse(build(net))
    offsets = best_offsets(model, PLAIN, {}, Run(QUICK))
    assert offsets[0, 3] - offsets[0, 5] == 12
    written = build(net, metadata=[(OFFLINE_PLAN, encode_plan(model, offsets))])
    assert check_plan(written, PLAIN, {}) == head(model, offsets)


def test_addresses_are_searched_longer_where_a_short_search_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    models = [parse(crowded(seed)) for seed in range(12)]
    found = [head(model, best_offsets(model, BARE, {}, Run(QUICK))) for model in models]
    monkeypatch.setattr(layout, "_MOST_LONGER", 0)
    shortly = [head(model, best_offsets(model, BARE, {}, Run(QUICK))) for model in models]
    less = [before - after for before, after in zip(shortly, found, strict=True)]
    assert min(less) == 0
    assert sum(one > 0 for one in less) >= 3


def test_what_planning_takes_is_counted_and_no_limit_changes_a_plan() -> None:
    models = [parse(crowded(seed)) for seed in range(3)]
    freely, over = Run(Limits(None)), Run(Limits(0.0, effort=0.0), stop=lambda: True)
    for model in models:
        before = freely.meter.done
        assert best_offsets(model, BARE, {}, freely) == best_offsets(model, BARE, {}, over)
        assert freely.meter.done - before > 400 * MachinePace.BLOCK_SECONDS
    assert over.meter.done == freely.meter.done


def test_planning_ends_by_its_own_work(monkeypatch: pytest.MonkeyPatch) -> None:
    model = parse(crowded(5))
    run = Run(Limits(None))
    found = head(model, best_offsets(model, PLAIN, {}, run))
    monkeypatch.setattr(layout, "_LIMITS", Limits(None, rounds=0, effort=0.001))
    shortly = Run(Limits(None))
    assert found < head(model, best_offsets(model, PLAIN, {}, shortly)) <= predict(model, {}, own=True).head
    assert shortly.meter.done < run.meter.done


@pytest.mark.parametrize("seed", range(100, 112))
def test_what_shares_bytes_in_part_is_sound_and_no_worse(seed: int) -> None:
    data = sliced_and_joined(seed)
    model = parse(data)
    offsets = best_offsets(model, PLAIN, {}, Run(QUICK))
    written = sliced_and_joined(seed, metadata=[(OFFLINE_PLAN, encode_plan(model, offsets))])
    assert (
        check_plan(written, PLAIN, {}) == head(model, offsets) <= head(model, best_offsets(model, BARE, {}, Run(QUICK)))
    )
