"""``memsched allocate`` from file to file: names, streams, exit codes, the report, and nothing left behind."""

from __future__ import annotations

import csv
import io
import json
import os
import random
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import memsched
from memsched.base.errors import InternalError
from memsched.check.packing import check_packing
from memsched.commands.allocate import max_live
from memsched.formats.buffers_csv import parse_table
from memsched.graph.packing import Packing
from memsched.report.schema import json_schema
from tests.cli.conftest import Run
from tests.cli.written import names
from tests.failures import fails
from tests.outcomes import line_with, refused

SCHEMA = jsonschema.Draft202012Validator(json_schema("allocate"))
CLI = [sys.executable, "-m", "memsched"]
TWELVE = (Path(__file__).parent.parent / "data" / "packing" / "twelve.csv").read_text()
LIVE = 25
"""The most bytes that the twelve buffers have in use at once, at time 11: g 5, i 8, j 2 and k 10."""


@pytest.fixture
def buffers(tmp_path: Path) -> Path:
    path = tmp_path / "in.csv"
    path.write_text(TWELVE)
    return path


def offsets_of(text: str) -> list[int]:
    return [int(row["offset"]) for row in csv.DictReader(io.StringIO(text))]


def check(text: str, capacity: int | None = None) -> int:
    """Check the addresses in a written file with the independent checker; returns their height."""
    table = parse_table(text.encode(), "out.csv")
    offsets = offsets_of(text)
    height = max(offset + block.size for offset, block in zip(offsets, table.blocks, strict=True))
    check_packing(table.blocks, Packing(tuple(offsets), height, 0, "feasible", "", ""), capacity)
    return height


def report_of(text: str) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(text)
    SCHEMA.validate(report)
    return report


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(json_schema("allocate"))


def test_the_smallest_height_beside_the_input(run: Run, buffers: Path) -> None:
    done = run("allocate", buffers, "--report", buffers.with_name("r.json"))
    assert (done.code, done.err) == (0, "")
    assert names(buffers.parent) == ["in.csv", "in_memsched.csv", "r.json"]
    assert buffers.read_text() == TWELVE
    written = buffers.with_name("in_memsched.csv").read_text()
    assert [line.rpartition(",")[0] for line in written.splitlines()] == TWELVE.splitlines()
    assert check(written) == LIVE
    report = report_of(buffers.with_name("r.json").read_text())
    assert report["result"]["status"] == "optimal"
    assert report["result"]["height_bytes"] == report["result"]["max_live_bytes"] == LIVE
    assert report["result"]["fits"] is None
    assert report["input"]["carried_columns"] == ["note"]
    assert [row["offset_bytes"] for row in report["buffers"]] == offsets_of(written)
    assert "25 B" in done.out
    assert "'note'" in done.out


def test_the_most_in_use_at_once() -> None:
    assert max_live(parse_table(TWELVE.encode(), "").blocks) == LIVE


def test_a_capacity_that_is_met_and_one_that_cannot_be(run: Run, buffers: Path) -> None:
    output = buffers.with_name("out.csv")
    done = run("allocate", buffers, "--capacity", "1KB", "-o", output)
    assert done.code == 0
    assert check(output.read_text(), 1024) >= LIVE
    assert "fit" in done.out
    output.unlink()
    done = run("allocate", buffers, "--capacity", LIVE - 1, "-o", output, "--report", buffers.with_name("r.json"))
    assert done.code == 3
    assert "25 B" in done.out
    assert names(buffers.parent) == ["in.csv", "r.json"]
    report = report_of(buffers.with_name("r.json").read_text())
    assert (report["output"], report["buffers"]) == (None, None)
    assert report["result"]["status"] == "infeasible"
    assert report["result"]["lower_bound_bytes"] == LIVE
    quiet = run("allocate", buffers, "--capacity", LIVE - 1, "-q")
    assert (quiet.code, quiet.out, quiet.err.count("\n")) == (3, "", 1)
    assert "25 B" in quiet.err


