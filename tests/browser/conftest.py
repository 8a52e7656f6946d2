"""A headless Chromium for the tests in this folder, which only `make test-browser` collects."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from memsched.report.page import render_page
from scripts.screenshot_page import browser, open_page, prefer, resize
from tests.report.plain import typed

Show = Callable[..., "Shown"]


class Shown:
    """A page that is open in the browser."""

    def __init__(self, driver: Any, seconds: float, path: Path) -> None:
        self.driver, self.seconds, self.path = driver, seconds, path

    def js(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def settle(self) -> None:
        """Wait until what was asked for is drawn."""
        self.driver.execute_async_script(
            "const done = arguments[0]; setTimeout(() => requestAnimationFrame(() => requestAnimationFrame(done)), 60)"
        )

    def text(self, selector: str) -> str:
        # Between a figure and its unit no line ends; what is said is the same.
        found = str(self.js("return document.querySelector(arguments[0]).innerText", selector))
        return found.replace("\N{NO-BREAK SPACE}", " ")

    def press(self, selector: str, *keys: str) -> None:
        found = self.driver.find_element("css selector", selector)
        self.js("arguments[0].focus()", found)
        for key in keys:
            self.driver.switch_to.active_element.send_keys(key)
        self.settle()

    def click(self, selector: str) -> None:
        found = self.driver.find_element("css selector", selector)
        self.js("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", found)
        found.click()
        self.settle()

    def point(self, plot: str, x: float, y: float) -> tuple[float, float]:
        """Return where in the window a point of a plot's axes lies; the plot is scrolled into view."""
        script = """
            const place = document.getElementById(arguments[0]);
            place.scrollIntoView({block: 'center', behavior: 'instant'});
            const view = Bokeh.index.roots.find((each) => place.contains(each.el));
            const plot = view.frame ? view : view.child_views[0];
            const box = plot.el.getBoundingClientRect();
            const { x_scale, y_scale } = plot.frame;
            return [box.left + x_scale.compute(arguments[1]), box.top + y_scale.compute(arguments[2])];
        """
        left, top = self.js(script, plot, x, y)
        return float(left), float(top)

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        self.driver.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": kind, "x": x, "y": y, **more})

    def move(self, plot: str, x: float, y: float) -> None:
        left, top = self.point(plot, x, y)
        self.settle()
        self.mouse("mouseMoved", left - 1, top)
        self.mouse("mouseMoved", left, top)
        self.settle()

    def tap(self, plot: str, x: float, y: float) -> None:
        left, top = self.point(plot, x, y)
        self.settle()
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, left, top, button="left", clickCount=1)
        self.settle()

    def wheel(self, plot: str, x: float, y: float, delta: float) -> None:
        left, top = self.point(plot, x, y)
        self.settle()
        self.mouse("mouseWheel", left, top, deltaX=0, deltaY=delta)
        self.settle()

    def tooltip(self) -> str:
        """Return what the tooltips that are shown say."""
        script = """
            const texts = [];
            const walk = (node) => {
                if (node.classList?.contains("bk-Tooltip") && getComputedStyle(node).display !== "none")
                    texts.push(node.shadowRoot.textContent);
                for (const child of [...(node.shadowRoot?.children ?? []), ...node.children]) walk(child);
            };
            walk(document.body);
            return texts.join(" ");
        """
        return " ".join(str(self.js(script)).split())

    def shown_steps(self) -> tuple[int, int]:
        first, last = self.text("#view").removeprefix("steps ").split(" of ")[0].split(" to ")
        return int(first.replace(",", "")), int(last.replace(",", ""))

    def messages(self) -> list[str]:
        """Return whatever was logged, breaches of the policy included."""
        return [entry["message"] for entry in self.driver.get_log("browser")]


@pytest.fixture(scope="session")
def driver() -> Iterator[Any]:
    with browser() as opened:
        yield opened


@pytest.fixture
def show(driver: Any, tmp_path: Path) -> Show:
    """Open the page of a report, or of a file, and wait until it is drawn."""

    def call(report: Mapping[str, Any] | Path, width: int = 1280, height: int = 900, scheme: str = "light") -> Shown:
        path = report if isinstance(report, Path) else tmp_path / "page.html"
        if not isinstance(report, Path):
            path.write_text(render_page(typed(report)), encoding="utf-8")
        resize(driver, width, height)
        prefer(driver, scheme)
        driver.get_log("browser")
        return Shown(driver, open_page(driver, path), path)

    return call
