"""Options are stated once: what the command line has by default, the Python functions and batches have, too."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from typing import Any

import click
import pytest

import memsched
from memsched.cli.options import options_of, taken
from memsched.commands.options import AnalyzeOptions, BatchOptions, OptimizeOptions, shown

COMMANDS = {"optimize": OptimizeOptions, "batch": BatchOptions, "analyze": AnalyzeOptions}


def parsed(options: type[Any], *words: str) -> Any:
    """Return what the command line makes of these words."""
    params: dict[str, Any] = {}

    @click.command()
    @options_of(options)
    def command(**given: Any) -> None:
        params.update(given)

    command.main(list(words), standalone_mode=False)
    return taken(options, params)


@pytest.mark.parametrize("options", COMMANDS.values(), ids=COMMANDS)
def test_no_words_are_the_defaults(options: type[Any]) -> None:
    assert parsed(options) == options()


@pytest.mark.parametrize(("function", "options"), [("optimize", OptimizeOptions), ("analyze", AnalyzeOptions)])
def test_the_python_function_has_the_same_defaults(function: str, options: type[Any]) -> None:
    signature = inspect.signature(getattr(memsched, function))
    for name, value in options().keywords().items():
        given = signature.parameters[name].default
        if function == "analyze" and name in {"tile", "remat"}:
            # The command line allows a frontier all of it unless --allow is given.
            assert given
        else:
            assert given == (value or None if isinstance(value, dict) else value), name


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_all_its_options_as_they_are_stated(name: str) -> None:
    declared = {one.name: one for one in importlib.import_module(f"memsched.cli.{name}").command.params}
    for field in dataclasses.fields(COMMANDS[name]):
        assert isinstance(declared[field.name], click.Option)
        assert declared[field.name].help == shown(field).help


def test_words_become_what_the_function_takes() -> None:
    words = "--target tflm --input-shape x:1,3 --dim n=8 --budget 50% --allow reorder,tile --max-extra-macs 7%"
    more = (
        "--effort 2 --solver exact --partitions 3 --order-guarantee pins --tflm-plan --no-verify --seed 4 --workers 2"
    )
    assert parsed(OptimizeOptions, *words.split(), *more.split(), "--workers", "2").keywords() == {
        "target": "tflm",
        "input_shapes": {"x": (1, 3)},
        "dims": {"n": 8},
        "budget": "50%",
        "in_place": False,
        "tile": True,
        "remat": False,
        "max_extra_macs": 7.0,
        "time_limit": 60.0,
        "effort": 2.0,
        "solver": "exact",
        "partitions": 3,
        "order_guarantee": "pins",
        "control_dependencies": False,
        "tflm_plan": True,
        "verify": False,
        "seed": 4,
        "workers": 2,
    }


def test_without_orders_the_files_own_is_taken() -> None:
    assert parsed(BatchOptions, "--allow", "inplace", "--solver", "exact").keywords()["solver"] == "file"
    assert not parsed(AnalyzeOptions, "--allow", "inplace").keywords()["reorder"]
