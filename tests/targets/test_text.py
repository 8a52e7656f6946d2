"""A target written out in full is read back as itself."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from memsched.targets.load import builtin_targets, load_target
from memsched.targets.text import to_toml


@pytest.mark.parametrize("name", builtin_targets())
def test_a_target_survives(name: str, tmp_path: Path) -> None:
    path = tmp_path / "other.toml"
    path.write_text(to_toml(load_target(name)), encoding="utf-8")
    assert load_target(str(path)) == load_target(name)


def test_any_text_survives(tmp_path: Path) -> None:
    target = msgspec.structs.replace(load_target("ideal"), description='é "\\" \x7f \t \U0001f600')
    path = tmp_path / "other.toml"
    path.write_text(to_toml(target), encoding="utf-8")
    assert load_target(str(path)) == target
