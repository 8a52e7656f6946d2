"""What is told of several processes of a session, some of which take less by chance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from memsched.commands.session_rows import GivenModel, SessionFile, alike, measured_sessions
from memsched.formats.module import LoadOptions
from memsched.runtimes.measure import Measured
from memsched.runtimes.onnxruntime.session_maker import SessionMaker
from memsched.runtimes.sessions import DEFAULT
from tests.measured import took


class _Maker:
    def __init__(self, sizes: Sequence[int], ratios: Sequence[float]) -> None:
        self.left = list(zip(sizes, ratios, strict=True))

    def draw_feeds(self, *_: object, **__: object) -> None:
        """Draw nothing."""

    def measure(self, *_: object, **__: object) -> Measured:
        size, ratio = self.left.pop(0)
        return took(size, 0.01, ratio, requested=size // 1_000)


@pytest.mark.parametrize(
    ("more", "process"),
    [({}, 34_000_000), ({"told": min}, 26_000_000)],
)
def test_one_process_that_takes_less_by_chance_is_not_what_is_told(
    tmp_path: Path, more: dict[str, Callable[[Sequence[int]], int]], process: int
) -> None:
    maker = cast(Any, _Maker([26_000_000, 34_000_000, 35_000_000], [0.85, 1.02, 1.01]))
    files = [SessionFile("written", DEFAULT)]
    (row,) = measured_sessions(
        cast(SessionMaker, maker),
        GivenModel(b"", str(tmp_path / "net.onnx")),
        b"",
        LoadOptions(),
        files,
        seed=0,
        again=lambda _, seen: {0} if len(seen[0]) < 3 else (),
        **more,
    )
    assert row.process_bytes == process
    assert row.measured_bytes == 35_000
    assert row.cpu_ratio == 1.01


@pytest.mark.parametrize(
    ("sizes", "ratios", "processes"),
    [
        ([34_000_000, 34_300_000], [1.0, 1.01], 2),
        ([26_000_000, 34_000_000, 34_500_000], [1.0, 1.0, 1.0], 3),
        ([34_000_000, 34_000_000, 34_000_000], [0.97, 1.05, 1.04], 3),
    ],
)
def test_processes_that_agree_end_it(
    tmp_path: Path, sizes: Sequence[int], ratios: Sequence[float], processes: int
) -> None:
    maker = _Maker(sizes, ratios)
    (row,) = measured_sessions(
        cast(SessionMaker, maker),
        GivenModel(b"", str(tmp_path / "net.onnx")),
        b"",
        LoadOptions(),
        [SessionFile("written", DEFAULT)],
        seed=0,
        again=lambda _, seen: () if alike(seen[0]) else {0},
    )
    assert not maker.left
    assert len(sizes) == processes
    assert row.process_bytes == sorted(sizes)[processes // 2]


def test_only_sessions_that_are_asked_for_run_once_more(tmp_path: Path) -> None:
    maker = _Maker([30_000_000, 20_000_000, 40_000_000, 36_000_000], [1.0] * 4)
    rows = measured_sessions(
        cast(SessionMaker, maker),
        GivenModel(b"", str(tmp_path / "net.onnx")),
        b"",
        LoadOptions(),
        [SessionFile("given", DEFAULT), SessionFile("written", DEFAULT)],
        seed=0,
        again=lambda _, seen: {1} if len(seen[1]) < 3 else (),
    )
    assert not maker.left
    assert [row.process_bytes for row in rows] == [30_000_000, 36_000_000]
