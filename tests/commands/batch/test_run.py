"""Many models: which, under which names, what becomes of each, and that nothing depends on how many run at a time."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import jsonschema
import pytest

import memsched
from memsched.commands.batch.inputs import BatchModel, find_models, read_list
from memsched.commands.batch.process import BatchJob, JobProgress, JobResult, ProcessDiedError, Processes
from memsched.commands.batch.run import Event, run_batch
from memsched.commands.options import BatchOptions
from memsched.report.batch import Status, dump_html
from memsched.report.schema import json_schema
from memsched.search.dask import connect
from memsched.search.processes import start_process
from tests import small_models
from tests.failures import fails
from tests.formats import tflite_builder

QUICK = BatchOptions(verify=False)


def written(folder: Path) -> dict[str, bytes]:
    """Return the models in a folder, by name."""
    return {path.name: path.read_bytes() for path in sorted(folder.rglob("*_memsched.*")) if path.suffix != ".json"}


@pytest.fixture
def zoo(tmp_path: Path) -> Path:
    folder = tmp_path / "zoo"
    (folder / "more" / "deep").mkdir(parents=True)
    (folder / "branches.onnx").write_bytes(small_models.branches())
    (folder / "more" / "branches.onnx").write_bytes(small_models.branches(count=6))
    (folder / "more" / "deep" / "chain.ONNX").write_bytes(small_models.chain())
    (folder / "more" / "damaged.tflite").write_bytes(b"\x1c\0\0\0TFL3" + b"\xff" * 40)
    (folder / "readme.md").write_text("no model")
    return folder


# Which models --------------------------------------------------------------------------------------------------------


def test_folders_are_searched_and_names_told_apart(zoo: Path) -> None:
    models = find_models([str(zoo)], leave_out=str(zoo / "out"))
    assert [(Path(model.path).relative_to(zoo).as_posix(), model.name) for model in models] == [
        ("branches.onnx", "zoo-branches-onnx"),
        ("more/branches.onnx", "more-branches-onnx"),
        ("more/damaged.tflite", "damaged"),
        ("more/deep/chain.ONNX", "chain"),
    ]
    assert models[3].output == "chain_memsched.ONNX"
    assert models[3].report == "chain_memsched.json"


def test_a_file_named_twice_is_one_model(zoo: Path) -> None:
    path = zoo / "branches.onnx"
    link = zoo / "link.onnx"
    link.symlink_to(path)
    again = os.path.join(zoo, "more", "..", "branches.onnx")  # noqa: PTH118 - as a user may write it
    assert [model.path for model in find_models([str(path), again, str(link)], leave_out="out")] == [str(path)]


def test_two_formats_of_one_stem(tmp_path: Path) -> None:
    names = [tmp_path / "net.onnx", tmp_path / "net.tflite", tmp_path / "Net.x"]
    found = find_models([str(name) for name in names], leave_out="out")
    assert [model.name for model in found] == ["net-onnx", "net-tflite", "Net-x"]
    assert len({model.report for model in found}) == 3


def test_names_are_unique_whatever_the_paths() -> None:
    paths = ["/a/b/c.onnx", "/a-b/c.onnx", "/x/a-b-c-onnx.onnx", "/c.onnx", "/a/b-c.onnx", "/a/b/c.tflite"]
    names = [model.name.casefold() for model in find_models(paths, leave_out="out")]
    assert len(set(names)) == len(paths)


def test_what_an_earlier_batch_wrote_is_no_input(zoo: Path) -> None:
    (zoo / "out").mkdir()
    (zoo / "out" / "old_memsched.onnx").write_bytes(b"")
    assert len(find_models([str(zoo)], leave_out=str(zoo / "more" / ".." / "out"))) == 4


def test_lists(tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    path.write_text("# my models\na.onnx\n\n  b c.onnx \n", encoding="utf-8")
    assert read_list(str(path)) == ("a.onnx", "b c.onnx")
    with fails("unreadable", "none.txt"):
        read_list(str(tmp_path / "none.txt"))
    path.write_bytes(b"\xff\xfe")
    with fails("not-text", "UTF-8", "list.txt"):
        read_list(str(path))


def test_a_folder_without_models(tmp_path: Path) -> None:
    with fails("no-models", ".onnx", ".tflite", str(tmp_path)):
        find_models([str(tmp_path)], leave_out="out")


def test_no_input_is_overwritten(tmp_path: Path) -> None:
    given = tmp_path / "net_memsched.onnx"
    given.write_bytes(small_models.chain())
    (tmp_path / "net.onnx").write_bytes(small_models.chain())
    models = find_models([str(tmp_path / "net.onnx"), str(given)], leave_out=str(tmp_path))
    with fails("would-overwrite", "net_memsched.onnx", "-o"):
        run_batch(models, QUICK, str(tmp_path), Processes())
    assert not (tmp_path / "batch.json").exists()


# What becomes of them ------------------------------------------------------------------------------------------------


def test_a_zoo_with_a_damaged_model(zoo: Path, tmp_path: Path) -> None:
    """The same bytes as one by one, for one worker and for two; a summary in three forms."""
    (zoo / "firmware.tflite").write_bytes(tflite_builder.build(tflite_builder.branches()))
    models = find_models([str(zoo), str(zoo / "missing.onnx")], leave_out="out")
    outputs = []
    for workers in (1, 2):
        folder = tmp_path / f"out{workers}"
        result = run_batch(models, QUICK, str(folder), Processes(), parallel=workers)
        assert result.exit_code == 1
        outputs.append(written(folder))
        summary = json.loads((folder / "batch.json").read_text())
        jsonschema.validate(summary, json_schema("batch"))
        assert [model["status"] for model in summary["models"]] == ["done", "done", "done", "failed", "done", "failed"]
        assert summary["totals"]["failed"] == 2
        assert [row["batch_status"] for row in csv.DictReader((folder / "batch.csv").open())].count("done") == 4
        assert "<script" not in (folder / "batch.html").read_text()
        assert not list(folder.glob(".memsched*"))
    assert outputs[0] == outputs[1]
    for model in models:
        if model.output in outputs[0]:
            alone = memsched.optimize(model.path, verify=False)
            assert outputs[0][model.output] == alone.model
            report = json.loads((tmp_path / "out1" / model.report).read_text())
            assert report["model"]["path"] == model.path
            assert report["output"]["path"] == str(tmp_path / "out1" / model.output)
            # Notes are of the command that was asked for.
            assert report["verdict"] | {"notes": []} == alone.report["verdict"] | {"notes": []}
            assert report["written"]["schedule"] == alone.report["written"]["schedule"]


def test_external_data_gets_a_folder_of_its_own(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        small_models.external_branches(tmp_path / name, f"{name}.onnx")
    (tmp_path / "b" / "weights.bin").write_bytes((tmp_path / "b" / "weights.bin").read_bytes()[::-1])
    models = find_models([str(tmp_path / "a"), str(tmp_path / "b")], leave_out="out")
    result = run_batch(models, QUICK, str(tmp_path / "out"), Processes())
    assert result.exit_code == 0
    for name in ("a", "b"):
        assert (tmp_path / "out" / name / f"{name}_memsched.onnx").is_file()
        weights = (tmp_path / "out" / name / "weights.bin").read_bytes()
        assert weights == (tmp_path / name / "weights.bin").read_bytes()
    assert result.summary.models[0].output == "a/a_memsched.onnx"


def test_a_budget_and_its_exit_code(zoo: Path, tmp_path: Path) -> None:
    models = find_models([str(zoo / "branches.onnx"), str(zoo / "more" / "deep")], leave_out="out")
    options = BatchOptions(verify=False, budget=1000)
    result = run_batch(models, options, str(tmp_path / "out"), Processes())
    assert [row.status for row in result.rows] == [Status.BUDGET_MISSED, Status.DONE]
    assert result.exit_code == 3
    assert not (tmp_path / "out" / "branches_memsched.onnx").exists()
    kept = run_batch(
        models, BatchOptions(verify=False, budget=1000, keep_best=True), str(tmp_path / "out"), Processes()
    )
    assert (kept.rows[0].status, kept.exit_code) == (Status.BUDGET_MISSED, 3)
    assert (tmp_path / "out" / "branches_memsched.onnx").exists()


@dataclass
class Fake:
    """A runner that does as it is told, per model: a number of deaths before an answer."""

    deaths: dict[str, int] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    waiting: threading.Event = field(default_factory=threading.Event)

    def run(self, job: BatchJob, tell: Callable[[JobProgress], None]) -> JobResult:
        self.calls.append(job.shown)
        if self.deaths.get(job.shown, 0) > 0:
            self.deaths[job.shown] -= 1
            raise ProcessDiedError("killed")
        if job.shown == "waits":
            self.waiting.wait()
            raise ProcessDiedError("cancelled")
        return JobResult(1, f"bad {job.shown}", {}, None)

    def cancel(self) -> None:
        self.waiting.set()


def models_of(*names: str) -> list[BatchModel]:
    return [BatchModel(name, name) for name in names]


def test_a_model_whose_process_died_is_tried_again_after_the_others(tmp_path: Path) -> None:
    events: list[Event] = []
    runner = Fake({"b": 1, "c": 2})
    result = run_batch(models_of("a", "b", "c", "d"), QUICK, str(tmp_path), runner, on_event=events.append)
    assert runner.calls == ["a", "b", "c", "d", "b", "c"]
    assert [row.attempts for row in result.rows] == [1, 2, 2, 1]
    assert [row.error for row in result.rows] == ["bad a", "bad b", "killed", "bad d"]
    assert [event.index for event in events if event.kind == "again"] == [1, 2]


def test_an_interrupt_keeps_what_is_done(tmp_path: Path) -> None:
    runner, ended = Fake(), threading.Event()

    def tell(event: Event) -> None:
        if event.kind == "ends":
            ended.set()

    result = run_batch(models_of("a", "waits", "c"), QUICK, str(tmp_path), runner, on_event=tell, stop=ended.is_set)
    assert [row.status for row in result.rows] == [Status.FAILED, Status.NOT_RUN, Status.NOT_RUN]
    assert (result.exit_code, result.summary.interrupted) == (130, True)
    assert json.loads((tmp_path / "batch.json").read_text())["totals"]["not_run"] == 2


def test_a_process_that_is_killed(zoo: Path, tmp_path: Path) -> None:
    """Killed while it works: once, and it is tried again; every time, and it is a row."""
    (zoo / "long.onnx").write_bytes(small_models.branches(count=400))
    job = BatchJob(str(zoo / "long.onnx"), "long", "out", "long_memsched.onnx", "long.json", "long", QUICK)
    processes = Processes()
    caught: list[str] = []

    def run() -> None:
        try:
            processes.run(job, lambda _: None)
        except ProcessDiedError as error:
            caught.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    pid = children_of(os.getpid())
    os.kill(pid, signal.SIGKILL)
    thread.join(300)
    (said,) = caught
    assert "SIGKILL" in said
    processes.cancel()
    with pytest.raises(ProcessDiedError):
        processes.run(job, lambda _: None)


def test_a_process_ends_with_its_parent(tmp_path: Path) -> None:
    """Also while it waits for something that never comes: here a pipe that nobody writes to."""
    os.mkfifo(tmp_path / "model.onnx")
    job = BatchJob(str(tmp_path / "model.onnx"), "model", "out", "a.onnx", "a.json", "a", QUICK)
    with (tmp_path / "log").open("wb") as log:
        child, channel = start_process("memsched.commands.batch.child", folder=tmp_path, log=log, own_group=True)
    channel.tell({**asdict(job), "into": str(tmp_path)})
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(1.0)
    channel.close()
    assert child.wait(300) == -signal.SIGKILL


def children_of(parent: int) -> int:
    """Return the process of a batch that ``parent`` has begun, as soon as there is one."""
    end = time.monotonic() + 300
    while time.monotonic() < end:
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = path.read_text().rpartition(")")[2].split()
                command = path.with_name("cmdline").read_bytes()
            except OSError:
                continue
            if int(fields[1]) == parent and b"memsched.commands.batch.child" in command:
                return int(path.parent.name)
        time.sleep(0.01)
    raise AssertionError("no process was begun")


def test_workers_below_one(tmp_path: Path) -> None:
    with fails("option-range", "--workers 0"):
        run_batch(models_of("a"), QUICK, str(tmp_path), Fake(), parallel=0)


def test_dask_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with fails("runtime-missing", "pip install distributed"), connect("tcp://a:1"):
        pass


def test_a_page_shows_names_as_text(tmp_path: Path) -> None:
    result = run_batch(models_of("<script>alert(1)</script>"), QUICK, str(tmp_path), Fake())
    page = dump_html(result.summary)
    assert "<script" not in page
    assert "&lt;script&gt;" in page
