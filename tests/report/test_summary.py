"""What is printed unless more is asked for: twelve lines at most, in their order, the verdict first."""

from __future__ import annotations

from io import StringIO

import msgspec
import pytest
from rich.console import Console

import memsched
from memsched.report.notebook import notebook_html
from memsched.report.page_data import page_data
from memsched.report.page_words import page_words
from memsched.report.summary import MOST_LINES, print_summary
from memsched.report.values.interpreter import InterpreterSection
from memsched.report.values.optimize import OptimizeReport
from memsched.report.values.sessions import HeldBackSection, SessionRow
from memsched.report.values.shared import ProcessMemoryRow
from memsched.report.values.verdict import AlternativeRow
from memsched.report.verdict import verdict_sentence
from tests import small_models
from tests.formats import tflite_builder
from tests.report.plain import EQUAL_OUTPUTS, amended
from tests.runtimes.tflm.test_plan import three_branches

changed = msgspec.structs.replace

MB = 1 << 20

EQUAL = changed(
    EQUAL_OUTPUTS,
    runtime="onnxruntime 9",
    stated=("how often it was run is a matter of taste, which is why so much is said of it in so many words",) * 3,
)

LARGER = AlternativeRow(
    command="memsched optimize net.onnx --allow reorder,inplace,tile",
    what="layers in pieces",
    bytes=500,
    saving_bytes=540,
    extra_macs_percent=15.0,
    time_ratio=1.1,
    changes=("rounding",),
)


@pytest.fixture(scope="module")
def ordered() -> OptimizeReport:
    return memsched.optimize(small_models.branches(), verify=False).report.values


@pytest.fixture(scope="module")
def kept(ordered: OptimizeReport) -> OptimizeReport:
    assert ordered.output is not None
    guarantee = changed(ordered.output.guarantee, session_options=())
    return amended(ordered, output=changed(ordered.output, unchanged=True, guarantee=guarantee))


@pytest.fixture(scope="module")
def for_firmware() -> OptimizeReport:
    return memsched.optimize(three_branches(), target="tflm", verify=False).report.values


def shown(report: OptimizeReport, *, withheld: bool = False, terminal: bool = True) -> list[str]:
    stream = StringIO()
    console = Console(file=stream, width=80, force_terminal=terminal, color_system=None, highlight=False)
    print_summary(console, report, report_path="net.json", html_path="net.html", withheld=withheld)
    return stream.getvalue().splitlines()


def in_order(report: OptimizeReport, *begin: str, withheld: bool = False) -> None:
    """Check that lines of a summary begin so, in this order, the first at its head, and that there are few."""
    lines = shown(report, withheld=withheld)
    assert len(lines) <= MOST_LINES, lines
    places = [next((number for number, line in enumerate(lines) if line.startswith(text)), -1) for text in begin]
    assert places[0] == 0, lines
    assert places == sorted(places), lines
    assert -1 not in places, (begin, lines)
    assert shown(report, terminal=False, withheld=withheld)[0] == verdict_sentence(report)


def test_a_gain_in_an_arena_is_predicted_and_so_labeled(for_firmware: OptimizeReport) -> None:
    needed = for_firmware.verdict
    assert needed.bytes < needed.original_bytes
    begin = f"TensorFlow Lite Micro arena {needed.original_bytes:,} -> {needed.bytes:,} B (-"
    in_order(for_firmware, begin, "order: ", "quality: ", "report: ", "page: ")
    assert "predicted" in verdict_sentence(for_firmware)
    assert verdict_sentence(for_firmware).endswith("outputs not compared (not asked for)")


def test_litert_without_a_gain_says_so_in_the_first_line() -> None:
    found = memsched.optimize(tflite_builder.build(tflite_builder.branches(1)), target="litert-reference", verify=False)
    report = found.report.values
    assert report.output is not None
    assert report.output.unchanged
    in_order(report, f"LiteRT arena {report.verdict.bytes:,} B, predicted, unchanged: ", "quality: ", "report: ")


