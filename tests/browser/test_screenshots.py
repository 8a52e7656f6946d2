"""Pictures of pages, as `python -m scripts.bench page --screenshots` saves them."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.bench import page as bench
from scripts.bench.runner.declare import Verdict


def test_four_pictures_of_a_page(tmp_path: Path) -> None:
    values = argparse.Namespace(screenshots=tmp_path / "new" / "pictures", models=["layered-10"])
    *_, last = bench.tables(values)
    names = {f"layered-10_{width}_{scheme}.png" for width in (390, 1280) for scheme in ("light", "dark")}
    pictures = {path.name: path.read_bytes() for path in values.screenshots.iterdir()}
    assert pictures.keys() == names
    assert len(set(pictures.values())) == 4
    for name, data in pictures.items():
        assert int.from_bytes(data[16:20], "big") == int(name.split("_")[1])
    assert isinstance(last, Verdict)
    assert not last.wrong


@pytest.mark.parametrize("wrong", ["<script>console.debug('a word')</script>", "<p style='width: 2000px'>wide</p>"])
def test_what_is_wrong_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    def pages(names: list[str], folder: Path) -> Iterator[tuple[str, Path]]:
        page = folder / f"{names[0]}.html"
        page.write_text(f"<!DOCTYPE html><html data-ready='true'><body>{wrong}</body></html>", encoding="utf-8")
        yield names[0], page

    monkeypatch.setattr(bench, "_pages", pages)
    *_, last = bench.tables(argparse.Namespace(screenshots=tmp_path, models=["one"]))
    assert isinstance(last, Verdict)
    assert last.wrong
