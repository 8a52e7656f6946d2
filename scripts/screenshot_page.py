"""Open a page of ``memsched report`` in headless Chromium, say how long that takes, and save what it looks like."""

from __future__ import annotations

import argparse
import base64
import contextlib
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--force-color-profile=srgb", "--hide-scrollbars"),
)
_SECONDS = 20
_DRIVERS = ("chromedriver", "chromium.chromedriver")
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


@contextlib.contextmanager
def browser(width: int = 1280, height: int = 900) -> Iterator[Any]:
    """Give a driver of a headless Chromium with a profile of its own, which asks nobody for anything.

    Raises:
        SystemExit: Selenium, Chromium or its driver is missing.
    """
    try:
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service
    except ImportError:
        raise SystemExit("a browser is driven by selenium: pip install selenium") from None
    found, driver = (next(filter(None, map(shutil.which, names)), None) for names in (_BROWSERS, _DRIVERS))
    if found is None or driver is None:
        raise SystemExit("Chromium and chromedriver are needed: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = found
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    # A page in a file is whole at once; waiting is the caller's business.
    with tempfile.TemporaryDirectory() as profile:
        for flag in (*_FLAGS, f"--user-data-dir={profile}", f"--window-size={width},{height}"):
            options.add_argument(flag)
        opened = webdriver.Chrome(options=options, service=Service(driver))
        try:
            yield opened
        finally:
            opened.quit()


def resize(driver: Any, width: int, height: int) -> None:
    """Give the page so many CSS pixels, fewer than a window may have."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def prefer(driver: Any, scheme: str) -> None:
    """Let the browser prefer ``scheme``, "light" or "dark"."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def open_page(driver: Any, path: Path) -> float:
    """Open a page and return the seconds until everything is drawn.

    Raises:
        TimeoutError: It was not in time.
    """
    started = time.monotonic()
    driver.get(path.resolve().as_uri())
    while driver.execute_script("return document.documentElement.dataset.ready") != "true":
        if time.monotonic() - started > _SECONDS:
            messages = [entry["message"] for entry in driver.get_log("browser")]
            raise TimeoutError(f"{path} is not drawn after {_SECONDS} s: {messages}")
        time.sleep(0.02)
    driver.execute_async_script("const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(done))")
    return time.monotonic() - started


def capture(driver: Any, path: Path, height: int | None = None) -> None:
    """Save the page, or its topmost ``height`` pixels, as a PNG."""
    metrics = driver.execute_cdp_cmd("Page.getLayoutMetrics", {})["cssContentSize"]
    clip = {"x": 0, "y": 0, "width": metrics["width"], "height": height or metrics["height"], "scale": 1}
    shot = driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
    path.write_bytes(base64.b64decode(shot["data"]))


def main() -> None:
    """Open the page named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", type=Path, help="HTML file of memsched report")
    parser.add_argument("-o", "--output", type=Path, help="PNG to write; without it only the time is printed")
    parser.add_argument("--width", type=int, default=1280, help="pixels; default: %(default)s")
    parser.add_argument("--height", type=int, help="pixels of the picture; by default the whole page")
    parser.add_argument("--dark", action="store_true", help="as a browser that prefers dark shows it")
    parser.add_argument("--choose", help="click this tensor at fault first")
    arguments = parser.parse_args()
    with browser() as driver:
        resize(driver, arguments.width, 900)
        prefer(driver, "dark" if arguments.dark else "light")
        seconds = open_page(driver, arguments.page)
        if arguments.choose:
            driver.execute_script(
                "[...document.querySelectorAll('[data-buffer]')].find((e) => e.textContent === arguments[0]).click()",
                arguments.choose,
            )
            time.sleep(1)
            driver.execute_script("scrollTo({top: 0, behavior: 'instant'})")
        size = arguments.page.stat().st_size
        print(f"{arguments.page.name}: {size:,} bytes, drawn after {seconds:.2f} s")
        for entry in driver.get_log("browser"):
            print(f"  {entry['level']}: {entry['message']}")
        if arguments.output is not None:
            capture(driver, arguments.output, arguments.height)


if __name__ == "__main__":
    main()
