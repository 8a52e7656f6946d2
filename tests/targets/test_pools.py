"""Targets with several memories."""

from __future__ import annotations

from pathlib import Path

import pytest

from memsched.targets.load import builtin_targets, load_target
from memsched.targets.model import Pool, Target
from tests.failures import fails

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
    ("pools", "code", "about"),
    [
        (['size = "1KB"'], "missing-key", ["number 1", "'name'"]),
        (['name = ""'], "contradiction", ["'name'"]),
        (['name = "a"\nsize = 1', 'name = "a"'], "contradiction", ["number 2", "'a'"]),
        (['name = "a"', 'name = "b"'], "contradiction", ["number 2", "'a'", "'size'"]),
        (['name = "a"\nsize = "much"'], "bad-size", ["'size'", "'much'"]),
        (['name = "a"\nsize = -1'], "value-range", ["'size'", "-1"]),
        (['name = "a"\nsize = 1.5'], "value-type", ["'size'", "1.5"]),
        (['name = "a"\nsize = true'], "value-type", ["'size'", "True"]),
        (['name = "a"\ncost = 0.5'], "value-type", ["'cost'", "0.5"]),
        (['name = "a"\ncost = -1'], "value-range", ["'cost'", "-1"]),
        (['name = "a"\nsize = 9\ncost = 3', 'name = "b"\ncost = 2'], "contradiction", ["number 2", "'cost'", "2"]),
        (['name = "a"\nspeed = 3'], "unknown-key", ["'speed'"]),
    ],
)
def test_a_mistake_is_one_line_that_names_pool_and_key(
    tmp_path: Path, pools: list[str], code: str, about: list[str]
) -> None:
    with fails(code, "[[pools]]", *about) as caught:
        target_of(tmp_path, *pools)
    assert caught.value.location == str(tmp_path / "own.toml")
    assert "\n" not in str(caught.value)


def test_pools_must_be_tables(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text('pools = ["fast"]\n', encoding="utf-8")
    with fails("value-type", "'pools'", "[[pools]]"):
        load_target(str(path))
