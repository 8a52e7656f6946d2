"""``--allow branch``: a session without options takes less of the process, or the file has no branch."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, cast

import msgspec
import numpy as np
import onnxruntime
import pytest

import memsched
from memsched.commands import session_rows
from memsched.commands.optimize import branch
from memsched.commands.optimize.judged_sessions import session_bench
from memsched.commands.results import OptimizeResult
from memsched.commands.session_rows import measured_sessions
from memsched.commands.verify import verify_written
from memsched.formats.module import LoadOptions
from memsched.formats.onnx.capabilities import OnnxWeightPlacement
from memsched.report.values.sessions import SessionRow
from memsched.runtimes.sessions import DEFAULT
from memsched.runtimes.values import Verification
from tests.failures import fails
from tests.formats.onnx.test_patternless import LENGTH, WIDTH, layers
from tests.small_models import branches

TFLITE = Path(__file__).parents[3] / "models" / "hello_world_int8.tflite"


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("branch") / "layers.onnx"
    path.write_bytes(layers(2, LENGTH))
    return path


def optimized(path: Path) -> OptimizeResult:
    return memsched.optimize(path, allow=("reorder", "inplace", "branch"), max_slowdown=None, effort=0.1)


def rows_of(result: OptimizeResult) -> tuple[SessionRow, SessionRow]:
    first, second = result.report.values.sections.sessions
    assert (first.file, second.file) == ("given", "written")
    return first, second


def test_the_process_takes_less_with_the_same_bits(given: Path) -> None:
    result = optimized(given)
    first, second = rows_of(result)
    block = 3 * 4 * LENGTH * WIDTH
    assert first.process_bytes is not None
    assert second.process_bytes is not None
    assert second.process_bytes < first.process_bytes - block // 2
    values = result.report.values
    assert values.guarantee is not None
    assert values.guarantee.kind == "default"
    assert values.sections.verification is not None
    assert values.sections.verification.outputs_equal is True
    assert any(" If" in note for note in values.verdict.notes)
    feeds = {"x": np.random.default_rng(1).normal(size=(1, LENGTH, WIDTH)).astype(np.float32)}
    outputs = [
        onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, feeds)[0]
        for model in (given.read_bytes(), result.model)
    ]
    np.testing.assert_array_equal(*outputs)
    assert memsched.load(result.model).graph.tensors[-1].sized


def test_what_does_not_compute_the_same_is_not_written(given: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = OnnxWeightPlacement.in_branches

    def wrong(self: OnnxWeightPlacement, module: memsched.Module, written: bytes) -> tuple[bytes, ...]:
        return tuple(data.replace(b"Softmax", b"Hardmax") for data in right(self, module, written))

    monkeypatch.setattr(OnnxWeightPlacement, "in_branches", wrong)
    result = optimized(given)
    assert result.model == given.read_bytes()
    assert any("no branch" in note for note in result.report.values.verdict.notes)


def test_no_branch_changes_bits_in_sessions_without_options(given: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = verify_written

    def apart(*asked: Any, **more: Any) -> tuple[Verification | None, tuple[str, ...]]:
        # In sessions that keep the order, outputs are equal all the same.
        seen, notes = known(*asked, **more)
        return None if seen is None else dataclasses.replace(seen, default_apart=7e-5, outputs_equal=True), notes

    monkeypatch.setattr(branch, "verify_written", apart)
    assert optimized(given).model == given.read_bytes()


def test_a_file_written_for_its_process_is_reported_with_it(given: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = verify_written

    def more(*asked: Any, **options: Any) -> tuple[Verification | None, tuple[str, ...]]:
        seen, notes = known(*asked, **options)
        return None if seen is None else dataclasses.replace(seen, default_peak_after_bytes=1 << 30), notes

    monkeypatch.setattr(branch, "verify_written", more)
    result = optimized(given)
    assert result.model != given.read_bytes()
    verdict = result.report.values.verdict
    taken = {row.file: row.process_bytes for row in result.report.values.sections.sessions}
    assert verdict.unit == "process"
    assert (verdict.original_bytes, verdict.bytes) == (taken["given"], taken["written"])
    assert verdict.bytes < verdict.original_bytes


@pytest.mark.parametrize(
    ("plain", "patternless", "listed", "named"),
    [(45, 45, 30, True), (45, 30, 30, True), (110, 110, 100, False), (5, 5, 3, False)],
)
def test_a_branch_is_named_where_sessions_without_options_take_much_more(
    plain: int, patternless: int, listed: int, named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told(*asked: Any, **kwargs: Any) -> tuple[SessionRow, ...]:
        # No file is written that sessions without options take more for than for the one given.
        sizes = (120 << 20, plain << 20, patternless << 20, listed << 20)
        rows = zip(measured_sessions(*asked, **kwargs | {"again": None}), sizes, strict=True)
        return tuple(msgspec.structs.replace(row, process_bytes=size, cpu_ratio=1.0) for row, size in rows)

    monkeypatch.setattr("memsched.commands.optimize.judged_sessions.measured_sessions", told)
    path = tmp_path / "branches.onnx"
    path.write_bytes(branches(4, 1 << 16))
    result = memsched.optimize(path, effort=0.1, allow=("reorder", "inplace"))
    assert result.model != path.read_bytes()
    assert any("--allow reorder,inplace,branch" in note for note in result.report.values.verdict.notes) == named


@pytest.mark.parametrize(
    ("taken", "branched", "chosen"), [(143, True, "pieces"), (170, True, "whole"), (143, False, "whole")]
)
def test_what_sessions_took_more_for_is_tried_in_a_branch_too(
    taken: int, branched: bool, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def file(name: str, size: int, model: bytes, refused: object = None) -> SimpleNamespace:
        rows = (SimpleNamespace(process_bytes=size),)
        return SimpleNamespace(
            name=name, sessions=rows, written=SimpleNamespace(model=model), refused=refused, seconds=1.0
        )

    pieces = file("pieces", 315, b"pieces")
    found = file("whole", 292, b"whole", pieces)
    made = {"pieces": file("pieces", taken, b"If" if branched else b"pieces"), "whole": file("whole", 165, b"If")}
    monkeypatch.setattr(branch, "_in_branch", lambda one, *_: made[one.name])
    asked = SimpleNamespace(has_time=lambda _: True)
    assert branch._best(cast(Any, found), cast(Any, asked), 10.0) is cast(Any, made[chosen])
    late = SimpleNamespace(has_time=lambda _: False)
    assert branch._best(cast(Any, found), cast(Any, late), 10.0) is cast(Any, made["whole"])


def test_small_models_stay_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "small.onnx"
    path.write_bytes(branches())
    notes = optimized(path).report.values.verdict.notes
    assert any("branch" in note for note in notes)


def test_what_is_for_other_sessions_is_refused(given: Path) -> None:
    with fails("other-format", "--allow branch"):
        memsched.optimize(TFLITE, allow=("reorder", "inplace", "branch"))
    with fails("option-conflict", "--allow branch", "--order-guarantee session"):
        memsched.optimize(given, allow=("reorder", "inplace", "branch"), order_guarantee="session")
    with fails("option-conflict", "--allow branch", "--no-verify"):
        memsched.optimize(given, allow=("reorder", "inplace", "branch"), verify=False)
    with fails("option-conflict", "--session", "branch"):
        memsched.optimize(given, allow=("reorder", "inplace", "branch"), session="default")
    with fails("option-conflict", "--dim", "--allow branch"):
        memsched.optimize(given, allow=("reorder", "inplace", "branch"), dims={"N": (1, 8)})


def test_files_without_sessions_have_no_branch() -> None:
    """LiteRT measures a process, too, which no session takes."""
    found = SimpleNamespace(sessions=(), ended=False, seconds=1.0)
    asked = SimpleNamespace(module=memsched.load(TFLITE), command=SimpleNamespace(free=True), guarded=True)
    assert branch._unasked(cast(Any, found), cast(Any, None), cast(Any, asked)) is cast(Any, found)


def test_a_process_that_took_less_by_chance_decides_nothing(given: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The original's process takes 268 or 242 MB, and so does a file of hrnet_w32 that saves nothing."""
    taken = iter((50,))

    def told(_: session_rows.SessionBench, __: object, one: session_rows.SessionFile, ___: int) -> SessionRow:
        return row_of(one.file, next(taken, 100) if one.file == "written" else 100)

    monkeypatch.setattr(session_rows.SessionBench, "process", told)
    assert optimized(given).model == given.read_bytes()


