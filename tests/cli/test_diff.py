"""`memsched diff`: what changed, and when it fails; the examples for CI are a task of tests/tasks."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from memsched.report.schema import json_schema
from tests import small_models
from tests.cli.conftest import Run
from tests.outcomes import line_with


@pytest.fixture
def reports(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """best.json and worst.json of one model: 6144 bytes are live at once in the file's order."""
    monkeypatch.chdir(tmp_path)
    Path("net.onnx").write_bytes(small_models.branches(count=6))
    for name, solver in (("best", "auto"), ("worst", "file")):
        command = ("optimize", "net.onnx", "-o", f"{name}.onnx", "--report", f"{name}.json", "--no-verify", "-q")
        assert run(*command, "--solver", solver, "--target", "ideal").code == 0
    return tmp_path


def edited(path: str, name: str, **changes: Any) -> str:
    """Write a copy of a report with other figures; return its name."""
    report = json.loads(Path(path).read_text())
    for key, value in changes.items():
        part, field = {
            "required_bytes": (report["verdict"], "bytes"),
            "extra_macs_percent": (report["verdict"], "extra_macs_percent"),
            "lower_bound_bytes": (report["proof"], "bound_bytes"),
        }.get(key, (report["written"]["schedule"], key))
        part[field] = value
    Path(name).write_text(json.dumps(report))
    return name


def test_nothing_changed(run: Run, reports: Path) -> None:
    assert run("diff", "best.json", "best.json", "--fail-on-regression", "0").code == 0
    diff = json.loads(run("diff", "best.json", "best.json", "--json").out)
    jsonschema.validate(diff, json_schema("diff"))
    assert diff["models"][0]["change"] == "same"


def test_a_regression_has_an_exit_code_of_its_own(run: Run, reports: Path) -> None:
    done = run("diff", "best.json", "worst.json", "--fail-on-regression", "1")
    assert done.code == 3
    assert "regression: " in done.out
    assert re.search(r"^required +2,0\d\d +6,1\d\d +\+1\d\d\.\d\d %$", done.out, re.MULTILINE)
    assert re.search(r"came .*:\n +1,024  wide\d", done.out)
    shown = run("diff", "best.json", "worst.json")
    assert shown.code == 0
    assert "regression" not in shown.out
    assert "worse: " in shown.out
    assert "permitted" not in shown.out
    assert "regression" not in run("diff", "best.json", "worst.json", "--markdown").out
    better = run("diff", "worst.json", "best.json", "--fail-on-regression", "0")
    assert better.code == 0
    quiet = run("diff", "best.json", "worst.json", "--fail-on-regression", "1%", "-q")
    assert (quiet.code, quiet.out, quiet.err.count("\n")) == (3, "", 1)


def test_as_json(run: Run, reports: Path) -> None:
    done = run("diff", "best.json", "worst.json", "--json", "--fail-on-regression", "1")
    diff = json.loads(done.out)
    jsonschema.validate(diff, json_schema("diff"))
    best, worst = (json.loads(Path(f"{name}.json").read_text()) for name in ("best", "worst"))
    model = diff["models"][0]
    assert model["figures"]["peak_bytes"]["old"] == best["written"]["schedule"]["peak_bytes"]
    assert model["figures"]["peak_bytes"]["new"] == worst["written"]["schedule"]["peak_bytes"]
    old, new = ({entry["tensor"] for entry in report["written"]["at_fault"]} for report in (best, worst))
    assert {entry["tensor"] for entry in model["came_to_peak"]} == new - old
    assert {entry["tensor"] for entry in model["left_peak"]} == old - new
    assert diff["failed"]
    assert len(model["regressions"]) == 2


def test_exactly_the_percentage_is_permitted(run: Run, reports: Path) -> None:
    edited("best.json", "a.json", peak_bytes=1000, required_bytes=1000)
    edited("best.json", "b.json", peak_bytes=1000, required_bytes=1010)
    assert run("diff", "a.json", "b.json", "--fail-on-regression", "1").code == 0
    assert run("diff", "a.json", "b.json", "--fail-on-regression", "0.99").code == 3
    edited("best.json", "zero.json", peak_bytes=0, required_bytes=0)
    assert run("diff", "zero.json", "a.json", "--fail-on-regression", "10000").code == 3
    assert run("diff", "zero.json", "zero.json", "--fail-on-regression", "0").code == 0


