"""Files for LiteRT as people open it: none is written that its default interpreter takes more memory or time for."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import memsched
from memsched.cli.main import main
from memsched.formats.files import load_module
from memsched.formats.module import LoadOptions
from memsched.report.values.interpreter import InterpreterSection
from memsched.runtimes.litert import default_interpreter
from memsched.runtimes.litert.default_interpreter import DefaultInterpreter
from memsched.runtimes.process_memory import ProcessComparison, ProcessMemory
from memsched.runtimes.race import RaceRule
from memsched.search.run import Run
from tests.formats.tflite_builder import O, Sub, T, branches, build, options
from tests.formats.tflite_networks import audio

pytestmark = pytest.mark.usefixtures("timed")

SIDE, CHANNELS = 24, 64
SMALL, LARGE = (
    ProcessMemory((1_000_000,) * 3, (2_000_000,) * 3),
    ProcessMemory((2_000_000,) * 3, (3_000_000,) * 3),
)


def convolutions() -> bytes:
    """Return convolutions whose values are large: in tiles they need less, but the delegate packs weights for each."""
    rng = np.random.default_rng(0)
    tensors, ops = [T("x", (1, SIDE, SIDE, 4))], []
    channels = 4
    for layer in range(3):
        weights = 0.1 * rng.standard_normal((CHANNELS, 3, 3, channels))
        bias = rng.standard_normal(CHANNELS)
        read = len(tensors)
        tensors += [
            T(f"w{layer}", weights.shape, data=weights.astype(np.float32).tobytes()),
            T(f"b{layer}", bias.shape, data=bias.astype(np.float32).tobytes()),
        ]
        stride = 1 if layer < 2 else 4
        side = SIDE // stride
        tensors.append(T(f"y{layer}", (1, side, side, CHANNELS)))
        stated = options("Conv2DOptions", strideH=stride, strideW=stride, dilationHFactor=1, dilationWFactor=1)
        ops.append(O("CONV_2D", [read - 1, read, read + 1], [read + 2], stated))
        channels = CHANNELS
    return build(Sub(tensors, ops, [0], [len(tensors) - 1]))


def ordered() -> bytes:
    """Return branches that are best executed one after the other."""
    return build(branches(4, 4096))


def section_of(result: memsched.OptimizeResult) -> InterpreterSection | None:
    found: InterpreterSection | None = result.report.values.sections.interpreter
    return found


def optimized(data: bytes, **permitted: Any) -> memsched.OptimizeResult:
    return memsched.optimize(data, time_limit=None, effort=1.0, **permitted)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[float | None]]:
    """Return what lets the interpreter answer so, file by file; it returns the slowdowns that were permitted."""

    def said(*given: ProcessComparison | str) -> list[float | None]:
        left, asked = list(given), []

        def compare(_: object, *files: bytes, slowdown: float | None, **_others: Any) -> ProcessComparison | str:
            asked.append(slowdown)
            return left.pop(0)

        monkeypatch.setattr(DefaultInterpreter, "compare", compare)
        return asked

    return said


def test_tiles_are_written_for_interpreters_without_delegates_alone() -> None:
    data = convolutions()
    # Each tile packs its weights again, so that no candidate is worth measuring.
    assert optimized(data, level=2).model == data
    reference = optimized(data, level=2, target="litert-reference")
    needed = reference.report.values.sections.requirement
    assert reference.model != data
    assert needed.bytes < needed.given_bytes
    assert section_of(reference) is None


def test_an_order_that_costs_nothing_is_written() -> None:
    data = ordered()
    result = optimized(data)
    section = section_of(result)
    assert result.model != data
    assert section is not None
    assert section.written is not None
    assert not section.refused
    assert section.time_ratio is not None


def test_what_is_refused_gives_way_to_the_next_best(answers: Callable[..., list[float | None]]) -> None:
    more, same = ProcessComparison(SMALL, LARGE), ProcessComparison(SMALL, SMALL, 1.0, 1.1)
    data = ordered()
    asked = answers(more, same)
    kept = optimized(data)
    assert (kept.model, asked) == (data, [10.0])
    section = section_of(kept)
    assert section is not None
    assert [row.memory.private_bytes for row in section.refused] == [2_000_000]
    assert kept.report.values.verdict.bytes == section.required_bytes


def test_time_decides_as_permitted(answers: Callable[..., list[float | None]]) -> None:
    data = ordered()
    asked = answers(ProcessComparison(LARGE, SMALL, 2.0, 1.25))
    words = ("optimize", "model.tflite", "--max-slowdown=25")
    slow = optimized(data, max_slowdown=25.0, hooks=memsched.Hooks(words=words))
    assert (slow.model, asked) == (data, [25.0])
    section = section_of(slow)
    assert section is not None
    assert section.refused[0].time_ratio == 2.0
    row = slow.report.values.alternatives[0]
    assert row.command == "memsched optimize model.tflite --max-slowdown 105"
    assert (row.process_bytes, row.process_saving_bytes, row.time_ratio) == (1_000_000, 1_000_000, 2.0)
    asked = answers(ProcessComparison(SMALL, SMALL, 2.0))
    assert optimized(data, max_slowdown=None).model != data
    assert asked == [None]


@pytest.fixture
def most_operators(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], list[int]]:
    """Return what lets the interpreter refuse files of more operators than so many; it returns how many each had."""

    def refuses(most: int) -> list[int]:
        seen: list[int] = []

        def compare(_: object, given: bytes, written: bytes, **__: object) -> ProcessComparison:
            del given
            seen.append(sum(len(graph.ops) for graph in load_module(written, "written.tflite", LoadOptions()).graphs))
            more = seen[-1] > most
            return ProcessComparison(SMALL, LARGE) if more else ProcessComparison(SMALL, SMALL, 1.0, 1.1)

        monkeypatch.setattr(DefaultInterpreter, "compare", compare)
        return seen

    return refuses


def test_fewer_bands_are_written_where_more_cost_more(most_operators: Callable[[int], list[int]]) -> None:
    data, plain = audio(8_000, 8), 5
    seen = most_operators(30)
    result = optimized(data, target="litert")
    report = result.report.values
    assert result.model != data
    assert plain < seen[-1] <= 30
    assert all(2 * (after - plain) <= before - plain for before, after in itertools.pairwise(seen))
    assert report.sections.interpreter is not None
    assert len(report.sections.interpreter.refused) == len(seen) - 1 > 0
    requirement = report.sections.requirement
    assert report.sections.interpreter.refused[0].required_bytes < requirement.bytes < requirement.given_bytes
    assert report.sections.algebra is not None
    assert report.sections.algebra.applied
    assert report.sections.verification is not None
    assert report.sections.verification.outputs_equal


def test_no_other_file_is_tried_when_the_time_is_up(
    most_operators: Callable[[int], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = _tiled_branches()
    seen = most_operators(0)
    monkeypatch.setattr(Run, "remaining", lambda _: 0.0 if seen else math.inf)
    result = memsched.optimize(data, time_limit=1000.0, effort=1.0, level=2)
    assert len(seen) == 1
    assert result.model == data


def test_layers_stay_whole_where_tiles_cost_more(most_operators: Callable[[int], list[int]]) -> None:
    data = _tiled_branches()
    seen = most_operators(5)
    result = optimized(data, level=2)
    report = result.report.values
    assert result.model != data
    assert report.sections.tile is None or not report.sections.tile.applied
    assert report.verdict.extra_macs_percent == 0
    assert report.sections.interpreter is not None
    assert len(report.sections.interpreter.refused) == len(seen) - 1
    assert report.sections.interpreter.written is not None


def _tiled_branches() -> bytes:
    """Return two branches of two layers that gain by order, and more by tiles."""
    rng = np.random.default_rng(0)
    tensors, ops, narrow = [T("x", (1, 32, 32, 4))], [], []
    for branch in range(2):
        source = 0
        for layer, (stride, before, after) in enumerate(((1, 4, 64), (4, 64, 4))):
            weights = rng.standard_normal((after, 3, 3, before)).astype(np.float32)
            read, side = len(tensors), 32 // stride
            tensors += [
                T(f"w{branch}{layer}", weights.shape, data=weights.tobytes()),
                T(f"b{branch}{layer}", (after,), data=np.zeros(after, np.float32).tobytes()),
                T(f"y{branch}{layer}", (1, side, side, after)),
            ]
            stated = options("Conv2DOptions", strideH=stride, strideW=stride, dilationHFactor=1, dilationWFactor=1)
            ops.append(O("CONV_2D", [source, read, read + 1], [read + 2], stated))
            source = read + 2
        narrow.append(source)
    tensors.append(T("sum", (1, 8, 8, 4)))
    ops.append(O("ADD", narrow, [len(tensors) - 1], options("AddOptions")))

    return build(Sub(tensors, [ops[0], ops[2], ops[1], ops[3], ops[4]], [0], [len(tensors) - 1]))


def test_what_cannot_be_measured_is_said(answers: Callable[..., list[float | None]]) -> None:
    data = ordered()
    answers("ESRCH 3")
    result = optimized(data)
    assert result.model != data
    assert section_of(result) is None
    assert any("ESRCH 3" in note for note in result.report.values.verdict.notes)


def test_nothing_is_measured_unasked(answers: Callable[..., list[float | None]]) -> None:
    asked = answers()
    assert section_of(optimized(ordered(), verify=False)) is None
    assert section_of(optimized(ordered(), target="tflm")) is None
    assert not asked


def test_the_summary_names_the_interpreter_that_gains(
    tmp_path: Path, answers: Callable[..., list[float | None]], capsys: pytest.CaptureFixture[str]
) -> None:
    given, written = tmp_path / "net.tflite", tmp_path / "out.tflite"
    given.write_bytes(ordered())
    answers(ProcessComparison(SMALL, LARGE))
    assert main(["optimize", str(given), "-o", str(written), "--effort", "1"]) == 0
    said = capsys.readouterr().out
    assert written.read_bytes() == given.read_bytes()
    assert "976.6 KB, unchanged" in said
    assert "1,953.1 KB private" in said
    command = next(line for line in said.splitlines() if line.startswith("  memsched optimize"))
    assert "--target litert-reference" in command
    words = command.split()[1:]
    assert main([*words, "--force"]) == 0
    assert written.read_bytes() != given.read_bytes()


def test_differences_within_the_noise_are_none() -> None:
    noisy = ProcessMemory((1_000_000, 1_050_000, 1_100_000), (2_000_000,) * 3)
    more = ProcessMemory((1_140_000,) * 3, (2_000_000,) * 3)
    much = ProcessMemory((1_160_000,) * 3, (2_000_000,) * 3)
    assert not ProcessComparison(noisy, more).needs_more
    assert ProcessComparison(noisy, more).near
    assert ProcessComparison(noisy, much).needs_more
    higher = ProcessMemory(noisy.private, (2_100_000,) * 3)
    assert ProcessComparison(noisy, higher).needs_more
    assert not ProcessComparison(noisy, noisy).near


def test_the_default_interpreter_in_fresh_processes(tmp_path: Path) -> None:
    file, data = tmp_path / "net.tflite", convolutions()
    file.write_bytes(data)
    interpreter = DefaultInterpreter()
    seen = interpreter.compare(data, data, seed=0, slowdown=100.0)
    alone = interpreter.measure(file, seed=0)
    assert isinstance(seen, ProcessComparison)
    assert isinstance(alone, ProcessMemory)
    assert not seen.needs_more
    assert seen.time_ratio is not None
    assert 0.5 < seen.time_ratio < 2
    assert alone.private_bytes == pytest.approx(seen.given.private_bytes, rel=0.02)
    # The packed weights and the values are there.
    assert alone.private_bytes > 9 * CHANNELS * CHANNELS * 4


def test_turns_take_no_more_than_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    rules: list[RaceRule] = []

    def race_two(_: object, __: object, rule: RaceRule, **___: Any) -> str:
        rules.append(rule)
        return "not run"

    monkeypatch.setattr(default_interpreter, "race_two", race_two)
    for seconds in (0.0, math.inf):
        DefaultInterpreter().compare(ordered(), ordered(), seed=0, slowdown=10.0, seconds=seconds)
    short, usual = rules
    assert not short.goes_on([1.0, 0.5, 2.0], 0.001)
    assert usual.goes_on([1.0, 0.5, 2.0], 0.001)


def test_a_file_that_takes_longer_is_seen_to(tmp_path: Path) -> None:
    more = DefaultInterpreter().compare(ordered(), build(branches(40, 4096)), seed=0, slowdown=10.0)
    assert isinstance(more, ProcessComparison)
    assert more.needs_more or more.takes_longer
    assert isinstance(DefaultInterpreter().compare(ordered(), b"no model", seed=0, slowdown=None), str)