def row_of(file: Literal["given", "written"], megabytes: int, time: float = 1.0) -> SessionRow:
    row = session_rows.session_row(file, DEFAULT)
    return msgspec.structs.replace(row, process_bytes=megabytes << 20, measured_bytes=1, cpu_ratio=time)


@pytest.mark.parametrize(
    ("taken", "chosen"),
    [
        ({b"a": (50, 100, 100), b"b": (60, 60)}, b"b"),
        ({b"a": (50, 51), b"b": (60, 60)}, b"a"),
        ({b"a": (50, 90, 91), b"b": (95, 60)}, None),
        ({b"a": (50,), b"b": (60, 95, 95)}, None),
    ],
)
def test_the_least_file_is_one_that_another_process_confirms(
    taken: dict[bytes, tuple[int, ...]], chosen: bytes | None, given: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def process(
        _: session_rows.SessionBench, files: session_rows.SessionFiles, one: session_rows.SessionFile, number: int
    ) -> SessionRow | None:
        sizes = taken[files.path(one).read_bytes()]
        return row_of("written", sizes[number]) if number < len(sizes) else None

    monkeypatch.setattr(session_rows.SessionBench, "process", process)
    monkeypatch.setattr(session_rows.SessionBench, "time_ratio", lambda *_: 1.0)
    monkeypatch.setattr(branch, "_verified", lambda *_: _RIGHT)
    bench = session_bench(memsched.load(given), given.read_bytes(), LoadOptions(), 0)
    monkeypatch.setattr(branch, "bench_of", lambda _: bench)
    found = branch._least(tuple(taken), 90 << 20, 1.1, cast(Any, None), cast(Any, None))
    assert (None if found is None else found[0]) == chosen
    if chosen is not None and found is not None:
        assert found[1].process_bytes == max(taken[chosen]) << 20
        assert found[1].cpu_ratio == 1.0


_RIGHT = cast(Any, object())
