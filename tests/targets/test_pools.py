"""Targets with several memories."""

from __future__ import annotations

from pathlib import Path

import pytest

from memsched.errors import TargetError
from memsched.targets.load import builtin_targets, load_target
from memsched.targets.model import Pool, Target

PAGE = Path(__file__).parents[2] / "docs" / "targets.md"


def target_of(folder: Path, *pools: str) -> Target:
    path = folder / "own.toml"
    path.write_text('extends = "tflm"\n' + "".join(f"[[pools]]\n{pool}\n" for pool in pools), encoding="utf-8")
    return load_target(str(path))


def test_built_in_targets_have_one_memory() -> None:
    assert all(load_target(name).pools == () for name in builtin_targets())


def test_sizes_as_people_write_them(tmp_path: Path) -> None:
    target = target_of(
        tmp_path,
        'name = "fast"\nsize = "1.5KB"',
        'name = "slow"\nsize = 4096\ncost = 1',
        'name = "dram"\ncost = 20',
    )
    assert target.pools == (Pool("fast", 1536, 1), Pool("slow", 4096, 1), Pool("dram", None, 20))


def test_the_example_of_the_page(tmp_path: Path) -> None:
    example = PAGE.read_text(encoding="utf-8").split("## Several memories")[1].split("```toml\n")[1].split("```")[0]
    (tmp_path / "two.toml").write_text(example, encoding="utf-8")
    target = load_target(str(tmp_path / "two.toml"))
    assert target.pools == (Pool("dtcm", 128 * 1024, 1), Pool("sdram", None, 10))


@pytest.mark.parametrize(
    ("pools", "words"),
    [
        (['size = "1KB"'], ["number 1", "'name'"]),
        (['name = ""'], ["'name'"]),
        (['name = "a"\nsize = 1', 'name = "a"'], ["number 2", "'a'"]),
        (['name = "a"', 'name = "b"'], ["number 2", "'a'", "'size'"]),
        (['name = "a"\nsize = "much"'], ["'size'", "'much'"]),
        (['name = "a"\nsize = -1'], ["'size'", "negative"]),
        (['name = "a"\nsize = 1.5'], ["'size'", "int"]),
        (['name = "a"\nsize = true'], ["'size'", "int"]),
        (['name = "a"\ncost = 0.5'], ["'cost'", "int"]),
        (['name = "a"\ncost = -1'], ["'cost'", "negative"]),
        (['name = "a"\nsize = 9\ncost = 3', 'name = "b"\ncost = 2'], ["number 2", "'cost'", "first"]),
        (['name = "a"\nspeed = 3'], ["'speed'"]),
    ],
)
def test_a_mistake_is_one_line_that_names_pool_and_key(tmp_path: Path, pools: list[str], words: list[str]) -> None:
    with pytest.raises(TargetError) as caught:
        target_of(tmp_path, *pools)
    message = str(caught.value)
    assert message.startswith(str(tmp_path / "own.toml"))
    assert "\n" not in message
    for word in words:
        assert word in message


def test_pools_must_be_tables(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text('pools = ["fast"]\n', encoding="utf-8")
    with pytest.raises(TargetError, match=r"\[\[pools\]\]"):
        load_target(str(path))
