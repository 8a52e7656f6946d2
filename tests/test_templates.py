"""Templates of sources: what takes their places, and what is not looked at again."""

from __future__ import annotations

from pathlib import Path

import pytest

from memsched.base.templates import fill

TEXT = "// @name@, again @name@ of @count@\n@lines@\n  @lines@;\nend\n"


@pytest.fixture(autouse=True)
def _package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates" / "one.h").write_text(TEXT)
    monkeypatch.setattr("memsched.base.templates.resources.files", lambda _: tmp_path)


@pytest.mark.quick
def test_values_fill_lines_and_blocks_take_the_place_of_a_line() -> None:
    text = fill("package", "one.h", {"name": "a", "count": 3, "lines": "x"}, {"lines": ["one", "two"]})
    assert text == "// a, again a of 3\none\ntwo\n  x;\nend\n"


def test_an_empty_block_leaves_no_line() -> None:
    assert (
        fill("package", "one.h", {"name": "", "count": 0, "lines": ""}, {"lines": []}) == "// , again  of 0\n  ;\nend\n"
    )


def test_what_a_value_holds_is_no_place() -> None:
    text = fill("package", "one.h", {"name": "@count@", "count": 1, "lines": ""}, {"lines": ["@name@"]})
    assert text.startswith("// @count@, again @count@ of 1\n@name@\n")


def test_a_place_without_a_value_is_a_mistake() -> None:
    with pytest.raises(KeyError, match="count"):
        fill("package", "one.h", {"name": "a"}, {})
