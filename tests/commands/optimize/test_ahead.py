"""Models made ahead in other processes: faster, and nothing else is found."""

from __future__ import annotations

import math
import multiprocessing
import os
import threading
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any

import pytest

import memsched
from memsched.commands.optimize import ahead, looks
from memsched.commands.optimize.ahead import ModelsAhead
from memsched.commands.optimize.place import Request, place, prepare
from memsched.commands.optimize.rewrite import RewriteBase
from memsched.commands.optimize.tile import TileRewrite
from memsched.formats.files import load_module
from memsched.formats.module import LoadOptions
from memsched.search.limits import Limits
from memsched.search.run import Run
from memsched.search.workers import worker_pool
from memsched.targets.load import load_target
from tests.commands.optimize.test_choose import convolutions
from tests.commands.optimize.test_effort import without_seconds
from tests.formats.tflite_builder import MODELS

MOBILENET = (MODELS / "mobilenetv2_035_96_int8.tflite").read_bytes()
PERSONS = (MODELS / "person_detect.tflite").read_bytes()


@pytest.fixture(autouse=True)
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was taken from other processes, with many looks at little work, all of which are worth processes."""
    monkeypatch.setattr(ahead, "_WORTH_SECONDS", 0.0)
    monkeypatch.setattr(looks, "_FIRST", 0.05)
    monkeypatch.setattr(looks, "_LOOK_SHARE", 1.0)
    taken: list[str] = []
    result = ModelsAhead._result

    def counted(self: ModelsAhead[Any], kind: Any, *arguments: Any) -> Any:
        found = result(self, kind, *arguments)
        if found is not None:
            taken.append(kind)
        return found

    monkeypatch.setattr(ModelsAhead, "_result", counted)
    return taken


def found(data: bytes, workers: int, **options: Any) -> tuple[bytes, Any]:
    """The model with layers in pieces, and its report."""
    done = memsched.optimize(data, verify=False, level=2, max_extra_macs=15.0, workers=workers, **options)
    return done.model, without_seconds(done.report.data)


@pytest.mark.parametrize(
    ("data", "options"),
    [
        (MOBILENET, {"effort": 0.2}),
        (PERSONS, {"effort": 0.5, "target": "tflm", "budget": "45KB"}),
        (convolutions(), {"effort": 0.2}),
    ],
    ids=["mobilenet", "persons, budget", "onnx"],
)
def test_as_many_workers_as_there_are_find_the_same(made: list[str], data: bytes, options: dict[str, Any]) -> None:
    alone = found(data, 1, **options)
    assert not made
    assert found(data, 2, **options) == alone
    assert "at most" in made
    if "budget" not in options:
        assert found(data, 4, **options) == alone
        assert made.count("model") > 1


def test_and_so_they_do_without_the_core(monkeypatch: pytest.MonkeyPatch, made: list[str]) -> None:
    compiled = found(MOBILENET, 2, effort=0.1)
    monkeypatch.setenv("MEMSCHED_CORE", "0")
    assert found(MOBILENET, 2, effort=0.1) == compiled
    assert "model" in made


def test_what_is_lost_with_its_process_is_made_here(monkeypatch: pytest.MonkeyPatch, made: list[str]) -> None:
    alone = found(MOBILENET, 1, effort=0.2)

    def broken(workers: int, *_: Any) -> ProcessPoolExecutor:
        return worker_pool(workers, os._exit, (1,))

    monkeypatch.setattr(ahead, "worker_pool", broken)
    assert found(MOBILENET, 2, effort=0.2) == alone
    assert not made


def test_an_end_asked_for_ends_all_processes_with_the_best_so_far(made: list[str]) -> None:
    def stop() -> bool:
        return len(made) > 3

    done = memsched.optimize(
        MOBILENET, verify=False, level=2, max_extra_macs=15.0, workers=2, effort=5.0, hooks=memsched.Hooks(stop=stop)
    )
    assert done.interrupted
    assert done.report.values.tiling is not None
    assert done.report.values.tiling.applied
    assert not multiprocessing.active_children()
    for thread in threading.enumerate():
        if type(thread).__name__ == "_ExecutorManagerThread":
            thread.join(60)
            assert not thread.is_alive(), "what was left of a result is waited for"


def test_a_limit_of_time_holds(made: list[str]) -> None:
    done = memsched.optimize(MOBILENET, verify=False, level=2, max_extra_macs=15.0, workers=2, time_limit=3.0)
    assert done.report.values.tiling is not None
    assert len(done.report.values.tiling.frontier) > 1
    assert not multiprocessing.active_children()


def searches() -> tuple[TileRewrite, Request]:
    """A search for pieces without extra models."""
    module = load_module(MOBILENET, "mobilenet", LoadOptions())
    prepared = prepare(module, load_target("tflm"), in_place=True)
    request = Request(Run(Limits(None, effort=0.6)))
    placed = place(module, prepared, request)
    rewrite = TileRewrite(RewriteBase(module, prepared, placed, LoadOptions()), request, 15.0, None)
    return rewrite, request


def looked_at(rewrite: TileRewrite, *, beyond: int) -> Any:
    """The next look, after which the search has gone on for so many moments."""
    points = rewrite.search(lambda _: False, None)
    for _ in range(beyond):
        if rewrite.goes_ahead():
            rewrite.go_ahead()
    return points, rewrite.looks.at, rewrite.goes_on(0.0)


@pytest.mark.parametrize("beyond", [1, 2, 50])
def test_a_search_that_went_ahead_goes_back_where_groups_cannot_be_written(beyond: int) -> None:
    one, other = searches()[0], searches()[0]
    for _ in range(2):
        expected = looked_at(one, beyond=0)
        assert looked_at(other, beyond=beyond) == expected
        assert expected[2]
    groups = expected[0][-1].way[:1]
    for rewrite in (one, other):
        rewrite.drop({groups: "for a test"}, last=False)
    goes_on = True
    while goes_on:
        expected = looked_at(one, beyond=0)
        assert looked_at(other, beyond=beyond) == expected
        goes_on = expected[2]
    assert all(groups[0] not in point.way for point in expected[0])
    assert math.isclose(one._request.run.meter.done, other._request.run.meter.done)


def test_processes_that_do_not_pay_are_not_begun(monkeypatch: pytest.MonkeyPatch, made: list[str]) -> None:
    monkeypatch.setattr(ahead, "_WORTH_SECONDS", 1e9)
    monkeypatch.setattr(ahead, "worker_pool", partial(pytest.fail, "begun"))
    found(MOBILENET, 2, effort=0.1)
    assert not made
