"""The page as text: whole, offline, the same bytes each time, and never what a hostile name wants it to be."""

from __future__ import annotations

import base64
import copy
import hashlib
import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from typing import Any

import pytest

from memsched.report.dump import dump_report
from memsched.report.page import render_page
from memsched.report.page_rewrites import rewrite_tables
from tests.failures import fails
from tests.report.plain import report_with, typed
from tests.report.test_page_data import chain_report, random_report
from tests.report.test_tiling import a_report, a_section

LARGEST = 5_000_000
HOSTILE = (
    "</script><script>alert(1)</script>",
    "</script ><script >alert(1)//",
    "<img src=x onerror=alert(1)>",
    "'\"><svg onload=alert(1)>",
    "-->]]><!--<script>",
    "{{ 7 * 7 }}{% raw %}",
    "a\nb\r\tc\x00\x1b[31m\x7f\u2028\u202e\ufeff",
    "\ud800 lone",
    "javascript:alert(1)",
    "&lt;b&gt; &#60;",
    "x" * 1_000_000,
)


class Page(HTMLParser):
    """What a browser would make of a page: its elements, its texts, the scripts it runs and the data it holds."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.scripts: list[str] = []
        self.data = ""
        self.texts: list[str] = []
        self._inside: str | None = None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        self._inside = tag
        if tag == "script" and dict(attrs).get("type") == "application/json":
            self._inside = "data"
        elif tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = None

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts[-1] += data
        elif self._inside == "data":
            self.data += data
        elif self._inside != "style":
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


def every_section() -> dict[str, Any]:
    """Return a report that has all that a page can show."""
    report = a_report(a_section())
    copies = [{"op": "big", "type": "Conv", "times": 2, "extra_macs": 5, "extra_bytes_moved": 7}]
    report["sections"]["recompute"] = {
        "applied": True,
        "max_extra_work_percent": 15.0,
        "extra_macs": 5,
        "extra_macs_percent": 1.0,
        "extra_bytes_moved": 7,
        "extra_work_percent": 2.0,
        "status": "feasible",
        "extra_work_bound_percent": 0.0,
        "proof": "",
        "lower_bound_bytes": 1,
        "without": {"peak_bytes": 70, "arena_bytes": 70},
        "copies": copies,
        "frontier": [],
        "judged": 1,
        "finished": True,
        "refusals": [],
        "settled": False,
    }
    body = {"graph": "then", "parent": "g", "op": "if", "ops": 1, "file_peak_bytes": 2, "peak_bytes": 1}
    report["sections"]["bodies"] = [{**body, "lower_bound_bytes": 1, "status": "optimal", "proof": "a proof"}]
    record = {
        "pass": "fusion",
        "on": "original",
        "tried": 1,
        "applied": True,
        "reason": "",
        "proof": "",
        "seconds": 0.5,
    }
    found: dict[str, Any] = {"ops_before": 1234, "ops_after": 5, "before_bytes": 60, "found_bytes": 50}
    rest = {"seconds": 0.5, "work_percent": None, "extra_macs_percent": None}
    report["ledger"] = [{**record, **found, **rest}]
    point = {"peak_bytes": 9, "extra_macs_percent": 0.0, "extra_work_percent": 0.0, "how": "order"}
    report["sections"]["frontier"] = [point, {**point, "peak_bytes": 5, "extra_macs_percent": 1.5, "how": "tile"}]
    figures = {"steps": 1, "footprint_bytes": 60, "macs": 7, "weights_bytes": None, "persistent_bytes": 5}
    layer = {"before": figures, "after": figures, "computed_in": None}
    report["sections"]["layers"] = [
        {"op": step["op"], "type": step["type"], **layer} for step in report["written"]["steps"]
    ]
    kept = {"kind": "session", "session_options": ["options.x = 1"]}
    guarantee = {**kept, "pins": None, "predicted_peak_bytes": None}
    report["output"] = {"path": "out", "sha256": "0" * 64, "unchanged": False, "guarantee": guarantee}
    report["verdict"]["notes"] = ["a note"]
    ops = [step["op"] for step in report["written"]["steps"]]
    sizes = [*range(len(ops)), 60]
    report["original"]["steps"] = [
        {"op": op, "footprint_bytes": size} for op, size in zip([*ops, "more"], sizes, strict=True)
    ]
    return report


def replaced(value: Any, names: dict[str, str]) -> Any:
    """Return a report with other names and texts, wherever they occur."""
    if isinstance(value, dict):
        return {key: replaced(item, names) for key, item in value.items()}
    if isinstance(value, list):
        return [replaced(item, names) for item in value]
    return names.get(value, value) if isinstance(value, str) else value


def hostile(report: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a report whose names, paths and notes all contain ``name``."""
    texts = {name for step in report["written"]["steps"] for name in (step["op"], step["type"], step["origin"]) if name}
    texts |= {row["tensor"] for row in report["written"]["buffers"]} | {
        "m.onnx",
        "a note",
        "a proof",
        "then",
        "if",
        "x",
        "more",
    }
    texts |= {"options.x = 1", "fusion", "big", "small"}
    changed: dict[str, Any] = replaced(report, {text: f"{text}{name}" for text in sorted(texts)})
    return changed


