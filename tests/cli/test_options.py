"""Options are stated once: what the command line has by default, the Python functions and batches have, too."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from collections.abc import Callable
from typing import Any

import click
import pytest

import memsched
from memsched.cli.options import options_of, taken
from memsched.commands.declared import shown
from memsched.commands.distribute.distribute import distribute
from memsched.commands.options import (
    AllocateOptions,
    AnalyzeOptions,
    BatchOptions,
    DecoderOptions,
    DiffOptions,
    DistributeOptions,
    OptimizeOptions,
    PipelineOptions,
    RelayOptions,
    VerifyOptions,
)
from memsched.commands.pipeline.pipeline import pipeline

COMMANDS = {
    "optimize": OptimizeOptions,
    "batch": BatchOptions,
    "analyze": AnalyzeOptions,
    "pipeline": PipelineOptions,
    "distribute": DistributeOptions,
    "relay": RelayOptions,
    "decoder": DecoderOptions,
    "allocate": AllocateOptions,
    "verify": VerifyOptions,
    "diff": DiffOptions,
}
FUNCTIONS: dict[Callable[..., Any], type[Any]] = {
    memsched.optimize: OptimizeOptions,
    memsched.analyze: AnalyzeOptions,
    memsched.verify: VerifyOptions,
    memsched.allocate_buffers: AllocateOptions,
    memsched.compare_reports: DiffOptions,
    pipeline: PipelineOptions,
    distribute: DistributeOptions,
}
REQUIRED: dict[type[Any], dict[str, Any]] = {PipelineOptions: {"stages": 3}, DistributeOptions: {"cluster": "edge"}}
"""What has no default."""


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
    required = REQUIRED.get(options, {})
    assert parsed(options, *[f"--{name}={value}" for name, value in required.items()]) == options(**required)


@pytest.mark.parametrize(("function", "options"), FUNCTIONS.items(), ids=lambda one: one.__name__)
def test_the_python_function_has_the_same_defaults(function: Callable[..., Any], options: type[Any]) -> None:
    signature = inspect.signature(function)
    required = REQUIRED.get(options, {})
    for name, value in options(**required).keywords().items():
        given = signature.parameters[name].default
        if name in required:
            assert given is inspect.Parameter.empty
        elif function == memsched.analyze and name in {"tile", "remat"}:
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
    words = "--target tflm --input-shape x:1,3 --dim n=8 --budget 50% "
    words += "--budget-for activations --allow reorder,tile --max-extra-macs 7% --max-slowdown none"
    more = (
        "--effort 2 --solver exact --partitions 3 --order-guarantee pins --tflm-plan --no-verify --seed 4 --workers 2 "
        "--shapes-from-run feeds.npz --session basic --keep-best"
    )
    assert parsed(OptimizeOptions, *words.split(), *more.split(), "--workers", "2").keywords() == {
        "target": "tflm",
        "input_shapes": {"x": (1, 3)},
        "dims": {"n": 8},
        "budget": "50%",
        "budget_for": "activations",
        "keep_best": True,
        "in_place": False,
        "tile": True,
        "remat": False,
        "algebra": False,
        "reassociate": False,
        "fuse": False,
        "branch": False,
        "io": False,
        "free_pieces": False,
        "max_extra_macs": 7.0,
        "max_slowdown": None,
        "time_limit": 60.0,
        "effort": 2.0,
        "solver": "exact",
        "partitions": 3,
        "order_guarantee": "pins",
        "control_dependencies": False,
        "tflm_plan": True,
        "verify": False,
        "seed": 4,
        "shapes_from_run": "feeds.npz",
        "session": "basic",
        "workers": 2,
    }


def test_without_orders_the_files_own_is_taken() -> None:
    assert parsed(BatchOptions, "--allow", "inplace", "--solver", "exact").keywords()["solver"] == "file"
    assert not parsed(AnalyzeOptions, "--allow", "inplace").keywords()["reorder"]
