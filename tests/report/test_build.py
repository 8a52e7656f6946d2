"""The report: its schema holds, and its lists say what the definitions say."""

from __future__ import annotations

import json
import random

import jsonschema
import pytest

from memsched.graph.model import Graph, Op, Tensor
from memsched.report import graphs
from memsched.report.dump import dump_report
from memsched.report.schema import json_schema
from memsched.report.text import one_line, printable
from tests.random_graphs import random_graph, random_order
from tests.report.plain import plain, planned, report_with

SCHEMA = jsonschema.Draft202012Validator(json_schema("report"))


def test_the_schema_is_a_schema_and_strict() -> None:
    jsonschema.Draft202012Validator.check_schema(json_schema("report"))
    report = plain(report_with(*a_graph()))
    SCHEMA.validate(report)
    for key in report:
        with pytest.raises(jsonschema.ValidationError):
            SCHEMA.validate({name: value for name, value in report.items() if name != key})
    with pytest.raises(jsonschema.ValidationError):
        SCHEMA.validate({**report, "surprise": 1})


def a_graph(seed: int = 3, ops: int = 10) -> tuple[Graph, tuple[int, ...]]:
    rng = random.Random(seed)
    graph = random_graph(rng, ops, layable=True)
    return graph, tuple(random_order(rng, graph))


@pytest.mark.parametrize("seed", range(60))
def test_lists_agree_with_the_definitions(seed: int) -> None:
    graph, order = a_graph(seed, 3 + seed % 14)
    facts, allocation = planned(graph, order)
    report = plain(report_with(graph, order, budget_bytes=50))
    SCHEMA.validate(report)
    names = {tensor.name: index for index, tensor in enumerate(graph.tensors)}
    merged = {choice.op: facts.checked.bytes_of[choice.input] for choice in facts.schedule.in_place}
    for step, op in zip(report["written"]["steps"], order, strict=True):
        live = [names[name] for name in step["live"]]
        total = sum(facts.checked.bytes_of[tensor] for tensor in live)
        saved = sum(facts.checked.bytes_of[c.input] for c in facts.schedule.in_place if c.op == op)
        assert step["live_bytes"] == total - saved
        assert step["footprint_bytes"] == step["live_bytes"] + step["workspace_bytes"]
        assert step["op"] == graph.ops[op].name
        read = set(graph.ops[op].inputs)
        assert step["reads_from"] == [at for at, other in enumerate(order) if read & set(graph.ops[other].outputs)]
    assert len(merged) <= len(facts.schedule.in_place)
    assert report["written"]["schedule"]["peak_bytes"] == max(
        step["footprint_bytes"] for step in report["written"]["steps"]
    )
    for buffer in report["written"]["buffers"]:
        assert 0 <= buffer["first_step"] <= buffer["last_step"] < len(order)
        assert buffer["offset_bytes"] + facts.checked.bytes_of[names[buffer["tensor"]]] <= allocation.arena
        tensor = names[buffer["tensor"]]
        makers = [step for step, op in enumerate(order) if tensor in graph.ops[op].outputs]
        assert buffer["produced_in"] == (makers[0] if makers else None)
        assert buffer["read_in"] == [step for step, op in enumerate(order) if tensor in graph.ops[op].inputs]
    with_bytes = {graph.tensors[t].name for t, size in enumerate(facts.checked.bytes_of) if size}
    assert with_bytes <= {buffer["tensor"] for buffer in report["written"]["buffers"]}
    peak_step = next(
        s for s in report["written"]["steps"] if s["footprint_bytes"] == report["written"]["schedule"]["peak_bytes"]
    )
    faults = [fault["tensor"] for fault in report["written"]["at_fault"]]
    assert sorted(faults) == sorted(peak_step["live"])
    sizes = [fault["size_bytes"] for fault in report["written"]["at_fault"]]
    assert sizes == sorted(sizes, reverse=True)
    budget = report["budget"]
    assert budget["met"] == (allocation.arena <= 50)
    assert budget["exceeded_bytes"] == max(0, allocation.arena - 50)


