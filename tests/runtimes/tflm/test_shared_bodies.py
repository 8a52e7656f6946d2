"""An IF for each tile, all with one body: for firmware without DYNAMIC_UPDATE_SLICE."""

from __future__ import annotations

import itertools
from pathlib import Path

import memsched
from memsched.formats.tflite.model import FileModel, parse
from memsched.runtimes.tflm.lifetimes import lifetimes
from memsched.runtimes.tflm.plan import given_plan
from tests.formats.tflite_builder import MODELS
from tests.runtimes.tflm.interpreter import needs_tflm

TILING = Path(__file__).parents[2] / "rewrites" / "tile"


def _check_places(model: FileModel) -> None:
    """Check that the padded input is not copied for a tile."""
    plan, count = given_plan(model), itertools.accumulate((len(one.tensors) for one in model.subgraphs), initial=0)
    assert plan is not None
    first = list(count)
    for operator in model.subgraphs[0].operators:
        if operator.type == "IF":
            body = operator.bodies[0]
            assert plan[operator.inputs[2]] == plan[first[body] + model.subgraphs[body].inputs[1]] >= 0


@needs_tflm
def test_the_arena_is_smaller_than_with_pieces_and_the_one_that_is_told() -> None:
    model = MODELS / "person_detect.tflite"
    found = {}
    for name in ("shared_bodies", "without_loops"):
        result = memsched.optimize(model, level=2, target=str(TILING / f"{name}.toml"), effort=3)
        told = result.report.data["sections"]["verification"]
        assert told["outputs_equal"]
        assert told["arena_after"]["as_predicted"]
        found[name] = told["arena_after"]["measured_head_bytes"] + told["arena_after"]["measured_tail_bytes"]
        written = parse(result.model)
        operators = [operator for graph in written.subgraphs for operator in graph.operators]
        assert not {"WHILE", "DYNAMIC_UPDATE_SLICE"} & {operator.type for operator in operators}
        if name == "shared_bodies":
            _check_places(written)
            # What the plan lays over each other is counted once, but for a tile that is counted while it is made.
            peak, head = (
                result.report.data["written"]["schedule"]["peak_bytes"],
                told["arena_after"]["measured_head_bytes"],
            )
            assert head <= peak + 16 <= 1.05 * head
            # Bodies pad what a tile takes: there is no padded copy of the image, or of another whole input.
            assert not any(step["op"].endswith("#padded") for step in result.report.data["written"]["steps"])
            groups = result.report.data["sections"]["tile"]["groups"]
            assert {group["form"] for group in groups} == {"shared"}
            # One body for each group, which both cases of all its IF name.
            assert len(written.subgraphs) == 1 + len(groups)
            assert all(len(set(one.bodies)) == 1 for one in operators if one.type == "IF")
    assert found["shared_bodies"] < found["without_loops"]


def test_one_body_for_both_cases_runs_once() -> None:
    result = memsched.optimize(
        MODELS / "person_detect.tflite", level=2, target=str(TILING / "shared_bodies.toml"), effort=1, verify=False
    )
    written = parse(result.model)
    visits = lifetimes(written).visits
    tiles = [number for number, one in enumerate(written.subgraphs[0].operators) if one.type == "IF"]
    assert tiles
    assert all(len(visits[0, number][0]) == 1 for number in tiles)
