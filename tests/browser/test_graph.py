"""The graph on the page: an op chosen in any of the three pictures is chosen in all of them."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

import memsched
from memsched.graph.model import Graph, Op, Tensor
from scripts.networks.growth import layered
from tests.browser.conftest import Show, Shown
from tests.report.plain import plain, report_with

MODELS = Path(__file__).parents[2] / "models"
FIVE = (
    "hello_world_int8.tflite",
    "person_detect.tflite",
    "nasnetmobile_int8.tflite",
    "networks/randwire1.onnx",
    "networks/transformer.onnx",
)
CHOSEN = """
    const [time, map, graph] = Bokeh.documents[0].roots();
    const quads = (plot) => plot.renderers.filter((each) => each.glyph.type === "Quad");
    const outlined = (plot, width) => quads(plot).filter((each) => each.glyph.line_width.value === width);
    const middles = ({ left, right, bottom, top }) =>
        [...left].map((each, i) => [(each + right[i]) / 2, (bottom[i] + top[i]) / 2]);
    const bands = quads(time).filter((each) => each.glyph.fill_alpha.value === 0.35);
    const of = (plot, width, what) => Object.fromEntries(
        ["source", "sink", "chosen"].map((name, place) => [name, what(outlined(plot, width)[place].data_source.data)])
    );
    return {
        made: [...bands[0].data_source.data.left].map((each) => each + 0.5),
        read: [...bands[1].data_source.data.left].map((each) => each + 0.5),
        buffers: of(map, 2.2, (data) => [...data.name]),
        ops: of(graph, 2.6, middles),
    };
"""
VIEW = """
    const { x_range, y_range } = Bokeh.documents[0].roots().at(-1);
    return [x_range.start, x_range.end, y_range.start, y_range.end];
