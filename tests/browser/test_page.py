"""The page in a browser: it opens, shows the report's figures, and can be pointed at, followed and driven by keys."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

import memsched
from memsched.graph.model import Graph, Op, Tensor
from memsched.report.page_data import page_data
from scripts.networks.growth import layered
from tests.browser.conftest import Show
from tests.report.plain import plain, report_with, typed
from tests.report.test_page import HOSTILE, every_section, hostile
from tests.small_models import branches

NASNET = Path(__file__).parents[2] / "models" / "nasnetmobile_int8.tflite"


@pytest.fixture(scope="module")
def nasnet() -> dict[str, Any]:
    result = memsched.optimize(NASNET, target="tflm", verify=False)
    report: dict[str, Any] = json.loads(result.report.to_json())
    return report


def largest(report: dict[str, Any]) -> dict[str, Any]:
    """Return the buffer with the largest rectangle, which is easy to hit."""
    rows = [row for row in report["written"]["buffers"] if row["view_of"] is None and not row["consists_of"]]
    found: dict[str, Any] = max(
        rows, key=lambda row: row["size_bytes"] * min(50, row["last_step"] - row["first_step"] + 1)
    )
    return found


def middle(row: dict[str, Any]) -> tuple[float, float]:
    return (row["first_step"] + row["last_step"]) / 2, (row["offset_bytes"] + row["size_bytes"] / 2) / 1024


def test_it_opens_without_a_word_and_asks_for_nothing(show: Show, nasnet: dict[str, Any]) -> None:
    page = show(nasnet)
    page.driver.get_log("performance")
    page = show(nasnet)
    assert page.messages() == []
    assert page.seconds < 5
    sent = [json.loads(entry["message"])["message"] for entry in page.driver.get_log("performance")]
    asked = [one["params"]["request"]["url"] for one in sent if one["method"] == "Network.requestWillBeSent"]
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert len([url for url in asked if url.startswith("file:")]) == 1


def test_it_shows_the_figures_of_the_report(show: Show, nasnet: dict[str, Any]) -> None:
    page = show(nasnet)
    before = nasnet["original"]["schedule"]
    assert f"takes {nasnet['sections']['requirement']['bytes']:,} bytes" in page.text("h1")
    legend = page.text("#footprint-legend")
    assert f"after: peak {nasnet['written']['schedule']['peak_bytes']:,} B" in legend
    assert f" peak {before['peak_bytes']:,} B" in legend.partition("before")[2]
    rows = page.js("return [...document.querySelectorAll('#faults tbody tr')].map((row) => row.innerText)")
    for fault, row in zip(nasnet["written"]["at_fault"], rows, strict=False):
        assert fault["tensor"] in row
        assert f"{fault['size_bytes']:,}" in row
    assert page.shown_steps() == (0, len(nasnet["written"]["steps"]) - 1)
    lines = page.js("""
        const plot = Bokeh.documents[0].roots()[0];
        return plot.renderers.filter((each) => each.glyph.type === "Step").map((each) => [...each.data_source.data.y]);
    """)
    assert [size * 1024 for size in lines[0]] == before["footprints_bytes"]
    assert [size * 1024 for size in lines[1]] == [step["footprint_bytes"] for step in nasnet["written"]["steps"]]
    # Every rectangle is where the report says.
    quads = page.js("""
        const plot = Bokeh.documents[0].roots()[1];
        const drawn = plot.renderers.filter((each) => each.glyph.line_width?.value !== 2.2);
        const data = drawn.map((each) => each.data_source.data).filter((each) => each.name?.length);
        const sides = ["left", "right", "bottom", "top"];
        return data.flatMap((each) => each.name.map((name, i) => [name, ...sides.map((side) => each[side][i])]));
    """)
    expected = [
        [
            *(row["tensor"], row["first_step"] - 0.5, row["last_step"] + 0.5),
            *(row["offset_bytes"] / 1024, (row["offset_bytes"] + row["size_bytes"]) / 1024),
        ]
        for row in nasnet["written"]["buffers"]
        if row["view_of"] is None and not row["consists_of"] and row["size_bytes"]
    ]
    for row in nasnet["written"]["workspaces"]:
        low, high = row["offset_bytes"] / 1024, (row["offset_bytes"] + row["size_bytes"]) / 1024
        expected.append([f"workspace of {row['op']}", row["step"] - 0.5, row["step"] + 0.5, low, high])
    assert sorted(quads) == sorted(expected)


def test_pointing_names_the_buffer_and_the_step(show: Show, nasnet: dict[str, Any]) -> None:
    page = show(nasnet)
    row = largest(nasnet)
    page.move("map0", *middle(row))
    found = page.tooltip()
    assert row["tensor"] in found
    assert f"{row['size_bytes']:,} B" in found
    assert f"{row['offset_bytes']:,}" in found
    assert f"steps {row['first_step']:,} to {row['last_step']:,}" in found
    step = nasnet["written"]["steps"][100]
    page.move("footprint", 100, step["footprint_bytes"] / 2048)
    assert step["op"] in page.tooltip()
    assert f"{step['footprint_bytes']:,} B" in page.tooltip()


def test_a_click_leads_to_maker_and_readers(show: Show, nasnet: dict[str, Any]) -> None:
    page = show(nasnet)
    row = largest(nasnet)
    page.tap("map0", *middle(row))
    found = page.text("#inspector")
    assert found.startswith(row["tensor"])
    for step in (row["produced_in"], *row["read_in"]):
        assert (
            f"step {step:,}: {nasnet['written']['steps'][step]['type']} {nasnet['written']['steps'][step]['op']}"
            in found
        )
    made = {other["tensor"] for other in nasnet["written"]["buffers"] if other["produced_in"] in row["read_in"]}
    read = {other["tensor"] for other in nasnet["written"]["buffers"] if row["produced_in"] in other["read_in"]}
    outlined = page.js("""
        const plot = Bokeh.documents[0].roots()[1];
        const of = (colour) => plot.renderers.filter((each) => each.glyph.line_width?.value === 2.2)
            .map((each) => [...each.data_source.data.name]);
        return of();
    """)
    assert [set(names) for names in outlined] == [read, made, {row["tensor"]}]
    name = min(made)
    page.click(f"#inspector [data-buffer='{page_data(typed(nasnet)).values.buffers.name.index(name)}']")
    assert page.text("#inspector").startswith(name)
    page.click("#inspector [data-step]")
    assert page.text("#inspector h3").startswith("step ")
    page.tap("footprint", 70, 500)
    assert (
        page.text("#inspector h3")
        == f"step 70: {nasnet['written']['steps'][70]['type']} {nasnet['written']['steps'][70]['op']}"
    )
    page.tap("map0", len(nasnet["written"]["steps"]) - 3, 880)
    assert page.text("#inspector").startswith("Nothing ")


def test_the_table_leads_to_the_map(show: Show, nasnet: dict[str, Any]) -> None:
    page = show(nasnet)
    page.click("#faults [data-buffer]")
    assert page.text("#inspector").startswith(nasnet["written"]["at_fault"][0]["tensor"])


def test_zoom_by_wheel_buttons_and_dragging(show: Show, nasnet: dict[str, Any]) -> None:
    page = show(nasnet)
    whole = page.shown_steps()
    page.wheel("map0", 200, 300, -400)
    first, last = page.shown_steps()
    assert 0 < first < 200 < last < whole[1]
    ranges = page.js("return Bokeh.documents[0].roots().map((each) => [each.x_range.start, each.x_range.end])")
    assert ranges[0] == ranges[1]
    page.click("[data-act='all']")
    assert page.shown_steps() == whole
    page.click("[data-act='in']")
    first, last = page.shown_steps()
    assert last - first < 0.7 * whole[1]
    page.click("[data-act='right']")
    assert page.shown_steps()[0] > first
    page.click("[data-act='out']")
    page.click("[data-act='out']")
    assert page.shown_steps() == whole
    page.click("[data-act='peak']")
    peak = page_data(typed(nasnet)).values.figures.peak_step
    first, last = page.shown_steps()
    assert first <= peak <= last < first + 70
    page.click("[data-act='all']")
    page.click("[data-act='box']")
    (left, top), (right, bottom) = page.point("map0", 100, 600), page.point("map0", 200, 100)
    page.mouse("mousePressed", left, top, button="left", clickCount=1)
    for share in (0.3, 0.6, 1.0):
        x, y = left + share * (right - left), top + share * (bottom - top)
        page.mouse("mouseMoved", x, y, button="left", buttons=1)
    page.mouse("mouseReleased", right, bottom, button="left", clickCount=1)
    page.settle()
    first, last = page.shown_steps()
    assert 95 <= first <= 105
    assert 195 <= last <= 205


def test_everything_by_keyboard(show: Show, nasnet: dict[str, Any]) -> None:
    page = show(nasnet)
    right, up, page_up, escape, enter, tab = (
        *("\ue014", "\ue013", "\ue00e"),
        *("\ue00c", "\ue007", "\ue004"),
    )
    whole = page.shown_steps()
    page.press("#footprint", "+", "+")
    first, last = page.shown_steps()
    assert last - first < whole[1] / 2
    page.press("#footprint", right)
    assert page.shown_steps()[0] > first
    page.press("#footprint", "-", "0")
    assert page.shown_steps() == whole
    page.press("#map0", "p")
    assert page.shown_steps() != whole
    script = "const range = Bokeh.documents[0].roots()[1].y_range; return range.end - range.start"
    before = page.js(script)
    page.press("#map0", page_up, up)
    assert page.js(script) < before
    page.press("#map0", "0", "n")
    first_buffer = page.text("#inspector h3")
    page.press("#map0", "n")
    assert page.text("#inspector h3") != first_buffer
    page.press("#map0", "b")
    assert page.text("#inspector h3") == first_buffer
    page.press("#map0", escape)
    assert page.text("#inspector").startswith("Nothing ")
    name = nasnet["written"]["at_fault"][0]["tensor"]
    page.press("#search", name)
    assert "found" in page.text("#found")
    page.press("#search", tab, enter)
    assert page.text("#inspector").startswith(name)
    reached = page.js("""
        const wanted = [...document.querySelectorAll("button, input, .plot, .scroll")];
        return wanted.filter((each) => each.tabIndex < 0 || each.offsetParent === null).map((each) => each.outerHTML);
    """)
    assert reached == []


def test_light_and_dark(show: Show, nasnet: dict[str, Any]) -> None:
    ground = "return getComputedStyle(document.body).backgroundColor"
    plot = "return Bokeh.documents[0].roots().map((each) => each.background_fill_color)"
    page = show(nasnet, scheme="light")
    light = page.js(ground), page.js(plot)
    page = show(nasnet, scheme="dark")
    dark = page.js(ground), page.js(plot)
    assert light[0] == "rgb(251, 251, 249)"
    assert dark[0] == "rgb(20, 24, 28)"
    assert light[1] == ["#ffffff"] * 3
    assert dark[1] == ["#1b2127"] * 3
    page.click("#theme")
    assert (page.js(ground), page.js(plot)) == light
    page.click("#theme")
    assert (page.js(ground), page.js(plot)) == dark
    assert page.messages() == []


@pytest.mark.parametrize("width", [400, 900, 1600])
def test_it_fits_into_a_window(show: Show, width: int) -> None:
    page = show(every_section(), width=width)
    assert page.js("return document.documentElement.scrollWidth") <= width
    assert page.js("return document.getElementById('map0').getBoundingClientRect().width") > width / 3
    assert page.messages() == []


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: ascii(name)[:20])
def test_hostile_names_are_only_names(show: Show, name: str) -> None:
    report = hostile(every_section(), name)
    page = show(report)
    assert page.messages() == []
    assert page.js("return document.querySelectorAll('script').length") == 5
    assert page.js("return document.querySelectorAll('img, svg[onload], iframe').length") == 0
    row = largest(report)
    x, y = middle(row)
    page.move("map0", x, y * 1024)
    assert page.tooltip()
    page.tap("map0", x, y * 1024)
    assert page.text("#inspector h3")
    page.press("#search", "a")
    assert page.js("return document.querySelectorAll('img, iframe').length") == 0
    assert page.messages() == []


def test_a_page_made_of_100_000_steps(show: Show) -> None:
    graph = layered(100_000)
    report = plain(report_with(graph, tuple(range(len(graph.ops)))))
    footprints = [step["footprint_bytes"] + random.Random(0).randrange(99) for step in report["written"]["steps"]]
    report["original"]["schedule"] |= {"ops": [op.name for op in graph.ops], "footprints_bytes": footprints}
    page = show(report)
    assert page.path.stat().st_size < 5_000_000
    assert page.seconds < 5
    assert " of 100,000 steps" in page.text("#downsampled")
    assert page.shown_steps() == (0, 99_999)
    page.click("[data-act='peak']")
    assert page.shown_steps()[0] > 0
    page.wheel(
        "footprint",
        report["written"]["steps"].index(max(report["written"]["steps"], key=lambda s: s["footprint_bytes"])),
        300,
        -200,
    )
    page.press("#map0", "n", "n")
    assert page.text("#inspector h3")
    assert page.messages() == []


def graphs_of_few_ops() -> list[Graph]:
    lone = Graph("lone", (Tensor("x", 10), Tensor("y", 0)), (Op("op", "Op", (0,), (1,)),), (0,), (1,))
    return [Graph("none", (Tensor("x", 10),), (), (0,), (0,)), Graph("empty", (), (), (), ()), lone]


@pytest.mark.parametrize("graph", graphs_of_few_ops(), ids=lambda graph: graph.name)
def test_hardly_anything_to_draw(show: Show, graph: Graph) -> None:
    page = show(plain(report_with(graph, tuple(range(len(graph.ops))))))
    if graph.ops:
        page.press("#footprint", "+", "p", "n", "0")
        page.tap("map0", 0, 0)
    else:
        assert "no steps" in page.text("main")
        page.click("#theme")
    assert page.messages() == []
    assert page.text("h1")


def test_several_memories(show: Show, tmp_path: Path) -> None:
    tomls = 'name = "two"\nruntime = ""\n[[pools]]\nname = "<b>near"\nsize = "1KB"\n[[pools]]\nname = "far"\ncost = 9\n'
    target = tmp_path / "two.toml"
    target.write_text(tomls, encoding="utf-8")
    report = dict(memsched.analyze(branches(), target=str(target)).report.data)
    page = show(report)
    names = list(dict.fromkeys(row["pool"] for row in report["written"]["buffers"]))
    assert sorted(names) == ["<b>near", "far"]
    for place, name in enumerate(names):
        row = largest({"buffers": [row for row in report["written"]["buffers"] if row["pool"] == name]})
        unit = page_data(typed(report)).values.unit.factor
        x, y = middle(row)
        page.tap(f"map{place}", x, y * 1024 / unit)
        assert page.text("#inspector h3") == row["tensor"]
    assert page.messages() == []


def test_it_is_printed_in_light_colours(show: Show, nasnet: dict[str, Any]) -> None:
    page = show(nasnet, scheme="dark")
    corner = """
        const canvas = Bokeh.index.roots[0].canvas_view.primary.canvas;
        return [...canvas.getContext("2d").getImageData(5, 5, 1, 1).data];
    """
    assert page.js(corner)[:3] == [27, 33, 39]
    page.js("dispatchEvent(new Event('beforeprint'))")
    assert page.js("return document.documentElement.dataset.theme") == "light"
    assert page.js(corner)[:3] == [255, 255, 255]
    page.js("dispatchEvent(new Event('afterprint'))")
    page.settle()
    assert page.js(corner)[:3] == [27, 33, 39]


def test_without_scripts_the_tables_are_there(show: Show, nasnet: dict[str, Any]) -> None:
    page = show(nasnet)
    page.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        page.driver.get(page.path.as_uri())
        text = page.driver.find_element("tag name", "body").text
    finally:
        page.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    assert "JavaScript" in text
    assert nasnet["written"]["at_fault"][0]["tensor"] in text


@pytest.mark.parametrize("width", [390, 1280])
def test_long_names_wrap(show: Show, width: int) -> None:
    name = "a_block_" * 60
    report = hostile(every_section(), name)
    page = show(report, width=width)
    row = largest(report)
    page.tap("map0", *(middle(row)[0], middle(row)[1] * 1024))
    wide = """
        const all = [...document.querySelectorAll("main *, header *, footer *")];
        const cut = (each) => each.clientWidth && each.scrollWidth > each.clientWidth + 1;
        const beside = (each) => each.getBoundingClientRect().right > innerWidth;
        const out = all.filter((each) => !each.closest(".plot, .scroll") && (beside(each) || cut(each)));
        return [document.documentElement.scrollWidth, out.map((each) => each.outerHTML.slice(0, 80))];
    """
    assert page.js(wide) == [width, []]
    # In tables, too, which may be wider than the window: no column takes all of it.
    wide = """
        const cells = [...document.querySelectorAll("td")];
        const widest = cells.filter((each) => each.getBoundingClientRect().width > arguments[0]);
        return widest.map((each) => each.outerHTML.slice(0, 120));
    """
    assert page.js(wide, max(width, 700)) == []
    assert page.messages() == []


def test_no_line_ends_between_a_figure_and_its_unit(show: Show, nasnet: dict[str, Any]) -> None:
    page = show(nasnet, width=390)
    texts = page.js("""
        const where = "h1, .lead, .cards .more, #peak + p, .findings li, #proof, #inspector p";
        const parts = document.querySelectorAll(where);
        return [...parts].map((each) => each.textContent);
    """)
    assert len(texts) > 10
    assert any(re.search("\\d\N{NO-BREAK SPACE}(%|B)", text) for text in texts)
    assert [text for text in texts if re.search(r"\d (%|[KMG]?B\b)", text)] == []
    assert not any("\\x" in text for text in texts)
