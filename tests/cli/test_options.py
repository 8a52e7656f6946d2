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
from memsched.commands.calls import NO_HOOKS, Hooks, command, seconds_of
from memsched.commands.declared import default_of, shown
from memsched.commands.options import (
    AllocateOptions,
    AnalyzeOptions,
    BatchOptions,
    DecoderOptions,
    DiffOptions,
    DistributeOptions,
    Options,
    PipelineOptions,
    RelayOptions,
    VerifyOptions,
)
from memsched.features.distribute.distribute import distribute
from memsched.features.pipeline.pipeline import pipeline
from memsched.features.relay.relay import relay
from tests.failures import fails

COMMANDS = {
    "optimize": Options,
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
    memsched.optimize: Options,
    memsched.analyze: AnalyzeOptions,
    memsched.verify: VerifyOptions,
    memsched.allocate_buffers: AllocateOptions,
    pipeline: PipelineOptions,
    distribute: DistributeOptions,
    relay: RelayOptions,
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
def test_the_python_function_takes_each_option_with_its_default_and_its_help(
    function: Callable[..., Any], options: type[Any]
) -> None:
    parameters, text = inspect.signature(function).parameters, inspect.getdoc(function) or ""
    for field in dataclasses.fields(options):
        if shown(field).process:
            assert field.name not in parameters
            continue
        given = parameters[field.name].default
        assert given == (inspect.Parameter.empty if field.name in REQUIRED.get(options, {}) else default_of(field))
        assert f"    {field.name}: {shown(field).help}" in text


def test_keywords_change_the_value_that_is_given() -> None:
    seen: list[tuple[Any, ...]] = []

    @command(VerifyOptions)
    def noted(source: str, options: VerifyOptions, hooks: Hooks = NO_HOOKS) -> None:
        """Note what it is called with."""
        seen.append((source, options, hooks))

    hooks = Hooks(output="out.onnx")
    asked = VerifyOptions(runs=5, seed=2)
    noted("a", asked, hooks)
    noted("b", runs=5, hooks=hooks)
    any_way: Any = noted
    any_way("c", asked, seed=4)
    assert seen == [
        ("a", asked, hooks),
        ("b", VerifyOptions(runs=5), hooks),
        ("c", VerifyOptions(runs=5, seed=4), NO_HOOKS),
    ]
    for wrong in ({"tile": True}, {"runs": 3, "memory": 1}):
        with pytest.raises(TypeError, match=r"noted\(\) .*'(tile|memory)'"):
            any_way("a", **wrong)
    with pytest.raises(TypeError, match=r"'run' .*'runs'"):
        any_way("a", run=1)
    with fails("argument-type", "options"):
        any_way("a", DiffOptions())


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"allow": ["tiles"]}, ("option-choice", "--allow tiles", "'tile'")),
        ({"allow": "tile"}, ("argument-type", "allow", "a list of texts")),
        ({"level": 4}, ("option-range", "-O 4", "3 or less")),
        ({"time_limit": "long"}, ("option-range", "--time-limit long")),
    ],
)
def test_a_value_that_no_option_has_is_refused(values: dict[str, Any], told: tuple[str, ...]) -> None:
    with fails(*told):
        Options(**values)


def test_what_is_permitted_is_spelled_out_in_one_order() -> None:
    assert Options(allow={"tile", "reorder"}).permitted == ("reorder", "tile")
    assert Options(allow=["io", "all"]).permitted == ("reorder", "inplace", "tile", "remat", "io")
    assert Options(level=3).permitted == ("reorder", "inplace", "tile", "remat")
    assert Options(level=3, dims={"n": (1, 8)}).permitted == ("reorder", "inplace")
    assert AnalyzeOptions(frontier=True).permitted == ("reorder", "inplace", "tile", "remat")
    assert AnalyzeOptions().permitted == ("reorder", "inplace")


def test_a_limit_of_time_tells_whether_it_was_named() -> None:
    assert [seconds_of(Options(level=level)) for level in (1, 3)] == [60.0, 600.0]
    assert seconds_of(Options(level=3, allow=["tile"])) == 60.0
    assert Options(time_limit=60.0) != Options()
    assert parsed(Options, "--time-limit", "60").time_limit == 60.0
    assert parsed(Options).time_limit == "auto"


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_all_its_options_as_they_are_stated(name: str) -> None:
    declared = {one.name: one for one in importlib.import_module(f"memsched.cli.{name}").command.params}
    for field in dataclasses.fields(COMMANDS[name]):
        assert (field.name in declared) is not shown(field).python
        if field.name in declared:
            assert isinstance(declared[field.name], click.Option)
            assert declared[field.name].help == shown(field).help


def test_words_become_what_the_function_takes() -> None:
    words = "--target tflm --shape x=1,3 --dim n=8 --budget 50% "
    words += "--budget-for activations --allow reorder,tile --max-extra-macs 7% --max-slowdown none"
    more = (
        "--effort 2 --solver exact --partitions 3 --order-guarantee pins --tflm-plan --no-verify --seed 4 --workers 2 "
        "--shapes-from-run feeds.npz --session basic --keep-best"
    )
    assert parsed(Options, *words.split(), *more.split(), "--workers", "2").named() == {
        "target": "tflm",
        "input_shapes": {"x": (1, 3)},
        "dims": {"n": 8},
        "budget": "50%",
        "budget_for": "activations",
        "keep_best": True,
        "allow": ("reorder", "tile"),
        "max_extra_macs": 7.0,
        "max_slowdown": None,
        "effort": 2.0,
        "solver": "exact",
        "partitions": 3,
        "order_guarantee": "pins",
        "tflm_plan": True,
        "verify": False,
        "seed": 4,
        "shapes_from_run": "feeds.npz",
        "session": "basic",
        "workers": 2,
    }


def test_without_orders_the_files_own_is_taken() -> None:
    assert parsed(BatchOptions, "--allow", "inplace", "--solver", "exact").order_solver == "file"
    assert parsed(AnalyzeOptions, "--allow", "inplace").permitted == ("inplace",)
