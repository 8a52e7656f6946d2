"""How the function of a command is called: with its options as one value, or with each as a keyword."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Final, ParamSpec, Protocol, TypeVar

from memsched.base.arguments import check_fields, checked
from memsched.base.suggestions import did_you_mean
from memsched.commands.declared import REQUIRED, CommandOptions, TimeLimit, default_of, shown
from memsched.commands.model_objects import ModelObject, with_bytes
from memsched.search.limits import Limits
from memsched.search.progress import Progress

__all__ = ["NO_HOOKS", "Command", "ComparisonCommand", "Hooks", "command", "comparison", "limits_of", "seconds_of"]

_Source_contra = TypeVar("_Source_contra", contravariant=True)
_Options_contra = TypeVar("_Options_contra", bound=CommandOptions, contravariant=True)
_Result_co = TypeVar("_Result_co", covariant=True)
_Given = ParamSpec("_Given")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """What a program hooks into the run of a command.

    Attributes:
        on_progress: Called with how far the search is.
        stop: Called often; True ends the search with the best result so far.
        executor: Where independent parts are searched instead of in processes here, such as what a dask client's
            ``get_executor`` gives; the result is the same.
        output: Path that the report names as the result's; nothing is written there.
        words: The command line of this call, without the program's name. Where nothing was gained, it is tried what
            else would help, and the report suggests the same command with more permitted. None: nothing is tried.
        rows: Whether the report of `analyze` has a row for each step, buffer and layer; else it has those of the peak's
            steps alone.
    """

    on_progress: Callable[[Progress], None] | None = None
    stop: Callable[[], bool] | None = None
    executor: Executor | None = None
    output: str | None = None
    words: Sequence[str] | None = None
    rows: bool = True

    def __post_init__(self) -> None:
        """Refuse values of other types."""
        check_fields(self, self.__dataclass_fields__)


NO_HOOKS: Final = Hooks()


class Command(Protocol[_Source_contra, _Options_contra, _Given, _Result_co]):
    """The function of a command on one file: options are one value, or keywords, which change that value."""

    def __call__(
        self,
        source: _Source_contra | ModelObject,
        options: _Options_contra | None = None,
        hooks: Hooks = NO_HOOKS,
        *args: _Given.args,
        **changes: _Given.kwargs,
    ) -> _Result_co:
        """Do what the command does."""


class ComparisonCommand(Protocol[_Source_contra, _Options_contra, _Given, _Result_co]):
    """The same of a command on two files."""

    def __call__(
        self,
        first: _Source_contra | ModelObject,
        second: _Source_contra | ModelObject,
        options: _Options_contra | None = None,
        *args: _Given.args,
        **changes: _Given.kwargs,
    ) -> _Result_co:
        """Do what the command does."""


def command(
    kind: Callable[_Given, _Options_contra],
) -> Callable[
    [Callable[[_Source_contra, _Options_contra, Hooks], _Result_co]],
    Command[_Source_contra, _Options_contra, _Given, _Result_co],
]:
    """Return a decorator that lets a function take options of ``kind`` as keywords, too."""
    return functools.partial(_with_keywords, kind)


def comparison(
    kind: Callable[_Given, _Options_contra],
) -> Callable[
    [Callable[[_Source_contra, _Source_contra, _Options_contra], _Result_co]],
    ComparisonCommand[_Source_contra, _Options_contra, _Given, _Result_co],
]:
    """Return what `command` does, for a function that takes two files."""
    return functools.partial(_with_keywords, kind)


def _with_keywords(kind: Any, function: Any) -> Any:
    parameters = inspect.signature(function).parameters
    fields = {field.name: field for field in dataclasses.fields(kind) if not shown(field).process}
    run = checked(function)

    @functools.wraps(function)
    def called(*given: Any, **named: Any) -> Any:
        changes = {name: named.pop(name) for name in fields if name in named}
        for name in named:
            if name not in parameters:
                known = did_you_mean(name, (*parameters, *fields))
                raise TypeError(f"{function.__name__}() got an unexpected keyword argument '{name}'{known}")
        values = inspect.Signature(list(parameters.values())).bind_partial(*given, **named).arguments
        options = values.get("options")
        if options is None:
            values["options"] = kind(**changes)
        elif changes and isinstance(options, kind):
            values["options"] = dataclasses.replace(options, **changes)
        return run(**with_bytes(values))

    value = parameters["options"].replace(default=None)
    keywords = [_parameter(field) for field in fields.values()]
    shown_parameters = [value if name == "options" else one for name, one in parameters.items()]
    made: Any = called
    made.__signature__ = inspect.signature(function).replace(parameters=[*shown_parameters, *keywords])
    made.__doc__ = "\n".join([inspect.getdoc(function) or "", "", "Options:", *_described(fields)])
    return made


def _parameter(field: dataclasses.Field[Any]) -> inspect.Parameter:
    default = default_of(field)
    default = inspect.Parameter.empty if default is REQUIRED else default
    return inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=field.type)


def _described(fields: dict[str, dataclasses.Field[Any]]) -> Iterator[str]:
    for name, field in fields.items():
        yield f"    {name}: {shown(field).help}"


class _Searching(Protocol):
    """Options of a command that searches."""

    @property
    def time_limit(self) -> TimeLimit: ...
    @property
    def effort(self) -> float | None: ...
    @property
    def unnamed_seconds(self) -> float: ...


def seconds_of(options: _Searching) -> float | None:
    """Return the limit of time of a search, whether it was named or not; None for no limit."""
    return options.unnamed_seconds if isinstance(options.time_limit, str) else options.time_limit


def limits_of(options: _Searching, seed: int = 0, workers: int = 1, executor: Executor | None = None) -> Limits:
    """Return what a search may cost: work where that is limited, and seconds elsewhere."""
    seconds = None if options.effort is not None else seconds_of(options)
    return Limits(seconds, seed, workers, executor=executor, effort=options.effort)