def test_other_models_and_targets_are_pointed_out(run: Run, reports: Path) -> None:
    Path("other.onnx").write_bytes(small_models.branches(count=7))
    run("analyze", "other.onnx", "--report", "other.json", "-q")
    done = run("diff", "best.json", "other.json")
    assert re.search("target .*ideal.* onnxruntime", done.out)
    found = json.loads(run("diff", "best.json", "other.json", "--json").out)
    assert len(found["models"][0]["notes"]) == 2


@pytest.mark.parametrize(
    ("content", "code", "about"),
    [
        (b"", "not-json", ""),
        (b"[" * 100_000, "not-json", ""),
        (b"\xff", "not-json", ""),
        (b"[]", "other-report", ""),
        (b'{"command": "allocate"}', "other-report", "memsched allocate"),
        (b'{"command": ["a"]}', "other-report", ""),
        (b'{"command": "optimize"}', "report-version", "None"),
        (b'{"command": "optimize", "schema_version": 1}', "report-version", "1"),
        (b'{"command": "optimize", "schema_version": 2}', "report-field", "'model'"),
        (b'{"command": "batch", "schema_version": 2, "models": [7]}', "different-kinds", ""),
    ],
)
def test_what_is_no_report(run: Run, reports: Path, content: bytes, code: str, about: str) -> None:
    Path("bad.json").write_bytes(content)
    for names in (("bad.json", "best.json"), ("best.json", "bad.json")):
        done = run("diff", *names)
        done.failed(code, about)
        assert done.err.count("\n") == 1


def test_values_of_other_types(run: Run, reports: Path) -> None:
    for value in ("1", None, -1, True, 10**400, float("nan")):
        assert run("diff", "best.json", edited("best.json", "bad.json", peak_bytes=value)).code == 1


