"""Stages on real and random models: figures recomputed from the files, which are run in the real runtime."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from memsched.commands.failures import DEFECTS
from memsched.commands.options import RelayOptions
from memsched.features.relay.relay import RelayModel, relay
from memsched.formats.files import load_module
from memsched.formats.module import LoadOptions
from memsched.formats.tflite.model import parse
from memsched.runtimes.arena_facts import round_up
from memsched.runtimes.runtime import RelayRun
from memsched.runtimes.special import WORDS
from memsched.runtimes.tflm.persistent import estimates
from memsched.runtimes.tflm.plan import kernel_scratch, predict
from memsched.runtimes.tflm.relay import RelayRules
from tests.failures import fails
from tests.features.relay.nets import random_net
from tests.formats.tflite_builder import O, Sub, T, build, options
from tests.runtimes.test_special import tflite_net
from tests.runtimes.tflm.interpreter import needs_tflm

MODELS = Path(__file__).resolve().parents[3] / "models"
NO_RUN = RelayOptions(verify=False)


def whole_arena(data: bytes) -> int:
    model = parse(data)
    needs = estimates(model)[32]
    return needs.persistent + max(predict(model, kernel_scratch(model)).head, needs.planning)


def check(found: RelayModel) -> None:
    """Check by the files alone that all stages fit into the block, whatever is handed over."""
    alive: dict[str, int] = {}
    module = found.module
    sizes = {tensor.name: tensor.size for tensor in module.graphs[0].tensors}
    names = [tensor.name for tensor in module.graphs[0].tensors]
    results = {names[tensor] for tensor in module.graphs[0].outputs}
    given = {names[tensor] for tensor in module.graphs[0].inputs}
    for number, stage in enumerate(found.stages):
        later = {name for other in found.stages[number + 1 :] for name in other.segment.inputs} | results
        if number == 0:
            alive = {name: sizes[name] for name in given & later}
            alive |= {name: sizes[name] for name in given - set(stage.segment.inputs) if name in later}
        arena = whole_arena(stage.data)
        assert arena == stage.needs.total(32)
        assert sum(map(round_up, alive.values())) <= found.layout.kept[number]
        assert round_up(arena) + found.layout.kept[number] <= found.needed
        alive |= {name: sizes[name] for name in stage.segment.outputs}
        alive = {name: size for name, size in alive.items() if name in later}
    assert results <= set(alive) | {name for stage in found.stages for name in stage.segment.outputs}


@pytest.mark.parametrize(
    ("name", "block", "stages"),
    [
        ("person_detect", 56_608, 3),
        ("micro_speech_quantized", 6_704, 2),
        ("hello_world_int8", 688, 3),
    ],
)
@needs_tflm
def test_real_models_in_stages_compute_the_same_in_less(name: str, block: int, stages: int) -> None:
    found = relay(str(MODELS / f"{name}.tflite"), RelayOptions())
    check(found)
    assert found.needed == block < found.given
    assert len(found.stages) == stages
    assert found.finished
    assert found.verification is not None
    assert found.verification.verification.outputs_equal
    assert found.verification.verification.outputs_vary
    assert found.verification.twice_equal
    assert [head for head, _ in found.verification.arenas] == [stage.needs.head for stage in found.stages]
    assert all(as_predicted for _, as_predicted in found.verification.arenas)


def test_no_cuts_of_a_chain_need_less() -> None:
    source = (MODELS / "micro_speech_quantized.tflite").read_bytes()
    found = relay(source, NO_RUN)
    count = len(found.module.graphs[0].ops)
    best = min(
        max(relay_cost(found, stage) for stage in itertools.pairwise((0, *places, count)))
        for number in range(count)
        for places in itertools.combinations(range(1, count), number)
    )
    assert found.needed == best == found.estimate


def relay_cost(found: RelayModel, stage: tuple[int, int]) -> int:
    from memsched.formats.capabilities import Stages
    from memsched.formats.known import capability
    from memsched.formats.segment import Segment

    names = [tensor.name for tensor in found.module.graphs[0].tensors]
    segment = Segment(
        tuple(range(*stage)),
        tuple(names[tensor] for tensor in found.cuts.inputs(*stage)),
        tuple(names[tensor] for tensor in found.cuts.outputs(*stage)),
    )
    data = capability(found.module, Stages).cutter(found.module).cut(segment, {})
    outside = sum(round_up(found.module.graphs[0].tensors[tensor].size) for tensor in found.cuts.kept(*stage))
    return round_up(whole_arena(data)) + outside


@needs_tflm
@pytest.mark.parametrize("seed", range(12))
def test_random_networks_with_skips_compute_the_same(seed: int) -> None:
    data = random_net(seed)
    found = relay(data, RelayOptions(seed=seed))
    check(found)
    assert found.needed <= round_up(whole_arena(data))
    assert found.verification is not None
    assert found.verification.verification.outputs_equal
    assert found.verification.twice_equal
    assert all(as_predicted for _, as_predicted in found.verification.arenas)


@pytest.mark.parametrize("stages", [1, 2, 3])
def test_there_are_as_many_stages_as_were_permitted_at_most(stages: int) -> None:
    source = str(MODELS / "person_detect.tflite")
    found = relay(source, RelayOptions(stages=stages, verify=False))
    check(found)
    assert len(found.stages) <= stages
    fewer = relay(source, RelayOptions(stages=stages + 1, verify=False))
    assert fewer.needed <= found.needed


def test_a_budget_is_met_with_fewer_stages() -> None:
    source = str(MODELS / "person_detect.tflite")
    found = relay(source, RelayOptions(budget="64KB", verify=False))
    check(found)
    assert found.needed <= 65_536
    assert len(found.stages) == 2


def test_without_time_the_model_stays_whole() -> None:
    found = relay(str(MODELS / "person_detect.tflite"), RelayOptions(time_limit=0, verify=False))
    check(found)
    assert found.needed <= round_up(found.given)


def test_the_same_work_gives_the_same_files() -> None:
    wanted = RelayOptions(effort=1, verify=False)
    first, second = (relay(random_net(5), wanted) for _ in range(2))
    assert [stage.data for stage in first.stages] == [stage.data for stage in second.stages]


def with_state() -> bytes:
    tensors = [T("x", (1, 4)), T("state", (1, 4), variable=True), T("y", (1, 4))]
    return build(Sub(tensors, [O("ADD", [0, 1], [2], options("AddOptions"))], [0], [2]))


def handed_out_twice() -> bytes:
    tensors = [T("x", (1, 4)), T("y", (1, 4))]
    return build(Sub(tensors, [O("ADD", [0, 0], [1], options("AddOptions"))], [0], [1, 1]))


def unknown() -> bytes:
    return build(Sub([T("x", (1, 4)), T("y", (1, 4))], [O("CUSTOM:mine", [0], [1])], [0], [1]))


def refused() -> bytes:
    tensors = [T("x", (1, 4), "UINT8", scales=(1.0,)), T("y", (1, 4), "UINT8", scales=(1.0,))]
    return build(Sub(tensors, [O("CAST", [0], [1])], [0], [1]))


@pytest.mark.parametrize(
    ("make", "about"),
    [(with_state, "'state'"), (handed_out_twice, "'y'"), (unknown, "CUSTOM:mine"), (refused, "CAST")],
)
def test_what_cannot_run_in_stages_is_refused(make: object, about: str) -> None:
    assert callable(make)
    with fails("no-stages", about):
        relay(make(), NO_RUN)


def test_a_target_without_an_arena_of_its_own_is_refused() -> None:
    with fails("no-block", "'litert'", "--target tflm"):
        relay(str(MODELS / "person_detect.tflite"), RelayOptions(target="litert", verify=False))


def test_stages_are_models_of_their_own() -> None:
    found = relay(str(MODELS / "person_detect.tflite"), NO_RUN)
    for stage in found.stages:
        graph = load_module(stage.data, "stage.tflite", LoadOptions()).graphs[0]
        assert tuple(graph.tensors[tensor].name for tensor in graph.inputs) == stage.segment.inputs
        assert tuple(graph.tensors[tensor].name for tensor in graph.outputs) == stage.segment.outputs


@needs_tflm
def test_stages_with_layers_in_loops_take_a_third_and_compute_the_same() -> None:
    """Of the arena of the file as given; the search may do little here, and finds less than it could."""
    allowed = ("reorder", "inplace", "tile")
    wanted = RelayOptions(target="tflm-reference", allow=allowed, max_extra_macs=100, effort=20, stages=3)
    found = relay(str(MODELS / "person_detect.tflite"), wanted)
    check(found)
    assert found.needed < 30_000 < found.given / 2.5
    assert any(stage.extra_macs for stage in found.stages)
    assert found.verification is not None
    assert found.verification.verification.outputs_equal
    assert found.verification.twice_equal
    assert all(as_predicted for _, as_predicted in found.verification.arenas)


@needs_tflm
@pytest.mark.parametrize("wrong_ones", [1, 2])
def test_stages_that_make_something_else_of_special_values_make_way(
    wrong_ones: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The larger of a value and the least finite one is no infinity, which multiplying by 1 leaves."""
    monkeypatch.delenv(DEFECTS)
    tried = itertools.count()
    execute = RelayRules.execute

    def with_others(self: RelayRules, module: Any, whole: bytes, segments: Any, files: Any, **more: Any) -> RelayRun:
        wrong = next(tried) < wrong_ones
        return execute(self, module, whole, segments, [finite] if wrong else files, **more)

    given, finite = tflite_net("MUL", "MulOptions", 1.0), tflite_net("MAXIMUM", "MaximumMinimumOptions", -3.4e38)
    monkeypatch.setattr(RelayRules, "execute", with_others)
    how = RelayOptions(allow=("reorder", "inplace", "tile"), effort=1.0)
    if wrong_ones == 2:
        with fails("outputs-differ", "NaN"):
            relay(given, how)
        return
    found = relay(given, how)
    assert found.verification is not None
    assert found.verification.verification.special_values == tuple(WORDS.values())
    assert any("NaN" in note and "rewritten" in note for note in found.notes)