"""


@pytest.fixture(scope="module")
def nasnet() -> dict[str, Any]:
    result = memsched.optimize(MODELS / "nasnetmobile_int8.tflite", target="tflm", verify=False)
    report: dict[str, Any] = json.loads(result.report.to_json())
    return report


def boxes(page: Shown) -> dict[str, tuple[float, float]]:
    """Return what the ops drawn are called, and where they lie."""
    script = """
        const { renderers } = Bokeh.documents[0].roots().at(-1);
        const data = renderers.map((each) => each.data_source.data).find((each) => each.shade);
        const middle = (i) => [(data.left[i] + data.right[i]) / 2, (data.bottom[i] + data.top[i]) / 2];
        return data.name.map((name, i) => [name, ...middle(i)]);
    """
    return {str(name): (float(x), float(y)) for name, x, y in page.js(script)}


def step_of(name: str) -> int:
    return int(name.split(":", maxsplit=1)[0].removeprefix("step ").replace(",", ""))


def test_an_op_chosen_in_the_graph_is_chosen_everywhere(show: Show, nasnet: dict[str, Any]) -> None:
    page = show(nasnet)
    shown = boxes(page)
    assert shown
    name = sorted(shown, key=step_of)[len(shown) // 2]
    step = step_of(name)
    page.tap("graph", *shown[name])
    assert page.text("#inspector h3") == name
    found = page.js(CHOSEN)
    made = {
        row["tensor"] for row in nasnet["written"]["buffers"] if row["produced_in"] == step and row["view_of"] is None
    }
    read = {row["tensor"] for row in nasnet["written"]["buffers"] if step in row["read_in"] and row["view_of"] is None}
    assert found["made"] == [step]
    assert set(found["written"]["buffers"]["sink"]) == made
    assert set(found["written"]["buffers"]["source"]) == read
    assert found["ops"]["chosen"] == [list(shown[name])]
    assert len(found["ops"]["source"]) == len(
        {r["produced_in"] for r in nasnet["written"]["buffers"] if step in r["read_in"]}
    )
    readers = {each for r in nasnet["written"]["buffers"] if r["produced_in"] == step for each in r["read_in"]}
    assert len(found["ops"]["sink"]) == len(readers)
    page.press("#graph", "\ue00c")
    assert page.text("#inspector").startswith("Nothing ")
    assert page.js(CHOSEN)["ops"] == {"source": [], "sink": [], "chosen": []}
    assert page.messages() == []


def test_a_step_and_a_buffer_are_shown_in_the_graph(show: Show, nasnet: dict[str, Any]) -> None:
    page = show(nasnet)
    page.tap("footprint", 400, 300)
    title = page.text("#inspector h3")
    assert title.startswith("step 400: ")
    place = boxes(page)[title]
    assert page.js(CHOSEN)["ops"]["chosen"] == [list(place)]
    left, right, bottom, top = page.js(VIEW)
    assert left < place[0] < right
    assert bottom < place[1] < top
    page.click("[data-act='peak']")
    first, last = page.shown_steps()
    row = max(
        (row for row in nasnet["written"]["buffers"] if (row["produced_in"] or 0) > 450),
        key=lambda row: row["size_bytes"],
    )
    page.press("#search", row["tensor"])
    page.press("#search", "\ue004", "\ue007")
    assert page.text("#inspector h3") == row["tensor"]
    found = page.js(CHOSEN)
    assert found["made"] == [row["produced_in"]]
    assert found["read"] == row["read_in"]
    # What lies outside what was shown of the steps is moved into it.
    now = page.shown_steps()
    assert now[0] <= row["produced_in"] <= now[1]
    assert now[1] - now[0] == pytest.approx(last - first, abs=1)
    assert len(found["ops"]["chosen"]) == 1
    assert page.messages() == []


def test_the_largest_are_chosen_at_first(show: Show, nasnet: dict[str, Any]) -> None:
    page = show(nasnet)
    wanted = [row["tensor"] for row in nasnet["written"]["at_fault"][:3]]
    assert page.js(CHOSEN)["buffers"]["chosen"] == wanted
    text = page.text("#inspector")
    for row in nasnet["written"]["at_fault"][:3]:
        assert row["tensor"] in text
        assert f"{row['size_bytes']:,}" in text
    made = [row["produced_in"] for row in nasnet["written"]["buffers"] if row["tensor"] in wanted]
    assert len(page.js(CHOSEN)["ops"]["chosen"]) == len([step for step in made if step is not None])


def test_the_panel_says_shape_and_type_and_copies_names(show: Show, nasnet: dict[str, Any]) -> None:
    page = show(nasnet)
    page.click("#faults [data-buffer]")
    row = next(
        row for row in nasnet["written"]["buffers"] if row["tensor"] == nasnet["written"]["at_fault"][0]["tensor"]
    )
    assert f"{chr(0xD7).join(map(str, row['shape']))} {row['dtype']}" in page.text("#inspector")
    page.js("window.copied = []; navigator.clipboard.writeText = async (text) => copied.push(text)")
    page.click("#inspector .copy")
    assert page.js("return copied") == [row["tensor"]]
    page.js("navigator.clipboard.writeText = () => Promise.reject()")
    page.click("#inspector [data-step]")
    page.click("#inspector .copy")
    assert "Netron" in page.text("#inspector .copy")


def test_moving_about_by_wheel_keys_and_buttons(show: Show, nasnet: dict[str, Any]) -> None:
    page = show(nasnet)
    left, right, bottom, top = page.js(VIEW)
    middle = (left + right) / 2, (bottom + top) / 2
    scrolled = page.js("return scrollY")
    page.wheel("graph", *middle, -300)
    near = page.js(VIEW)
    assert near[3] - near[2] < top - bottom
    # What was under the mouse stays there.
    assert (near[0] + near[1]) / 2 == pytest.approx(middle[0], abs=3)
    page.press("#graph", "0")
    whole = page.js(VIEW)
    depth = min(y for _, y in page.js(CHOSEN)["ops"]["chosen"])
    assert whole[2] < depth
    assert whole[3] - whole[2] > 5 * (top - bottom)
    assert "567 of 567 ops" in page.text("#graph-view")
    page.press("#graph", "p", "\ue015")
    assert page.js(VIEW)[3] < top + 1
    page.click("[data-graph='in']")
    page.press("#graph", "n")
    first = page.text("#inspector h3")
    page.press("#graph", "n")
    assert step_of(page.text("#inspector h3")) == step_of(first) + 1
    page.press("#graph", "b", "-", "+")
    assert page.text("#inspector h3") == first
    (x, y), before = page.point("graph", *middle), page.js(VIEW)
    page.mouse("mousePressed", x, y, button="left", clickCount=1)
    for share in (20, 40, 60):
        page.mouse("mouseMoved", x, y - share, button="left", buttons=1)
    page.mouse("mouseReleased", x, y - 60, button="left", clickCount=1)
    page.settle()
    assert page.js(VIEW)[2] < before[2]
    assert scrolled == 0
    assert page.messages() == []


def test_a_graph_of_100_000_ops(show: Show) -> None:
    graph = layered(100_000)
    page = show(plain(report_with(graph, tuple(range(len(graph.ops))))))
    assert 1 <= len(boxes(page)) < 200
    page.press("#graph", "0")
    assert page.text("#graph-view").startswith("100,000 of 100,000 ops, ")
    assert boxes(page) == {}
    cells = """
        const { renderers } = Bokeh.documents[0].roots().at(-1);
        return renderers.find((each) => each.glyph.type === "Quad").data_source.data.left.length;
    """
    assert 50 < page.js(cells) < 40_000
    left, right, bottom, top = page.js(VIEW)
    page.tap("graph", (left + right) / 2, (bottom + top) / 2)
    page.press("#graph", "n")
    assert page.text("#inspector h3").startswith("step ")
    assert boxes(page)
    assert page.messages() == []


def test_far_lines_and_a_graph_of_one_op(show: Show) -> None:
    rng = random.Random(1)
    count = 3_000
    tensors = tuple(Tensor(f"t{i}", rng.randint(1, 99), (1, i), "int8") for i in range(count + 1))
    ops = tuple(
        Op(f"op{i}", "Add", tuple(dict.fromkeys([i, rng.randrange(i + 1)])), (i + 1,), macs=i) for i in range(count)
    )
    graph = Graph("far", tensors, ops, (0,), (count,))
    page = show(plain(report_with(graph, tuple(range(count)))))
    page.press("#graph", "n", "n", "0")
    assert page.messages() == []
    lone = Graph("lone", tensors[:2], ops[:1], (0,), (1,))
    page = show(plain(report_with(lone, (0,))))
    assert page.text("#graph-view") == "1 of 1 ops"
    assert page.messages() == []


@pytest.mark.parametrize("name", FIVE)
def test_five_models_without_a_word(show: Show, name: str) -> None:
    report = json.loads(memsched.optimize(MODELS / name, verify=False, effort=2).report.to_json())
    for width in (1280, 390):
        for scheme in ("light", "dark"):
            page = show(report, width=width, scheme=scheme)
            assert page.js("return document.documentElement.scrollWidth") <= width
            assert boxes(page)
            panels = page.js("return [...document.querySelectorAll('section, aside')].map((each) => each.innerText)")
            assert all(text.strip() for text in panels)
            page.press("#graph", "n", "0", "p")
            assert page.messages() == []
