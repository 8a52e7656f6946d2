"""The page about targets: its example loads, and it names every key."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import fields

from memsched.targets.load import builtin_targets, load_target
from memsched.targets.model import InPlaceRule, PartViewRule, PipelineRules, PriceRule, Target, ViewRule, WorkspaceRule

PAGE = Path(__file__).parents[2] / "docs" / "targets.md"


def test_the_example_loads(tmp_path: Path) -> None:
    example = PAGE.read_text(encoding="utf-8").split("```toml\n")[1].split("```")[0]
    (tmp_path / "board.toml").write_text(example, encoding="utf-8")
    target = load_target(str(tmp_path / "board.toml"))
    assert (target.name, target.alignment_bytes, len(target.in_place)) == ("board", 16, 2)


def test_every_key_and_target_is_described() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for kind in (Target, ViewRule, PartViewRule, InPlaceRule, WorkspaceRule, PipelineRules, PriceRule):
        for field in fields(kind):
            assert f"`{field.name}`" in text or f"[{field.name}]" in text, field.name
    for name in builtin_targets():
        assert f"`{name}`" in text
