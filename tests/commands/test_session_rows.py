"""What is told of several processes of a session, some of which take less by chance."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import pytest

from memsched.commands.session_rows import GivenModel, SessionBench, SessionFile, alike, measured_sessions
from memsched.formats.module import LoadOptions
from memsched.runtimes.measure import Measured
from memsched.runtimes.onnxruntime.session_maker import SessionMaker
from memsched.runtimes.sessions import DEFAULT
from tests.measured import took


class _Maker:
    def __init__(self, sizes: Sequence[int], ratios: Sequence[float] = ()) -> None:
        self.sizes, self.ratios, self.drawn = list(sizes), list(ratios), 0

    def draw_feeds(self, _data: object, _folder: object, _options: object, file: Path, **_: object) -> None:
        file.write_bytes(b"")
        self.drawn += 1

    def measure(self, *_: object, **__: object) -> Measured:
        size = self.sizes.pop(0)
        return took(size, 0.01, requested=size // 1_000)

    def time_ratio(self, *_: object, **__: object) -> float:
        return self.ratios.pop(0)


def _bench(maker: _Maker, folder: Path) -> SessionBench:
    given = folder / "net.onnx"
    given.write_bytes(b"given")
    return SessionBench(cast(SessionMaker, maker), GivenModel(b"given", str(given)), LoadOptions(), 0)


@pytest.mark.parametrize(
    ("told", "process"),
    [(statistics.median_high, 34_000_000), (min, 26_000_000)],
)
def test_one_process_that_takes_less_by_chance_is_not_what_is_told(
    tmp_path: Path, told: Callable[[Sequence[int]], int], process: int
) -> None:
    maker = _Maker([26_000_000, 34_000_000, 35_000_000], [1.01])
    (row,) = measured_sessions(
        _bench(maker, tmp_path),
        b"written",
        [SessionFile("written", DEFAULT)],
        again=lambda _, seen: {0} if len(seen[0]) < 3 else (),
        told=told,
    )
    assert row.process_bytes == process
    assert row.measured_bytes == 35_000
    assert row.cpu_ratio == 1.01


@pytest.mark.parametrize(
    "sizes", [(34_000_000, 34_300_000), (26_000_000, 34_000_000, 34_500_000), (34_000_000, 36_000_000, 35_000_000)]
)
def test_processes_that_agree_end_it(tmp_path: Path, sizes: Sequence[int]) -> None:
    maker = _Maker(sizes, [1.0])
    (row,) = measured_sessions(
        _bench(maker, tmp_path),
        b"written",
        [SessionFile("written", DEFAULT)],
        again=lambda _, seen: () if alike(seen[0]) else {0},
    )
    assert not maker.sizes
    assert row.process_bytes == sorted(sizes)[len(sizes) // 2]


def test_only_sessions_that_are_asked_for_run_once_more(tmp_path: Path) -> None:
    maker = _Maker([30_000_000, 20_000_000, 40_000_000, 36_000_000], [1.0])
    rows = measured_sessions(
        _bench(maker, tmp_path),
        b"written",
        [SessionFile("given", DEFAULT), SessionFile("written", DEFAULT)],
        again=lambda _, seen: {1} if len(seen[1]) < 3 else (),
    )
    assert not maker.sizes
    assert [row.process_bytes for row in rows] == [30_000_000, 36_000_000]


def test_a_time_in_doubt_is_measured_again_and_the_middle_one_counts(tmp_path: Path) -> None:
    maker = _Maker([30_000_000], [1.4, 1.0, 1.1])
    (row,) = measured_sessions(
        _bench(maker, tmp_path),
        b"written",
        [SessionFile("written", DEFAULT)],
        doubted=lambda rows: {0} if (rows[0].cpu_ratio or 0.0) > 1.1 else set(),
    )
    assert not maker.ratios
    assert row.cpu_ratio == 1.1


def test_no_process_is_measured_twice(tmp_path: Path) -> None:
    maker = _Maker([30_000_000, 20_000_000, 10_000_000], [1.0])
    bench = _bench(maker, tmp_path)
    given, written = SessionFile("given", DEFAULT), SessionFile("written", DEFAULT)
    first = measured_sessions(bench, b"written", [given, written], timed=False)
    assert [row.cpu_ratio for row in first] == [None, None]
    # The file that was written is now another one: only that is measured.
    rows = measured_sessions(bench, b"other", [given, written])
    assert [row.process_bytes for row in rows] == [30_000_000, 10_000_000]
    assert rows[1].cpu_ratio == 1.0
    assert maker.drawn == 1
