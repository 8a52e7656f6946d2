"""The runner of the benchmarks: what it lists, parses, prints, times, and compares with the documentation's copies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.bench.runner.command import benchmark, listed, main, parser_of, run
from scripts.bench.runner.declare import ROOT, Benchmark, Heading, Part, Values, Verdict, option
from scripts.bench.runner.documented import Table, compared, tables_of
from scripts.bench.runner.processes import ended, optimized
from scripts.bench.runner.text import printed
from scripts.bench.runner.timing import best_of, median_of, medians

PAGE = """# Page

| model | peak, B | took, s | state |
|---|--:|--:|---|
| a | 10 | 1.5 | optimal |
| b | 20 | 2.5 | open |

```console
$ python -m scripts.bench something
| model | peak, B | state |
|---|---|---|
| c | 7 | optimal |
```
"""


# Declarations ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", listed())
def test_every_benchmark_is_declared_whole(name: str) -> None:
    declared = benchmark(name)
    assert listed()[name] == " ".join(declared.shows.partition("\n\n")[0].split())
    assert len(listed()[name].splitlines()) == 1
    assert listed()[name].endswith(".")
    assert (ROOT / declared.docs).is_file()
    parser = parser_of(name)
    assert "--check" in parser.format_help()
    defaults = parser.parse_args([])
    assert all(str(getattr(defaults, action.dest)) for action in parser._actions if action.dest != "help")


def test_every_module_with_tables_is_listed() -> None:
    folder = ROOT / "scripts" / "bench"
    declaring = {path for path in folder.rglob("*.py") if "\nBENCH = " in path.read_text(encoding="utf-8")}
    names = {".".join(path.relative_to(folder).with_suffix("").parts) for path in declaring}
    assert names == set(listed())
    assert not any("ArgumentParser" in path.read_text(encoding="utf-8") for path in declaring)


def test_the_list_has_a_line_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    lines = capsys.readouterr().out.splitlines()[2:]
    assert [line.split()[0] for line in lines] == list(listed())


def test_what_is_no_benchmark_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nothing"]) == 2
    assert "'nothing'" in capsys.readouterr().err


def test_an_error_of_memsched_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pools", "--target", "nowhere"]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_a_default_is_told_once() -> None:
    assert option("--n", type=int, default=3, help="times").settings["help"] == "times; default: 3"
    assert option("--n", nargs="+", default=[1, 2], help="times").settings["help"] == "times; default: 1 2"
    assert option("--n", default=None, help="times").settings["help"] == "times"
    assert option("--n", default="x", help="default: all").settings["help"] == "default: all"


# Printing --------------------------------------------------------------------------------------------------------


def some(peak: int, seconds: float) -> Benchmark:
    def tables(values: Values) -> Iterator[Part]:
        yield "Bytes.\n"
        yield Heading("model", ">peak, B", ">~took, s", "state")
        yield "a", peak, f"{seconds:.1f}", "optimal"
        yield Verdict("\n0 are wrong", wrong=peak > 100)

    return Benchmark("Some figures.", tables)


def test_parts_are_printed_as_markdown() -> None:
    values = parser_of("pools").parse_args([])
    assert list(printed(some(10, 2).tables(values))) == [
        "Bytes.\n",
        "| model | peak, B | took, s | state |",
        "|---|--:|--:|---|",
        "| a | 10 | 2.0 | optimal |",
        "\n0 are wrong",
    ]


@pytest.mark.parametrize(("peak", "code"), [(10, 0), (101, 1)])
def test_a_wrong_verdict_is_the_exit_code(peak: int, code: int) -> None:
    assert run(some(peak, 1), Values(check=None)) == code


# Copies ----------------------------------------------------------------------------------------------------------


def test_tables_of_a_page_are_read_in_blocks_too() -> None:
    first, second = tables_of(PAGE)
    assert first.columns == ("model", "peak, B", "took, s", "state")
    assert first.rows == [("a", "10", "1.5", "optimal"), ("b", "20", "2.5", "open")]
    assert second.rows == [("c", "7", "optimal")]


def test_a_check_exempts_seconds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    assert run(some(10, 99), Values(check=page)) == 0
    assert "page.md: 0 of 1 rows " in capsys.readouterr().out
    assert run(some(11, 1.5), Values(check=page)) == 1
    told = capsys.readouterr().out
    assert "  a: peak, B: 10 -> 11\n" in told
    assert "page.md: 1 of 1 rows " in told


def test_a_copy_may_leave_columns_out() -> None:
    table = Table(("model", "peak, B", "took, s", "state"), [("c", "7", "3", "optimal")], (False, False, True, False))
    assert compared([table], tables_of(PAGE), "page").count == 0


def test_a_table_and_a_row_without_a_copy_are_differences() -> None:
    new = Table(("model", "peak, B", "took, s", "state"), [("d", "7", "3", "open")], (False, False, True, False))
    found = compared([new], tables_of(PAGE), "page")
    assert found.count == 1
    assert any(line.endswith(": d | 7 | open") for line in found.lines)
    other = compared([Table(("nodes", "peak"), [("1", "2")], (False, False))], tables_of(PAGE), "page")
    assert other.count == 1
    assert other.lines[0].startswith("page: ")
    assert other.lines[0].endswith(" nodes, peak")


@pytest.mark.parametrize(
    "arguments",
    [
        ["schedule.fusion", "unetpp", "hrnet_w18_small_v1", "--repeats", "1"],
        ["schedule.networks", "unetpp", "hrnet_w18_small_v1", "--repeats", "1"],
        ["tflm", "models/hello_world_int8.tflite", "models/micro_speech_quantized.tflite"],
        ["onchip", "vgg19"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_what_the_pages_copy_is_still_printed(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    parser = parser_of(arguments[0])
    declared = benchmark(arguments[0])
    values = parser.parse_args([*arguments[1:], "--check"])
    run(declared, values)
    said = capsys.readouterr().out
    # Averages are those of fewer networks here.
    differing = [line for line in said.splitlines() if line.startswith("  ") and "average" not in line]
    assert [line for line in differing if "not printed" not in line] == []


# Timing, processes -----------------------------------------------------------------------------------------------


def test_medians_take_turns() -> None:
    turns: list[str] = []
    times = medians([lambda: turns.append("a"), lambda: turns.append("b")], least=3, most=3, seconds=0)
    assert turns == ["a", "b"] * 3
    assert len(times) == 2


def test_the_quickest_and_the_middle_run_count() -> None:
    given = iter([3.0, 1.0, 2.0])
    assert median_of(3, lambda: next(given)) == 2.0
    runs = iter(range(3))
    result, seconds = best_of(3, lambda: next(runs))
    assert result in {0, 1, 2}
    assert 0 <= seconds < 1


def test_a_run_tells_its_seconds_and_memory() -> None:
    found = ended(["analyze", "models/hello_world_int8.tflite", "--quiet"])
    assert found.code == 0
    assert found.processor > 0
    assert found.memory > 10 << 20
    assert ended(["analyze", "nowhere.onnx"]).errors.startswith("memsched: error: ")


def test_an_optimisation_returns_what_it_wrote() -> None:
    model = ROOT / "models" / "hello_world_int8.tflite"
    done = optimized(model, ["--no-verify"])
    assert done.name == "hello_world_int8"
    assert done.report["written"]["schedule"]["peak_bytes"] > 0
    assert len(done.model) >= len(model.read_bytes())
    with pytest.raises(SystemExit, match=r"hello_world_int8\.tflite: exit 3"):
        optimized(model, ["--no-verify", "--budget", "1"])
