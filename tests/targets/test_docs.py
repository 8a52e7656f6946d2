"""The pages about targets: their examples load, and one names every key."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import fields

from memsched.targets.load import builtin_targets, load_target
from memsched.targets.model import InPlaceRule, PartViewRule, PipelineRules, PriceRule, Target, ViewRule, WorkspaceRule

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "targets.md"


def test_the_examples_load(tmp_path: Path) -> None:
    loaded = []
    for page in (PAGE, DOCS / "tasks" / "own-target.md"):
        example = page.read_text(encoding="utf-8").split("```toml\n")[1].split("```")[0]
        (tmp_path / "board.toml").write_text(example, encoding="utf-8")
        target = load_target(str(tmp_path / "board.toml"))
        loaded.append((target.name, target.alignment_bytes, [(pool.name, pool.cost) for pool in target.pools]))
    assert loaded == [
        ("two-memories", 16, [("dtcm", 1), ("sdram", 10)]),
        ("board", 16, [("fast", 1), ("slow", 4)]),
    ]


def test_every_key_and_target_is_described() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for kind in (Target, ViewRule, PartViewRule, InPlaceRule, WorkspaceRule, PipelineRules, PriceRule):
        for field in fields(kind):
            assert f"`{field.name}`" in text or f"[{field.name}]" in text, field.name
    for name in builtin_targets():
        assert f"`{name}`" in text