def test_addresses_of_tensors_live_at_once_do_not_meet() -> None:
    """What a reader of the report alone can check: only views and in-place writes share bytes."""
    for seed in range(40):
        graph, order = a_graph(seed, 12)
        report = plain(report_with(graph, order))
        spans = [
            (b["offset_bytes"], b["offset_bytes"] + b["size_bytes"], b["first_step"], b["last_step"], b["tensor"])
            for b in report["written"]["buffers"]
            if b["size_bytes"] and b["view_of"] is None and not b["consists_of"]
        ]
        replaced = {(b["tensor"], b["in_place_of"]) for b in report["written"]["buffers"] if b["in_place_of"]}
        spans += [
            (w["offset_bytes"], w["offset_bytes"] + w["size_bytes"], w["step"], w["step"], w["op"])
            for w in report["written"]["workspaces"]
        ]
        for at, (low, high, first, last, name) in enumerate(spans):
            for low2, high2, first2, last2, name2 in spans[at + 1 :]:
                together = first <= last2 and first2 <= last
                if together and low < high2 and low2 < high:
                    assert (name, name2) in replaced or (name2, name) in replaced


def test_a_concatenation_of_pieces_has_an_address_and_names_them() -> None:
    ops = (
        Op("f", "Conv", (0,), (1,)),
        Op("g", "Conv", (0,), (2,)),
        Op("c", "Concat", (1, 2), (3,), views=((3, 1), (3, 2))),
        Op("s", "Slice", (3,), (4,), views=((4, 3),), view_offsets=(3,)),
    )
    sizes = {"x": 1, "a": 2, "b": 3, "c": 5, "s": 2}
    tensors = tuple(Tensor(name, size) for name, size in sizes.items())
    graph = Graph("parts", tensors, ops, (0,), (3, 4))
    rows = {row["tensor"]: row for row in plain(report_with(graph, (0, 1, 2, 3)))["written"]["buffers"]}
    begin = rows["c"]["offset_bytes"]
    assert (rows["c"]["consists_of"], rows["c"]["view_of"]) == (["a", "b"], None)
    assert {name: rows[name]["offset_bytes"] - begin for name in "abs"} == {"a": 0, "b": 2, "s": 3}
    assert (rows["s"]["view_of"], rows["s"]["consists_of"], rows["b"]["consists_of"]) == ("c", [], [])


def test_too_many_live_names_leave_only_the_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, order = a_graph(seed=5, ops=14)
    full = plain(report_with(graph, order))
    monkeypatch.setattr(graphs, "LIVE_NAMES_LIMIT", 3)
    short = plain(report_with(graph, order))
    SCHEMA.validate(short)
    listed = [step["index"] for step in short["written"]["steps"] if step["live"] is not None]
    assert len(listed) == 1
    assert short["written"]["steps"][listed[0]] == full["written"]["steps"][listed[0]]
    assert full["written"]["steps"][listed[0]]["footprint_bytes"] == full["written"]["schedule"]["peak_bytes"]


def test_a_graph_without_steps() -> None:
    graph = Graph("g", (Tensor("x", 8),), (), (0,), (0,))
    report = plain(report_with(graph, ()))
    SCHEMA.validate(report)
    assert report["written"]["schedule"]["peak_bytes"] == 8
    assert [fault["tensor"] for fault in report["written"]["at_fault"]] == ["x"]


def test_the_reduction_is_against_the_file_order() -> None:
    graph = Graph("g", (Tensor("x", 8), Tensor("y", 24, sized=False)), (Op("a", "A", (0,), (1,)),), (0,), (1,))
    report = plain(report_with(graph, (0,)))
    assert report["written"]["schedule"]["reduction_percent"] == 50.0
    assert report["written"]["unknown_sizes"] == ["y"]
    nothing = Graph("g", (Tensor("x", 0),), (), (0,), (0,))
    assert plain(report_with(nothing, ()))["written"]["schedule"]["reduction_percent"] == 0.0


def test_the_text_is_json_with_a_line_per_entry() -> None:
    report = report_with(*a_graph())
    text = dump_report(report)
    assert json.loads(text) == plain(report)
    assert text.endswith("}\n")
    assert len(text.splitlines()) > len(report.written.steps) + len(report.written.buffers)


def test_names_that_are_no_text_still_are_json() -> None:
    graph = Graph("g", (Tensor("x\ud800\n\x1b", 8),), (), (0,), (0,))
    text = dump_report(report_with(graph, ()))
    text.encode("ascii")
    assert json.loads(text)["written"]["at_fault"][0]["tensor"] == "x\ud800\n\x1b"


def test_printable() -> None:
    assert printable("a\x1b[2Jé\n") == "a\\x1b[2Jé\\n"
    assert one_line("a\n  b\t\x07") == "a b \\x07"
