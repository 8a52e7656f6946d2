"""Reports as text: the characters that ``json.dumps`` would write, and nothing that JSON lacks."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memsched.report.dump import json_text

TEXT = st.text(st.characters(exclude_characters="\x7f"))
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(0.001, 1e9).map(lambda one: round(one, 4))
    | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
)


@given(VALUES)
def test_the_same_text_as_the_standard_librarys(value: object) -> None:
    assert json_text(value) == json.dumps(value)


@pytest.mark.parametrize("name", ["a\udc80.onnx", "é\udcff", "😀", '\x00\x1f"\\/'])
def test_names_of_files_that_are_no_utf_8(name: str) -> None:
    class Named(msgspec.Struct):
        path: str

    assert json_text(Named(name)) == json.dumps({"path": name})


def test_what_json_cannot_hold_is_null() -> None:
    assert json_text([float("nan"), float("inf"), 1e-05]) == "[null, null, 0.00001]"