def test_every_section_is_there() -> None:
    report = typed(every_section())
    found = Page(render_page(report))
    parts = {"time", "map-title", "graph-title", "given", "peak", "words", "rewrites", "less", "layers", "verification"}
    assert parts <= {value for name, value in found.attributes if name == "id"}
    tables = rewrite_tables(report)
    assert len(tables) >= 2
    for words in ("1,234", "a note", "file order", "a proof", "options.x = 1", *(one.title for one in tables)):
        assert words in found.text
    assert {"html", "head", "title", "main", "table", "button", "aside", "noscript"} <= set(found.tags)
    assert found.tags.count("h1") == 1


def test_figures_of_the_report_are_in_the_text() -> None:
    report = random_report(4)
    found = Page(render_page(typed(report)))
    for figure in (report["written"]["schedule"]["peak_bytes"], report["written"]["schedule"]["arena_bytes"]):
        assert f"{figure:,} B" in found.text
    for fault in report["written"]["at_fault"]:
        assert fault["tensor"] in found.text
    assert json.loads(found.data)["figures"]["peak"] == report["written"]["schedule"]["peak_bytes"]


def test_nothing_is_asked_for() -> None:
    found = Page(render_page(typed(every_section())))
    policy = next(value for name, value in found.attributes if value and value.startswith("default-src"))
    assert policy is not None
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-eval" not in policy
    assert "http" not in policy
    allowed = re.findall(r"'sha256-([^']+)'", policy)
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in found.scripts]
    assert digests == allowed
    assert len(digests) == 4
    assert not {"link", "img", "iframe", "object", "embed", "base", "form", "a"} & set(found.tags) - {"link"}
    assert all(name not in {"src", "srcset", "action"} and not name.startswith("on") for name, _ in found.attributes)
    assert [value for name, value in found.attributes if name == "href"] == ["data:,"]
    assert not any("sourceMappingURL=" in script for script in found.scripts)


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: ascii(name)[:20])
def test_a_hostile_name_is_text(name: str) -> None:
    benign = Page(render_page(typed(hostile(every_section(), "plain"))))
    text = render_page(typed(hostile(every_section(), name)))
    found = Page(text)
    # Lines on rewrites are broken before long names.
    assert [tag for tag in found.tags if tag != "li"] == [tag for tag in benign.tags if tag != "li"]
    assert found.scripts == benign.scripts
    keys, others = ([key for key, _ in one.attributes if key != "class"] for one in (found, benign))
    assert keys == others
    json.loads(found.data)
    assert not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u202e\ufeff]", text)
    assert len(text.encode()) < LARGEST
    for value in (value for key, value in found.attributes if key == "style"):
        assert value is not None
        assert re.fullmatch(r"(flex-grow|--share): [\d.]+%?", value)


def test_the_same_report_gives_the_same_page() -> None:
    report = every_section()
    first = render_page(typed(copy.deepcopy(report)))
    assert render_page(typed(report)) == first
    code = "import json, sys; from memsched.report.page import render_page; from memsched.report.reading import "
    code += "parse_report; sys.stdout.write(render_page(parse_report(sys.stdin.buffer.read(), 'x')))"
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            input=dump_report(typed(random_report(2))).encode(),
            capture_output=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONIOENCODING": "utf-8"},
        )
        assert done.stdout.decode() == render_page(typed(random_report(2)))


def test_a_large_page_stays_small() -> None:
    worst = "\N{CJK UNIFIED IDEOGRAPH-4E00}<&>" * 60
    found = render_page(typed(chain_report(9_990, worst)))
    assert len(found.encode()) < LARGEST
    assert "Downsampled" not in found


def test_a_downsampled_page_says_so() -> None:
    found = Page(render_page(typed(chain_report(12_000))))
    assert " of 12,000 steps" in found.text
    assert " of 12,001 buffers" in found.text
    assert "merged" in found.text


def test_a_graph_without_steps() -> None:
    from memsched.graph.model import Graph, Tensor

    report = report_with(Graph("none", (Tensor("x", 10),), (), (0,), (0,)), ())
    found = Page(render_page(report))
    assert "no steps" in found.text
    assert json.loads(found.data)["figures"]["peakStep"] == -1


@pytest.mark.parametrize("name", ["bokeh", "jinja2"])
def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr("memsched.report.page.util.find_spec", lambda module: None if module == name else object())
    with fails("not-installed", name, "pip install bokeh jinja2"):
        render_page(typed(every_section()))


def test_what_helps_is_a_section_with_commands_to_paste() -> None:
    report = a_report(a_section())
    assert 'id="suggestions"' not in render_page(typed(report))
    one = {"command": "memsched optimize '<i>.onnx'", "what": "pieces", "bytes": 750, "changes": []}
    figures = {"saving_bytes": 250, "extra_macs_percent": 0.0, "time_ratio": None}
    text = render_page(typed({**report, "alternatives": [{**one, **figures}]})).replace("\N{NO-BREAK SPACE}", " ")
    assert "pieces, 1,000 -&gt; 750 B (-25%)" in text
    assert "<code>memsched optimize &#39;&lt;i&gt;.onnx&#39;</code>" in text