def test_mistakes(run: Run, reports: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("diff", "best.json", "none.json").failed("report-unreadable", "none.json")
    run("diff", "-", "-").failed("stdin-twice")
    run("diff", "best.json", "worst.json", "--fail-on-regression", "much").failed("bad-parameter", "much")
    stream = io.TextIOWrapper(io.BytesIO(Path("worst.json").read_bytes()))
    monkeypatch.setattr("sys.stdin", stream)
    assert run("diff", "best.json", "-", "--fail-on-regression", "1").code == 3


def batch_of(path: str, **results: int | None) -> None:
    """Write a summary with a model per name: its peak, or None for one that failed."""
    models = []
    for name, peak in results.items():
        result = None
        if peak is not None:
            names = ("required_bytes", "file_peak_bytes", "peak_bytes", "arena_bytes", "lower_bound_bytes")
            figures = dict.fromkeys(names, peak)
            met = peak < 1000
            result = {
                **figures,
                "extra_macs_percent": 0,
                "sha256": "0",
                "target": "t",
                "budget_met": met,
                "at_fault": [],
            }
        models.append({"name": name, "path": f"zoo/{name}.onnx", "status": "failed", "error": "bad", "result": result})
    Path(path).write_text(json.dumps({"schema_version": 2, "command": "batch", "models": models}))


def test_batches(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    batch_of("old.json", same=10, grew=100, shrank=10, broke=10, repaired=None, gone=10, bad=None, over=999)
    batch_of("new.json", bad=None, shrank=5, broke=None, repaired=10, grew=102, came=10, same=10, over=1000)
    done = run("diff", "old.json", "new.json", "--fail-on-regression", "1", "--json")
    assert done.code == 3
    diff = json.loads(done.out)
    jsonschema.validate(diff, json_schema("diff"))
    assert {model["name"]: model["change"] for model in diff["models"]} == {
        "same": "same",
        "grew": "larger",
        "shrank": "smaller",
        "broke": "fails",
        "repaired": "recovered",
        "gone": "went",
        "bad": "failed_before",
        "over": "larger",
        "came": "came",
    }
    failed = [model["name"] for model in diff["models"] if model["regressions"]]
    assert failed == ["grew", "broke", "over"]
    assert "budget" in done.err
    # A model that moved is found by its name.
    text = Path("new.json").read_text().replace("zoo/", "other/")
    Path("moved.json").write_text(text)
    moved = json.loads(run("diff", "old.json", "moved.json", "--json").out)
    assert moved["totals"] == diff["totals"]
    assert run("diff", "old.json", "new.json", "--fail-on-regression", "5").code == 3
    batch_of("fine.json", same=10, grew=100)
    assert run("diff", "old.json", "fine.json", "--fail-on-regression", "0").code == 0


@pytest.mark.parametrize("columns", ["60", "80", "160"])
def test_widths(run: Run, reports: Path, monkeypatch: pytest.MonkeyPatch, columns: str) -> None:
    from scripts.terminal_images import printed

    text = printed(["diff", "best.json", "worst.json"], int(columns), reports)
    assert max(map(len, re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines())) <= int(columns)


# Models in place of reports, and tables for comments ------------------------------------------------------------------


def test_models_are_analyzed_as_they_stand(run: Run, reports: Path) -> None:
    run("optimize", "net.onnx", "--target", "ideal", "--no-verify", "-o", "shorter.onnx", "-q")
    found = json.loads(run("diff", "net.onnx", "shorter.onnx", "--target", "ideal", "--json").out)
    report = json.loads(Path("best.json").read_text())["written"]["schedule"]
    assert found["models"][0]["figures"]["peak_bytes"]["new"] == report["peak_bytes"]
    assert found["models"][0]["change"] == "smaller"
    # For the target of the report beside it, unless another is named.
    assert run("diff", "best.json", "shorter.onnx", "--fail-on-regression", "0").code == 0
    assert run("diff", "net.onnx", "best.json", "--fail-on-regression", "0").code == 0
    assert re.search("target .*ideal.* paper", run("diff", "best.json", "net.onnx", "--target", "paper").out)
    assert run("diff", "net.onnx", "net.onnx", "--fail-on-regression", "0").code == 0
    run("diff", "best.json", "best.json", "--target", "ideal").failed("no-effect", "--target")
    assert run("diff", "best.json", "none.onnx").code == 1
    assert run("diff", "best.json", "net.onnx", "--target", "none").code == 2


def test_a_table_for_a_comment(run: Run, reports: Path) -> None:
    found = json.loads(run("diff", "best.json", "worst.json", "--json").out)["models"][0]
    came = sum(one["size_bytes"] == 1024 for one in found["came_to_peak"])
    assert came == len(found["came_to_peak"]) > 1
    done = run("diff", "best.json", "worst.json", "--markdown", "--fail-on-regression", "1")
    assert done.code == 3
    lines = done.out.splitlines()
    assert lines[0] == "### memsched: regression"
    assert "6,1" in lines[2]
    assert lines[4].startswith("| <code>net</code> |")
    assert lines[4].count("|") == lines[5].count("|") == 5
    assert any(re.fullmatch(r"\| required \| 2,0\d\d \| 6,1\d\d \| \+1\d\d\.\d\d % \|", line) for line in lines)
    assert line_with(done.out, "<details><summary>Came ", f"{came} tensors, {1024 * came:,} B</summary>")
    assert run("diff", "best.json", "best.json", "--markdown", "--json").code == 2


def test_a_table_of_a_batch(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    batch_of("old.json", same=10, gone=10, **{f"m{number}": 100 for number in range(150)}, grew=100)
    batch_of("new.json", same=10, grew=102, came=10, **{f"m{number}": 99 for number in range(150)})
    text = run("diff", "old.json", "new.json", "--markdown", "--fail-on-regression", "1").out
    assert "| <code>zoo/grew.onnx</code> | larger | 100 | 102 | +2.00 % |" in text
    assert text.index("zoo/grew.onnx") < text.index("| <code>zoo/gone.onnx</code> |")
    assert line_with(text, "zoo/gone.onnx").endswith(" | | | |")
    assert line_with(text, "| and 53 more |").count("|") == 6
    totals = json.loads(run("diff", "old.json", "new.json", "--json").out)["totals"]
    counts = {"models": 154, "larger": 1, "smaller": 150, "came": 1, "went": 1, "same": 1, "regressions": 1}
    assert counts.items() <= totals.items()
    assert line_with(text, "154 models: ", "1 larger, ", "150 smaller, ")
    assert "zoo/same" not in text


def test_names_are_text_in_a_comment(run: Run, reports: Path) -> None:
    name = "a|b`c`<img src=x onerror=1>\n| d | @all **e** [f](http://g)"
    report = json.loads(Path("worst.json").read_text())
    report["model"]["path"] = f"x/{name}"
    for entry in report["written"]["at_fault"]:
        entry["tensor"] = name
    Path("named.json").write_text(json.dumps(report))
    text = run("diff", "best.json", "named.json", "--markdown").out
    shown = re.sub(r"</?(?:code|details|summary)>", "", text)
    assert not re.search(r"[<>`@*\[]", shown.replace("###", ""))
    assert all(line.count("|") in {0, 3, 5} for line in shown.splitlines())
