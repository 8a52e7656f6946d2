"""The schema of target files: what the loader accepts it accepts, and both refuse what is wrong in form."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest

import memsched
from memsched.base.errors import TargetError
from memsched.report.schema import json_schema
from memsched.targets.load import builtin_targets, load_target
from memsched.targets.text import parse_toml

FOLDER = Path(memsched.__file__).parent / "targets"
SCHEMA = jsonschema.Draft202012Validator(json_schema("target"))


@pytest.mark.parametrize("name", builtin_targets())
def test_the_targets_that_ship(name: str) -> None:
    SCHEMA.validate(parse_toml((FOLDER / f"{name}.toml").read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    "text",
    [
        "alignment_bytes = 16",
        'on_chip_bytes = "1.5MB"',
        '[[pools]]\nname = "a"\nsize = "24KB"\n[[pools]]\nname = "b"\ncost = 3',
        '[[views]]\nops = ["A"]\ninput = 1',
        '[[workspace]]\nops = ["A"]\noutputs = 2',
    ],
)
def test_both_accept(tmp_path: Path, text: str) -> None:
    (tmp_path / "own.toml").write_text(text, encoding="utf-8")
    assert load_target(str(tmp_path / "own.toml")).name == "own"
    SCHEMA.validate(parse_toml(text))


@pytest.mark.parametrize(
    "text",
    [
        "aligment_bytes = 16",
        'alignment_bytes = "16"',
        "outputs_own = 1",
        'inputs = "mine"',
        "views = 3",
        "[[views]]\ninput = 0",
        "[[views]]\nops = []",
        '[[views]]\nops = ["A"]\ninput = -1',
        '[[in_place]]\nops = ["A"]\ninput = 0',
        '[[workspace]]\nops = ["A"]\noutputs = 1e300',
        "most_join_inputs = 1",
        "on_chip_bytes = -1",
        "[pipeline]\nparameter_cache_bytes = 1\nops_per_second = 1\nlink_bytes_per_second = 0",
        "[[pools]]\ncost = 1",
    ],
)
def test_both_refuse(tmp_path: Path, text: str) -> None:
    (tmp_path / "own.toml").write_text(text, encoding="utf-8")
    assert list(SCHEMA.iter_errors(parse_toml(text)))
    with pytest.raises(TargetError):
        load_target(str(tmp_path / "own.toml"))
