"""What people see: in a real pseudo-terminal of several widths, without colours, in ASCII, through a closed pipe."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memsched.report.chart import chart_rows
from memsched.report.summary import MOST_LINES
from scripts.terminal_images import draw, printed
from tests import small_models
from tests.cli.conftest import Run
from tests.outcomes import line_with

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
LONG = "a_very_long_name_of_a_layer/of_a_block/of_a_network/that_nobody_shortened"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    data = small_models.branches(count=6)
    for number in range(6):
        data = _renamed(data, f"wide{number}", f"{LONG}/{number}")
    (tmp_path / "net.onnx").write_bytes(data)
    return tmp_path


def _renamed(data: bytes, old: str, new: str) -> bytes:
    import onnx

    model = onnx.load_model_from_string(data)
    for node in model.graph.node:
        node.input[:] = [new if name == old else name for name in node.input]
        node.output[:] = [new if name == old else name for name in node.output]
    return bytes(model.SerializeToString(deterministic=True))


@pytest.mark.parametrize("columns", [60, 80, 160])
@pytest.mark.parametrize("budget", ["6KB", "1KB"])
def test_no_line_is_broken_at_any_width(folder: Path, columns: int, budget: str) -> None:
    text = printed(["optimize", "net.onnx", "--no-verify", "--budget", budget], columns, folder)
    plain = ESCAPES.sub("", text)
    # Code to be copied is not broken.
    assert len(plain.splitlines()) <= MOST_LINES
    lines = [line for line in plain.splitlines() if not line.startswith(("open with: ", "  memsched "))]
    assert max(map(len, lines)) <= columns
    assert f"budget {'met' if budget == '6KB' else 'exceeded'}" in plain
    # Further lines of a sentence are indented, and no number loses its unit.
    assert not any(re.match(r" *(B|KB|%)\b", line) for line in lines)


@pytest.mark.parametrize("columns", [60, 80, 160])
def test_names_fit_into_any_width_and_are_whole_where_asked(folder: Path, columns: int) -> None:
    plain = ESCAPES.sub("", printed(["analyze", "net.onnx"], columns, folder))
    shown = [line for line in plain.splitlines() if "a_very" in line and "step" not in line]
    assert shown
    assert max(map(len, shown)) <= columns
    assert all(re.search(r"/\d$", line) for line in shown)
    assert (LONG in plain) == (columns == 160)
    plain = ESCAPES.sub("", printed(["optimize", "net.onnx", "--no-verify", "-v"], columns, folder))
    assert LONG in plain
    assert re.search(r"file order +│[ ▁-█╌]+$", plain, re.MULTILINE)
    assert re.search(r"memsched +│[ ▁-█╌]+$", plain, re.MULTILINE)


def test_a_terminal_that_knows_ascii_only(folder: Path) -> None:
    text = printed(["analyze", "net.onnx", "-v"], 80, folder, PYTHONIOENCODING="ascii")
    text.encode("ascii")
    assert re.search(r"^file order +\|[ .:#]+$", ESCAPES.sub("", text), re.MULTILINE)


def test_colours_and_their_absence(folder: Path) -> None:
    command = ["optimize", "net.onnx", "--no-verify", "--budget", "6KB"]
    assert "\x1b[32m" in printed(command, 80, folder)
    for text in (printed(command, 80, folder, NO_COLOR="1"), printed([*command, "--no-color"], 80, folder)):
        assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", text)
        assert "budget met" in text


def test_progress_has_best_bound_and_gap(folder: Path) -> None:
    text = printed(["optimize", "net.onnx"], 60, folder, stdout_only=False)
    assert re.search(r"[a-z ]+: [\d,]+ B, bound [\d,]+, gap \d+\.\d %  \d+\.\d s", text)
    assert max(len(line) for line in re.split(r"[\r\n]+", ESCAPES.sub("\n", text)) if "gap" in line) <= 60


def test_a_pipe_gets_whole_lines_and_no_picture(run: Run, folder: Path) -> None:
    done = run("analyze", folder / "net.onnx", "--budget", "2KB")
    assert done.code == 3
    assert any(line.startswith("budget exceeded") and len(line) > 100 for line in done.out.splitlines())
    assert "│" not in done.out
    assert "│" in run("analyze", folder / "net.onnx", "-v").out


@pytest.mark.parametrize("command", ["analyze net.onnx", "analyze net.onnx --json -q", "--help", "--completion zsh"])
def test_head(folder: Path, command: str) -> None:
    line = f"set -o pipefail; {sys.executable} -m memsched {command} | head -1"
    done = subprocess.run(["bash", "-c", line], cwd=folder, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\n") == 1


def test_analyze_says_whether_it_fits(run: Run, folder: Path) -> None:
    model = folder / "net.onnx"
    assert run("analyze", model, "--budget", "1MB").code == 0
    assert "to spare" in run("analyze", model, "--budget", "1MB").out
    quiet = run("analyze", model, "--budget", "1KB", "-q")
    assert (quiet.code, quiet.out) == (3, "")
    assert "budget exceeded" in quiet.err
    assert line_with(run("analyze", model, "--budget", "4KB").out, " 4,096 B ", "met by another order")


def test_a_picture_of_a_terminal_needs_no_network() -> None:
    picture = draw("\x1b[32mgreen\x1b[0m ▁▂\n", 60, "memsched analyze model.onnx")
    assert "green" in picture
    assert "font-face" not in picture


@given(
    st.lists(st.integers(0, 10**12), min_size=1, max_size=300),
    st.integers(1, 130),
    st.integers(1, 5),
    st.booleans(),
)
def test_a_chart_loses_no_peak(footprints: list[int], columns: int, rows: int, blocks: bool) -> None:
    scale = max(1, *footprints)
    lines = chart_rows(footprints, columns, scale=scale, rows=rows, blocks=blocks)
    assert [len(line) for line in lines] == [columns] * rows
    marks = " ▁▂▃▄▅▆▇█" if blocks else " .:#"
    heights = [sum(marks.index(line[column]) for line in lines) for column in range(columns)]
    assert (max(heights) == rows * (len(marks) - 1)) == (max(footprints) > 0)
    if columns >= len(footprints):
        assert set(heights) == {-(-value * rows * (len(marks) - 1) // scale) for value in footprints}
    else:
        assert max(heights) <= rows * (len(marks) - 1)


def test_a_budget_is_a_line_where_nothing_is_drawn() -> None:
    assert chart_rows([1, 6], 2, scale=6, budget=5, rows=3) == ["╌█", " █", "▄█"]
    assert chart_rows([1, 6], 2, scale=6, budget=6, blocks=False, rows=3) == ["-#", " #", ":#"]
