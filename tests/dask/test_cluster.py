"""A batch, and parts of one graph, on a real dask cluster of two workers, one of which is killed while it works."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from memsched.cli.main import main
from memsched.commands.batch.dask import DaskCluster
from memsched.commands.batch.inputs import find_models
from memsched.commands.batch.process import Processes
from memsched.commands.batch.run import Event, run_batch
from memsched.commands.options import BatchOptions
from memsched.search.dask import connect, executor_at
from memsched.search.limits import Limits
from memsched.search.run import Run
from memsched.solve.schedule.parallel import search_all
from tests import small_models
from tests.commands.batch.test_run import children_of, written
from tests.dask.local_cluster import Addresses, local_cluster
from tests.failures import fails
from tests.solve.schedule.test_parallel import jobs


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Addresses]:
    with local_cluster(tmp_path_factory.mktemp("elsewhere")) as addresses:
        yield addresses


@pytest.fixture
def zoo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Models of all kinds, by paths that mean something here alone."""
    folder = tmp_path / "zoo"
    (folder / "weights").mkdir(parents=True)
    for count in (3, 4, 5):
        (folder / f"branches{count}.onnx").write_bytes(small_models.branches(count=count))
    (folder / "bad.onnx").write_bytes(b"no model")
    small_models.external_branches(folder / "weights", "external.onnx")
    (tmp_path / "base.toml").write_text('extends = "ideal"\nalignment_bytes = 64\n')
    (tmp_path / "mine.toml").write_text('extends = "base.toml"\nname = "mine"\n')
    monkeypatch.chdir(tmp_path)
    return folder


def test_a_batch_on_a_cluster_and_here_write_the_same(cluster: Addresses, zoo: Path) -> None:
    """A worker is killed while it has a model: the other does it, and nothing is lost."""
    options = BatchOptions(target="mine.toml", verify=False)
    models = find_models(["zoo", "missing.onnx"], leave_out="out")
    here = run_batch(models, options, "here", Processes(), parallel=2)
    killed: list[int] = []

    def kill(event: Event) -> None:
        if event.kind == "ends" and not killed:
            killed.append(cluster.workers[0])
            children_of(cluster.workers[0])
            os.kill(cluster.workers[0], signal.SIGKILL)

    with connect(cluster.scheduler) as client:
        there = run_batch(models, options, "there", DaskCluster(client), parallel=3, on_event=kill)
    assert killed
    assert written(Path("here")) == written(Path("there"))
    assert len(written(Path("there"))) == 4
    assert [row.error for row in here.rows] == [row.error for row in there.rows]
    for ours, theirs in zip(here.summary.models, there.summary.models, strict=True):
        assert ours.result == theirs.result
    report = json.loads(Path("there/branches3_memsched.json").read_text())
    assert report["model"]["path"] == "zoo/branches3.onnx"
    assert report["target"]["name"] == "mine"
    assert report["target"]["alignment_bytes"] == 64
    assert Path("there/external/weights.bin").read_bytes() == (zoo / "weights" / "weights.bin").read_bytes()


def test_independent_parts_of_a_graph(cluster: Addresses) -> None:
    work = jobs(6)
    alone = search_all(work, Run(Limits(None, workers=1)))
    with executor_at(cluster.scheduler) as executor:
        assert search_all(work, Run(Limits(None, executor=executor))) == alone


def test_from_the_command_line(cluster: Addresses, zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(zoo / "branches4.onnx")
    assert main(["optimize", model, "-o", "there.onnx", "--no-verify", "--dask", cluster.scheduler]) == 0
    assert main(["optimize", model, "-o", "here.onnx", "--no-verify"]) == 0
    assert Path("there.onnx").read_bytes() == Path("here.onnx").read_bytes()
    capsys.readouterr()
    assert main(["batch", model, "-o", "out", "--no-verify", "--dask", cluster.scheduler, "-q"]) == 0
    assert capsys.readouterr().err == ""
    assert Path("out/branches4_memsched.onnx").read_bytes() == Path("here.onnx").read_bytes()


def test_a_scheduler_that_goes_away(zoo: Path, tmp_path: Path) -> None:
    """What was done is kept; the rest is told as failed, and nothing waits for ever."""
    program = [sys.executable, "-m", "memsched", "batch", "zoo", "-o", "out", "--no-verify", "--retries", "0"]
    for number in range(40):
        (zoo / f"more{number}.onnx").write_bytes(small_models.branches(count=number + 6))
    with local_cluster(tmp_path) as addresses:
        process = subprocess.Popen(
            [*program, "--dask", addresses.scheduler], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert process.stderr is not None
        while "->" not in process.stderr.readline():
            assert process.poll() is None
    out, err = process.communicate(timeout=90)
    assert process.returncode == 1
    assert "Traceback" not in err
    assert re.search(r"failed: .*: the cluster", out)
    summary = json.loads(Path("out/batch.json").read_text())
    assert 0 < summary["totals"]["done"] < len(summary["models"])
    assert len(written(Path("out"))) == summary["totals"]["done"]


def test_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memsched.search.dask.PATIENCE_SECONDS", 0.5)
    with fails("no-scheduler"), connect("tcp://127.0.0.1:9"):
        pass
    with fails("no-scheduler"), connect("nonsense://x"):
        pass