def test_nothing_that_fits_is_found_in_time(run: Run, buffers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stacked(blocks: Any, *_: object, **__: object) -> Packing:
        ends = [0]
        for block in blocks:
            ends.append(-(-ends[-1] // 8) * 8 + block.size)
        offsets = tuple(-(-end // 8) * 8 for end in ends[:-1])
        return Packing(offsets, ends[-1], LIVE, "feasible", "bytes in use at once", "stacking")

    monkeypatch.setattr("memsched.commands.allocate.pack", stacked)
    done = run("allocate", buffers, "--capacity", 30)
    assert done.code == 3
    assert line_with(done.out, " 30 B ", " 100 B", " 25 ")
    assert names(buffers.parent) == ["in.csv"]
    with fails("budget-missed", "keep_best"):
        memsched.allocate_buffers(buffers, capacity=30).save(buffers.with_name("out.csv"))
    assert run("allocate", buffers, "--capacity", 30, "--keep-best").code == 3
    assert check(buffers.with_name("in_memsched.csv").read_text()) > 30


def test_what_the_checker_refuses_is_never_written(run: Run, buffers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(blocks: Any, *_: object, **__: object) -> Packing:
        return Packing((0,) * len(blocks), 10, 10, "optimal", "", "")

    monkeypatch.setattr("memsched.commands.allocate.pack", wrong)
    done = run("allocate", buffers)
    assert isinstance(done.error, InternalError)
    refused(done, done.error.code, "block")
    assert names(buffers.parent) == ["in.csv"]


def test_streams(buffers: Path) -> None:
    done = subprocess.run([*CLI, "allocate", "-", "-o", "-"], input=TWELVE.encode(), capture_output=True, check=True)
    assert check(done.stdout.decode()) == LIVE
    assert b"12 buffers" in done.stderr
    done = subprocess.run(
        [*CLI, "allocate", "-", "-o", "/dev/null", "--json"], input=TWELVE.encode(), capture_output=True, check=True
    )
    assert report_of(done.stdout.decode())["input"]["path"] == "-"
    assert names(buffers.parent) == ["in.csv"]


def test_the_input_is_overwritten_by_force_only(run: Run, buffers: Path) -> None:
    refused(run("allocate", buffers, "-o", buffers), "would-overwrite", "in.csv", "--force")
    assert buffers.read_text() == TWELVE
    buffers.chmod(0o640)
    assert run("allocate", buffers, "-o", buffers, "--force").code == 0
    assert check(buffers.read_text()) == LIVE
    assert stat.S_IMODE(buffers.stat().st_mode) == 0o640
    # Its own output is an input whose addresses are all given.
    again = run("allocate", buffers, "--json")
    report = report_of(again.out)
    assert report["input"]["given"] == 12
    assert report["result"]["height_bytes"] == LIVE


def test_options_reach_the_search(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text("id,lower,upper,size,alignment\na,0,2,3,\nb,1,3,3,\nc,0,3,1,2\n")
    report = report_of(run("allocate", path, "--alignment", 16, "--seed", 3, "--workers", 2, "--json").out)
    assert all(row["offset_bytes"] % 16 == 0 for row in report["buffers"][:2])
    assert report["result"]["height_bytes"] == 19
    assert (report["seed"], report["workers"], report["input"]["alignment_bytes"]) == (3, 2, 16)


def test_minimize_goes_on_below_the_capacity(run: Run, buffers: Path) -> None:
    report = report_of(run("allocate", buffers, "--capacity", "1KB", "--minimize", "--json").out)
    assert report["result"]["height_bytes"] == LIVE
    assert report["result"]["fits"] is True


@pytest.mark.parametrize(
    ("arguments", "code", "about"),
    [
        (["--capacity", "much"], "bad-size", "--capacity: 'much'"),
        (["--alignment", "0"], "bad-parameter", "--alignment: 0"),
        (["--capacity", str(2**63)], "option-range", "2**62"),
        (["--alignment", str(2**63)], "option-range", str(2**63)),
        (["--time-limit", "-1"], "option-range", "--time-limit"),
        (["--workers", "0"], "option-range", "--workers"),
        (["-o", "-", "--json"], "stdout-twice", "--report"),
        (["--report", "in.csv"], "same-file", "in.csv"),
        (["--frobnicate"], "no-such-option", "--frobnicate"),
    ],
)
def test_wrong_usage(
    run: Run, buffers: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: str, about: str
) -> None:
    monkeypatch.chdir(buffers.parent)
    refused(run("allocate", "in.csv", *arguments), code, about)
    assert names(buffers.parent) == ["in.csv"]


def test_standard_input_needs_a_name_for_the_output(run: Run) -> None:
    refused(run("allocate", "-"), "no-output-name", "-o")


@pytest.mark.parametrize(
    ("text", "code", "about"),
    [
        ("", "no-buffers", ["in.csv"]),
        ("id,lower,upper,size\na,0,1,-1\n", "buffer-below-zero", ["in.csv", "line 2", "'size'"]),
        ("id,lower,upper,size\na,0,1,x\x1b[31m\n", "not-a-number", ["line 2"]),
        ("id,lower,upper,size,offset\na,0,1,4,1022\n", "above-capacity", ["line 2", "'offset'", "1024"]),
        ("id,lower,upper,size,offset\na,0,2,4,4\nb,1,3,4,6\n", "offsets-overlap", ["line 3", "'offset'", "line 2"]),
    ],
)
def test_bad_files(run: Run, buffers: Path, text: str, code: str, about: list[str]) -> None:
    buffers.write_text(text)
    done = run("allocate", buffers, "--capacity", "1KB")
    refused(done, code, *about)
    assert "\x1b" not in done.err
    assert names(buffers.parent) == ["in.csv"]


def test_paths_that_are_none(run: Run, buffers: Path) -> None:
    folder = buffers.parent
    refused(run("allocate", folder / "no.csv"), "no-such-buffers", "no.csv")
    refused(run("allocate", folder), "buffers-is-folder", str(folder))
    refused(run("allocate", buffers, "-o", buffers / "out.csv"), "not-a-folder", "in.csv")
    refused(run("allocate", buffers, "-o", folder), "output-is-folder", str(folder))
    refused(run("allocate", buffers, "--report", buffers / "r.json"), "not-a-folder", "in.csv")
    assert names(folder) == ["in.csv"]


def test_the_function(buffers: Path) -> None:
    result = memsched.allocate_buffers(buffers, capacity="1KB", minimize=True)
    assert (result.fits, result.interrupted, result.packing.height) == (True, False, LIVE)
    assert result.csv is not None
    assert check(result.csv, 1024) == LIVE
    with fails("would-overwrite", str(buffers), "force=True"):
        result.save(buffers)
    result.save(buffers, force=True)
    assert buffers.read_text() == result.csv
    nothing = memsched.allocate_buffers(TWELVE.encode(), capacity=1)
    assert (nothing.fits, nothing.csv) == (False, None)
    with fails("nothing-fits", str(buffers)):
        nothing.save(buffers)
    with fails("option-range", "alignment", "0"):
        memsched.allocate_buffers(buffers, alignment=0)


def test_the_search_that_is_stopped_keeps_the_best(run: Run, buffers: Path) -> None:
    result = memsched.allocate_buffers(buffers, hooks=memsched.Hooks(stop=lambda: True))
    assert result.interrupted
    assert result.csv is not None
    check(result.csv)


TELLING = """
import sys
from memsched.solve.allocate import exact
solve = exact.solve

def told(*arguments, **more):
    print("searching", file=sys.stderr, flush=True)
    return solve(*arguments, **more)

exact.solve = told
from memsched.cli.main import main
sys.exit(main())
"""


def test_interruption_writes_the_best_so_far(tmp_path: Path) -> None:
    chance = random.Random(5)
    rows = [
        f"{i},{(b := chance.randrange(300))},{b + chance.randrange(5, 60)},{chance.randrange(9, 999)}"
        for i in range(500)
    ]
    (tmp_path / "in.csv").write_text("id,lower,upper,size\n" + "\n".join(rows) + "\n")
    command = [sys.executable, "-c", TELLING, "allocate", "in.csv", "--time-limit", "1000"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as started:
        assert started.stderr is not None
        assert started.stderr.readline() == b"searching\n"
        started.send_signal(signal.SIGINT)
        output, errors = started.communicate(timeout=300)
    # A search that had ended by then, with a proof, is no interruption.
    assert started.returncode in {0, 130}, errors
    assert check((tmp_path / "in_memsched.csv").read_text())
    if started.returncode == 130:
        assert b"ended early" in output


def test_the_same_seed_gives_the_same_file_whatever_the_hash_seed(buffers: Path) -> None:
    outputs = set()
    for seed in ("0", "1"):
        done = subprocess.run(
            [*CLI, "allocate", str(buffers), "-o", "-", "-q"],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        )
        outputs.add(done.stdout)
    assert len(outputs) == 1


def test_many_buffers(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "many.csv"
    rows = [f"{i},{i % 977},{i % 977 + 1 + i % 5},{64 + i % 13}" for i in range(20_000)]
    path.write_text("id,lower,upper,size\n" + "\n".join(rows) + "\n")
    done = run("allocate", path, "--time-limit", 2, "-o", tmp_path / "out.csv")
    assert done.code == 0, done.err
    check((tmp_path / "out.csv").read_text())


def test_one_buffer_is_counted_as_one(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "one.csv"
    path.write_text("id,lower,upper,size\na,0,1,8\n")
    done = run("allocate", path)
    assert done.code == 0
    assert "1 buffer\n" in done.out


def test_a_stated_address_above_the_capacity_is_no_failed_search(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "given.csv"
    path.write_text("id,lower,upper,size,offset\na,0,1,8,24\n")
    done = run("allocate", path, "--capacity", "31")
    refused(done, "above-capacity", "'offset'", "31")
