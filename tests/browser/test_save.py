"""Pictures saved as SVG and tables as CSV, the table of layers, and what less memory costs as points to click."""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.parsers import expat

import pytest

import memsched
from memsched.report.page_frontier import _HOW
from tests.browser.conftest import Show, Shown
from tests.browser.test_graph import MODELS, step_of
from tests.report.test_page import every_section
from tests.report.test_page_tables import with_frontier

ENTER = "\ue007"
Saved = Callable[[Shown, str], Path]


@pytest.fixture(scope="module")
def person() -> dict[str, Any]:
    result = memsched.optimize(MODELS / "person_detect.tflite", target="tflm", verify=False, effort=3)
    report: dict[str, Any] = json.loads(result.report.to_json())
    return report


@pytest.fixture
def saved(tmp_path: Path) -> Saved:
    """Click what saves a file, and return the file."""

    def call(page: Shown, selector: str) -> Path:
        folder = tmp_path / "saved"
        folder.mkdir(exist_ok=True)
        page.driver.execute_cdp_cmd(
            "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(folder), "eventsEnabled": False}
        )
        before = set(folder.iterdir())
        page.click(selector)
        for _ in range(200):
            new = [path for path in set(folder.iterdir()) - before if path.suffix in {".svg", ".csv"}]
            if new and new[0].stat().st_size:
                return new[0]
            time.sleep(0.05)
        raise AssertionError(f"{selector} saved nothing: {page.messages()}")

    return call


def rows(path: Path) -> list[list[str]]:
    return list(csv.reader(path.read_text(encoding="utf-8").splitlines()))


@pytest.mark.parametrize("picture", ["footprint", "map0", "graph"])
def test_pictures_as_svg(show: Show, saved: Saved, person: dict[str, Any], picture: str) -> None:
    page = show(person)
    path = saved(page, f"[data-svg^='{picture}']")
    assert path.name == f"person_detect_{picture}.svg"
    text = path.read_text(encoding="utf-8")
    tags: list[str] = []
    parser = expat.ParserCreate()
    parser.StartElementHandler = lambda name, _: tags.append(name)
    parser.Parse(text, True)
    assert tags[0] == "svg"
    assert len(tags) > 30
    assert "step" in text or picture == "graph"
    assert ("CONV_2D" in text) == (picture == "graph")
    assert page.messages() == []


def test_tables_as_csv(show: Show, saved: Saved, person: dict[str, Any]) -> None:
    page = show(person)
    found = rows(saved(page, "#layers-title ~ .save"))
    names = ["memory", "MACs", "flash", "persistent"]
    pairs = [f"{name}, {when}" for name in names for when in ("before", "after")]
    assert found[0] == ["layer", "type", "makes", "steps", *pairs]
    assert len(found) == 1 + len(person["sections"]["layers"])
    keys = ("footprint_bytes", "macs", "weights_bytes", "persistent_bytes")
    for row, layer in zip(found[1:], person["sections"]["layers"], strict=True):
        assert row[:2] == [layer["op"], layer["type"]]
        two = (layer["before"], layer["after"])
        assert row[4:] == ["" if one is None else str(one[key]) for key in keys for one in two]
    found = rows(saved(page, "#buffers-csv"))
    buffers = {row["tensor"]: row for row in person["written"]["buffers"]}
    for name, form, address, size, first, last, workspace in found[1:]:
        if workspace == "0":
            row = buffers.pop(name)
            assert [int(address), int(size), int(first), int(last)] == [
                *(row["offset_bytes"], row["size_bytes"], row["first_step"], row["last_step"])
            ]
            assert form == f"{chr(0xD7).join(map(str, row['shape']))} {row['dtype']}"
    assert not buffers
    assert page.messages() == []


def test_names_that_a_spreadsheet_would_calculate(show: Show, saved: Saved) -> None:
    report = every_section()
    report["sections"]["layers"][0]["op"], report["sections"]["layers"][1]["op"] = (
        '=cmd|" /C calc"!A0',
        'a "quoted", name',
    )
    page = show(report)
    found = rows(saved(page, "#layers-title ~ .save"))
    assert [row[0] for row in found[1:3]] == ['\'=cmd|" /C calc"!A0', 'a "quoted", name']


def test_layers_sort_and_lead_to_the_pictures(show: Show, person: dict[str, Any]) -> None:
    page = show(person)
    column = """
        const cells = document.querySelectorAll(`#layers tbody tr td:nth-child(${arguments[0]})`);
        return [...cells].map((each) => each.innerText);
    """
    given = page.js(column, 1)
    assert given == [layer["op"] for layer in person["sections"]["layers"]]
    page.click("#layers th:nth-child(5) .sort")
    sizes = [int(text.replace(",", "") or -1) for text in page.js(column, 5)]
    assert sizes == sorted(sizes, reverse=True)
    assert page.js("return document.querySelector('#layers th:nth-child(5)').ariaSort") == "descending"
    page.press("#layers th:nth-child(5) .sort", ENTER)
    assert [int(text.replace(",", "") or -1) for text in page.js(column, 5)] == sizes[::-1]
    page.click("#layers th:nth-child(1) .sort")
    assert page.js(column, 1) == sorted(given)
    step = int(page.js("return document.querySelector('#layers [data-step]').dataset.step"))
    page.click("#layers [data-step]")
    assert step_of(page.text("#inspector h3")) == step


def test_points_of_the_frontier(show: Show) -> None:
    page = show(with_frontier())
    page.press("#points", "n")
    assert f"700 B by {_HOW['tile']}, for 0 %" in page.text("#point")
    page.press("#points", "n", "n", "n")
    assert f"300 B by {_HOW['remat']}" in page.text("#point")
    assert "--max-extra-macs 9" in page.text("#point code")
    page.tap("points", 2.25, 400)
    assert "400 B" in page.text("#point")
    assert "--budget 400 " in page.text("#point code") + " "
    page.press("#points", "b", "b")
    assert "700 B" in page.text("#point")
    assert page.messages() == []


def test_at_most_three_suggestions_open_the_page(show: Show, person: dict[str, Any]) -> None:
    one = {
        "command": "memsched optimize m.tflite --allow <b>tile</b>",
        "what": "layers in pieces",
        "bytes": 50,
        "saving_bytes": 50,
        "extra_macs_percent": 1.5,
        "time_ratio": None,
        "changes": [],
    }
    page = show({**person, "alternatives": [one, one, one]})
    assert page.js("return document.querySelectorAll('#suggestions li').length") == 3
    assert page.text("#suggestions code") == one["command"]
    words = page.js("return [...document.querySelector('#suggestions code').children].map((each) => each.innerText)")
    assert words == one["command"].split(" ")
    assert "50.0 % less" in page.text("#suggestions")
    above = "return document.getElementById('suggestions').getBoundingClientRect().bottom < innerHeight"
    assert page.js(above)
    page = show({**person, "alternatives": []})
    assert page.js("return document.getElementById('suggestions')") is None