def test_a_measured_process_is_the_verdict(ordered: OptimizeReport) -> None:
    plain = SessionRow(file="given", level="all", execution_order="default", mem_reuse=True, mem_pattern=True)
    rows = (
        changed(plain, process_bytes=100 * MB),
        changed(plain, file="written", process_bytes=90 * MB, cpu_ratio=1.0),
        changed(plain, file="written", execution_order="file", process_bytes=50 * MB, cpu_ratio=1.02),
    )
    verdict = changed(ordered.verdict, time_ratio=1.02, outputs="bit_equal")
    report = amended(ordered, sessions=rows, verification=EQUAL, verdict=verdict, alternatives=(LARGER,))
    assert verdict_sentence(report) == "process memory 100.0 -> 50.0 MB (-50%), time 1.02x, outputs bit-equal"
    in_order(report, "process memory", "order: ", "quality: ", "report: ", "open with: ", "try next: ", "  memsched ")
    assert not any(line.startswith("note") for line in shown(report))
    # What varies from run to run is no gain; what a session requests is.
    same = amended(report, sessions=(*rows[:2], changed(rows[2], process_bytes=100 * MB)))
    assert "100.0 MB as before" in verdict_sentence(same)
    assert f"{ordered.verdict.original_bytes:,} -> {ordered.verdict.bytes:,} B" in verdict_sentence(same)


def test_a_file_that_is_held_back_has_its_figures(kept: OptimizeReport) -> None:
    held = HeldBackSection(
        requirement_bytes=1040,
        extra_macs_percent=0.0,
        default_peak_before_bytes=4100,
        default_peak_after_bytes=5200,
    )
    seen = changed(EQUAL, default_peak_before_bytes=4100, default_peak_after_bytes=4100)
    report = amended(kept, held_back=held, verification=seen, alternatives=(LARGER, LARGER))
    assert verdict_sentence(report).startswith("ONNX Runtime session requests 4,100 B, unchanged: ")
    in_order(report, "ONNX", "quality: ", "report: ", "not written, ", "try next: ", "  memsched ")
    text = " ".join(" ".join(shown(report)).split())
    assert "4,100 -> 5,200 B" in text
    assert "1,040 B" in text


@pytest.mark.parametrize(("size", "met"), [(2_000, True), (1_000, False)])
def test_a_budget_is_the_second_line(size: int, met: bool) -> None:
    found = memsched.optimize(small_models.branches(), verify=False, budget=size, keep_best=True).report.values
    assert found.budget is not None
    assert found.budget.met is met
    report = amended(found, alternatives=(LARGER,))
    if met:
        in_order(report, "ONNX", "budget met: ", "order: ", "quality: ", "report: ", "open with: ")
    else:
        in_order(report, "ONNX", "budget exceeded: ", "order: ", "quality: ", "no file", "try next: ", withheld=True)
    told = " ".join(" ".join(shown(report)[1:4]).split())
    assert ("to spare" in told) == met
    assert ("met by layers in pieces" in told) == (not met)


def test_an_analysis_names_the_step_at_fault() -> None:
    report = amended(memsched.analyze(small_models.branches(), budget=1_000).report.values, alternatives=(LARGER,))
    lines = shown(report, terminal=False)
    assert len(lines) <= MOST_LINES
    in_order(report, "ONNX", "budget exceeded: ", "peak of ", "   ", "order: ", "try next: ", "  memsched ")
    assert sum("wide" in line for line in lines) == 3


@pytest.mark.parametrize("grown", [False, True])
def test_the_default_interpreter_decides_where_it_was_measured(kept: OptimizeReport, grown: bool) -> None:
    memory = ProcessMemoryRow(private_bytes=28 * MB, peak_bytes=37 * MB, processes=3)
    written = changed(memory, private_bytes=21 * MB) if grown else None
    section = InterpreterSection(required_bytes=1, given=memory, written=written, time_ratio=None, refused=())
    report = amended(kept, interpreter=section)
    if grown:
        assert report.output is not None
        report = amended(report, output=changed(report.output, unchanged=False))
    expected = "28.0 -> 21.0 MB (-25%)" if grown else "28.0 MB, unchanged: "
    assert verdict_sentence(report).startswith(f"LiteRT process memory {expected}")


def test_page_and_notebook_begin_with_the_same_sentence(for_firmware: OptimizeReport) -> None:
    sentence = verdict_sentence(for_firmware)
    assert page_words(for_firmware, page_data(for_firmware)).verdict == sentence
    assert notebook_html(for_firmware).startswith(f"<div><strong>{sentence.replace('>', '&gt;')}</strong>")
