"""What notebooks show of results: well-formed, without scripts, and names are text."""

from __future__ import annotations

import itertools
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

import memsched
from memsched.report.notebook import notebook_html
from tests import small_models
from tests.formats.onnx_builder import make, node, value

VOID = {"polygon", "polyline"}
HOSTILE = "<script>alert(1)</script>&\"'\x1b[31m"


class Reader(HTMLParser):
    """Collects elements and text, and fails where they are not nested."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert not any(name.startswith("on") for name, _ in attrs)
        self.seen.append(tag)
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in VOID
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_result_shows_picture_figures_and_findings() -> None:
    result = memsched.optimize(small_models.branches(), verify=False)
    html = result._repr_html_()
    assert html == result.report._repr_html_()
    found = Reader(html)
    assert {"svg", "polygon", "polyline", "table", "li"} <= set(found.seen)
    assert f"{result.schedule.peak:,}" in found.text
    assert "proven optimal" in found.text
    points = re.findall(r'<poly\w+ points="([^"]+)"', html)
    assert len(points) == 2
    for one in points:
        assert all(0 <= float(x) <= 640 and 0 <= float(y) <= 120 for x, y in (pair.split(",") for pair in one.split()))


def test_an_analysis_has_no_order_of_ours() -> None:
    found = Reader(memsched.analyze(small_models.branches())._repr_html_())
    assert "polyline" in found.seen
    assert "polygon" not in found.seen


def test_long_graphs_have_a_step_for_each_pixel() -> None:
    names = ["x", *(f"t{number}" for number in range(2000))]
    nodes = [node("Relu", one, other) for one, other in itertools.pairwise(names)]
    model = make(nodes, [value("x", [8])], [value(names[-1], [8])])
    html = memsched.optimize(model.SerializeToString(), verify=False)._repr_html_()
    assert len(html) < 60_000


def test_names_are_text(tmp_path: Path) -> None:
    model = make([node("Relu", "x", HOSTILE)], [value("x", [8])], [value(HOSTILE, [8])])
    path = tmp_path / "<img src=x onerror=alert(1)>.onnx"
    path.write_bytes(model.SerializeToString())
    found = Reader(memsched.optimize(str(path), verify=False)._repr_html_())
    assert "script" not in found.seen
    assert "img" not in found.seen
    assert "\x1b" not in found.text


@pytest.mark.parametrize("kind", ["diff", "allocate"])
def test_other_reports(tmp_path: Path, kind: str) -> None:
    if kind == "diff":
        old, new = (memsched.analyze(small_models.branches(count)).report.data for count in (4, 8))
        report = memsched.compare_reports(old, new, names=("<a>", "<b>"), fail_percent=1.0)
        found = Reader(report._repr_html_())
        assert "table" in found.seen
        assert report.values.failed
        assert report.values.models[0].regressions
        assert [one for one in report.values.models[0].regressions if one not in found.text] == []
    else:
        (tmp_path / "a.csv").write_text("id,lower,upper,size\n<i>,0,2,64\nb,1,3,64\n")
        result = memsched.allocate_buffers(str(tmp_path / "a.csv"))
        found = Reader(result._repr_html_())
        assert found.seen == ["details", "summary", "pre"]
        assert "<i>" in found.text
        assert notebook_html(result.report.values) == result._repr_html_()
