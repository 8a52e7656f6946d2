"""Options that several subcommands share, and the values that they take."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import click
from click.core import ParameterSource

from memsched.base.errors import UsageError
from memsched.base.suggestions import did_you_mean
from memsched.base.units import parse_budget, parse_size
from memsched.cli.state import State
from memsched.commands.declared import ALLOW_KINDS, flag_of, has_range, shown
from memsched.commands.levels import ALL, LEVELS, spelled_out
from memsched.commands.without_effect import refuse_for_range

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = [
    "both_to_stream",
    "check_extra_work",
    "check_frontier",
    "check_home",
    "check_level",
    "check_limits",
    "check_no_level",
    "header_option",
    "html_option",
    "options_of",
    "output_options",
    "parse_dims",
    "parse_ranges",
    "parse_shapes",
    "taken",
    "typed",
]


_MOST_EXTRA_MACS = 10_000

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Options = TypeVar("_Options", bound="DataclassInstance")


def _size(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    try:
        return None if value is None else parse_size(value)
    except UsageError as error:
        raise click.BadParameter(str(error), ctx, param) from error


def _budget(ctx: click.Context, param: click.Parameter, value: str | None) -> int | str | None:
    """Return bytes, or the percentage as it was written: only with the model is it known how many bytes that is."""
    if value is None:
        return None
    try:
        budget = parse_budget(value)
    except UsageError as error:
        raise click.BadParameter(str(error), ctx, param) from error
    return budget if isinstance(budget, int) else value


def parse_shapes(texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Return tensor names and shapes of "NAME=1,3,224,224" or "NAME=[1,3,224,224]".

    Raises:
        UsageError: A text is neither, a dimension is not a positive number, or a name occurs twice.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for text in texts:
        name, sign, listed = text.rpartition("=")
        inner = listed.strip().removeprefix("[").removesuffix("]")
        try:
            shape = tuple(_whole(part) for part in inner.split(",")) if inner.strip() else ()
        except ValueError:
            sign = ""
        if not sign or not name:
            raise UsageError(
                f"--shape '{text}' is not understood", code="option-unparsable", action="write NAME=1,3,224,224"
            )
        if name in shapes:
            raise UsageError(f"--shape names '{name}' twice", code="named-twice", action="give it once")
        shapes[name] = shape
    return shapes


def parse_dims(texts: Sequence[str]) -> dict[str, int]:
    """Return dimension names and values of "NAME=8".

    Raises:
        UsageError: A text is not of that form, a value is not a number of elements, or a name occurs twice.
    """
    dims: dict[str, int] = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        try:
            value = _whole(number)
        except ValueError:
            raise UsageError(
                f"--dim '{text}' is not understood", code="option-unparsable", action="write NAME=8"
            ) from None
        if not name:
            raise UsageError(f"--dim '{text}' is not understood", code="option-unparsable", action="write NAME=8")
        if name in dims:
            raise UsageError(f"--dim names '{name}' twice", code="named-twice", action="give it once")
        dims[name] = value
    return dims


def parse_ranges(texts: Sequence[str]) -> dict[str, int | tuple[int, ...]]:
    """Return dimension names and what "NAME=8" or "NAME=1..8192" says of each: a value, or the least and the largest.

    "NAME=64..1024:64" says as well of what number lengths are multiples.

    Raises:
        UsageError: A text is of neither form, a range is empty, or a name occurs twice.
    """
    found: dict[str, int | tuple[int, ...]] = {}
    for text in texts:
        name, _, said = text.rpartition("=")
        lengths, colon, step = said.partition(":")
        ends = lengths.split("..")
        try:
            numbers = [_whole(end) for end in (*ends, *([step] if colon else []))]
        except ValueError:
            numbers = []
        if not name or len(numbers) not in {1, 2, 3} or len(ends) > 2 or (colon and len(ends) < 2):
            raise UsageError(
                f"--dim '{text}' is not understood", code="option-unparsable", action="write NAME=8, or NAME=1..8192"
            )
        if len(numbers) > 1 and (numbers[0] > numbers[1] or not numbers[1]):
            raise UsageError(
                f"--dim '{text}' is not a range",
                code="bad-range",
                action="write the smallest length, at least 1, and then the largest",
            )
        if name in found:
            raise UsageError(f"--dim names '{name}' twice", code="named-twice", action="give it once")
        found[name] = numbers[0] if len(numbers) == 1 else tuple(numbers)
    return found


def _whole(text: str) -> int:
    """Return a dimension: digits alone, no sign."""
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 18:
        raise ValueError(text)
    return int(digits)


def parse_partitions(_ctx: click.Context, _param: click.Parameter, value: str) -> int | Literal["auto"]:
    """Return the number of stages that ``value`` states, or "auto"."""
    if value == "auto":
        return "auto"
    if not value.isascii() or not value.isdigit() or not int(value):
        raise click.BadParameter(f"'{value}' is neither a number of 1 or more nor 'auto'")
    return int(value)


def options_of(command: type[Any], *names: str) -> Callable[[_Function], _Function]:
    """Return a decorator that adds the options of a command in their order: all of them, or only ``names``."""
    known = {field.name: field for field in dataclasses.fields(command)}
    fields = [known[name] for name in names or known if not _only_python(known[name])]
    return lambda function: _add(function, *map(_declared, fields))


def _declared(field: dataclasses.Field[Any]) -> Callable[[_Function], _Function]:
    said, flag = shown(field), flag_of(field)
    default = field.default if said.unnamed is None else said.unnamed
    more: dict[str, Any] = {"help": said.help, "metavar": said.metavar}
    required = dataclasses.MISSING is default is field.default_factory
    if said.kind in {"texts", "shapes", "dims", "ranges"}:
        more["multiple"] = True
    elif said.kind == "flag":
        more["is_flag"] = True
    elif required:
        more["required"] = True
    elif default is not None:
        more |= {"default": _WRITTEN.get(said.kind, lambda value: value)(default), "show_default": default != ()}
    if said.kind == "switch":
        more.setdefault("default", None)
        flag = f"{flag}/--no-{flag.removeprefix('--')}"
    if said.kind in {"number", "seconds", "count"}:
        whole = required or said.kind == "count" or isinstance(default, int)
        more["type"] = int if whole else float
        if said.least is not None:
            more["type"] = (click.IntRange if whole else click.FloatRange)(said.least, said.most)  # type: ignore[arg-type]
    if said.choices:
        more["type"] = click.Choice(said.choices)
    if said.kind in _READ or said.unnamed is not None:
        more["callback"] = partial(_read, field)
    return click.option(flag, field.name, **more)


def _read(field: dataclasses.Field[Any], ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    """Return what an option says; that nobody named it, where its declaration tells that from its default."""
    unnamed = ctx.get_parameter_source(field.name) is ParameterSource.DEFAULT
    if shown(field).unnamed is not None and unnamed:
        return field.default
    read = _READ.get(shown(field).kind)
    return value if read is None else read(ctx, param, value)


def taken(command: type[_Options], params: Mapping[str, Any]) -> _Options:
    """Return the options of a command as click has read them."""
    fields = [field for field in dataclasses.fields(command) if not _only_python(field)]
    return command(**{field.name: params[field.name] for field in fields})


def _only_python(field: dataclasses.Field[Any]) -> bool:
    return "option" in field.metadata and shown(field).python


def _allowed(
    known: tuple[str, ...], ctx: click.Context, param: click.Parameter, value: str | None
) -> tuple[str, ...] | None:
    if value is None:
        return None
    names = tuple(part.strip() for part in value.split(",") if part.strip())
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known)
            raise click.BadParameter(f"'{name}' is not available{hint}; choose from {', '.join(known)}", ctx, param)
    return spelled_out(names) if ALL in known else tuple(name for name in known if name in names)


def check_limits(context: click.Context) -> None:
    """Refuse ``--time-limit`` beside ``--effort``: results would depend on the machine again.

    Raises:
        UsageError: Both are given.
    """
    given = context.get_parameter_source("time_limit") != ParameterSource.DEFAULT
    if context.params["effort"] is not None and given:
        raise UsageError(
            "--time-limit and --effort both limit the search", code="option-conflict", action="give one of them"
        )


def unnamed_output(what: str, *, stream: bool = False) -> UsageError:
    """Return what is wrong where a model from standard input leaves an output without a name.

    Args:
        what: The output, such as "page".
        stream: It may go to standard output.
    """
    action = "name it with -o ('-' is standard output)" if stream else "name it with -o"
    return UsageError(f"standard input gives no name for the {what}", code="no-output-name", action=action)


def both_to_stream(what: str) -> UsageError:
    """Return what is wrong where the main output and the report both go to standard output.

    Args:
        what: The main output, such as "model".
    """
    problem = f"{what} and report cannot both go to standard output"
    return UsageError(problem, code="stdout-twice", action="name a file with -o or --report")


def check_home(source: str, folder: str | None, files: str) -> None:
    """Refuse a folder for several files that is a file, or that nothing gives a name.

    Args:
        files: What goes there, in words.

    Raises:
        UsageError: It is so.
    """
    if source == "-" and folder is None:
        raise UsageError(
            f"standard input gives no folder for the {files}", code="no-output-name", action="name one with -o"
        )
    if folder is not None and Path(folder).exists() and not Path(folder).is_dir():
        raise UsageError(f"-o '{folder}' is not a folder", code="needs-folder", action="name a folder")


def check_frontier(ctx: click.Context) -> None:
    """Refuse options of a search that was not requested.

    Raises:
        UsageError: One of them was given without ``--frontier``.
    """
    if ctx.params["frontier"]:
        check_limits(ctx)
        return
    ranged = has_range(ctx.params["dims"])
    for name in (
        ("max_extra_macs", "time_limit", "effort") if ranged else ("plot", "max_extra_macs", "time_limit", "effort")
    ):
        if ctx.get_parameter_source(name) is not ParameterSource.DEFAULT:
            raise UsageError(
                f"--{name.replace('_', '-')} has no effect without --frontier",
                code="no-effect",
                action="give both or neither",
            )


def _percentage(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Return the number that "15" or "15%" states; None where the option is not given."""
    if value is None:
        return None
    try:
        number = float(value.removesuffix("%"))
    except ValueError:
        number = math.nan
    if not 0 <= number <= _MOST_EXTRA_MACS:
        text = f"'{value}' is no percentage from 0 to {_MOST_EXTRA_MACS:,}: 15 permits 15 % more"
        raise click.BadParameter(text, ctx, param)
    return number


def _slowdown(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Return the percentage; None where there is no limit."""
    return None if value == "none" else _percentage(ctx, param, value)


def check_extra_work(ctx: click.Context) -> None:
    """Refuse a limit of extra work where nothing is allowed that does extra work.

    Raises:
        UsageError: ``--max-extra-macs`` was given, and ``--allow`` names nothing that rewrites layers; or a dimension
            stays open, and something was given that has no effect then.
    """
    if has_range(ctx.params["dims"]):
        refuse_for_range(typed(ctx))
        return
    for name in ("max_extra_macs", "max_slowdown"):
        given = name in ctx.params and ctx.get_parameter_source(name) is not ParameterSource.DEFAULT
        # By default time is all that rewrites may cost.
        free = name == "max_extra_macs" and ctx.params["allow"] is None and ctx.params.get("level") == 1
        if not given or ({"tile", "remat"} & set(_permitted(ctx)) and not free):
            continue
        if "level" not in ctx.params:
            raise UsageError(
                f"--{name.replace('_', '-')} has no effect on the order alone",
                code="no-effect",
                action="add tile or remat to --allow, or give --allow all",
            )
        what = "what costs nothing" if free else "the order alone"
        raise UsageError(
            f"--{name.replace('_', '-')} has no effect on {what}",
            code="no-effect",
            action="give -O2, -O3 or --allow all, or add tile or remat to --allow",
        )


def typed(ctx: click.Context) -> dict[str, Any]:
    """Return the options that the command line has, by the names of their fields."""
    known = ctx.params.items()
    return {name: one for name, one in known if ctx.get_parameter_source(name) is not ParameterSource.DEFAULT}


def check_level(ctx: click.Context) -> None:
    """Refuse more than one of ``--may-change``, ``-O`` and ``--allow``.

    Raises:
        UsageError: Two are given.
    """
    levelled = ctx.get_parameter_source("level") is not ParameterSource.DEFAULT
    given = {"--allow": ctx.params["allow"] is not None, "-O": levelled, "--may-change": bool(ctx.params["may_change"])}
    names = [name for name, is_given in given.items() if is_given]
    if len(names) > 1:
        problem = f"{' and '.join(names)} both say what may be done"
        raise UsageError(problem, code="option-conflict", action="give one of them")


def check_no_level(output: str | None) -> None:
    """Refuse ``-o3``, which names an output, where ``-O3`` was meant.

    Raises:
        UsageError: The output's name is that of a level.
    """
    if output is not None and output in map(str, range(len(LEVELS))):
        raise UsageError(
            f"-o{output} names the output '{output}'",
            code="level-or-output",
            action=f"write -O{output} for that level, or -o ./{output}",
        )


def _permitted(ctx: click.Context) -> tuple[str, ...]:
    allow: tuple[str, ...] | None = ctx.params["allow"]
    return LEVELS[ctx.params["level"]] if allow is None else allow


def header_option(function: _Function) -> _Function:
    """Add ``--header``."""
    return click.option(
        "--header",
        metavar="FILE.h",
        help="A C header to write as well: sizes of the arena, the model's SHA-256, places of tensors.",
    )(function)


def html_option(function: _Function) -> _Function:
    """Add ``--html``."""
    return click.option(
        "--html",
        metavar="FILE.html",
        help="A page to write as well: memory over time, address map, proof; one file for a browser.",
    )(function)


def output_options(function: _Function) -> _Function:
    """Add the options that choose what is printed and how."""
    return _add(
        function,
        click.option(
            "--json", "as_json", is_flag=True, help="The report to standard output, the rest to standard error."
        ),
        click.option("-q", "--quiet", is_flag=True, help="Print errors only."),
        click.option("-v", "--verbose", count=True, callback=_verbose, help="Print more; -vv is --debug, too."),
        click.option("--no-color", is_flag=True, help="No colours; the environment's NO_COLOR does the same."),
        click.option(
            "--debug", is_flag=True, expose_value=False, callback=_debug, help="Tracebacks of internal errors."
        ),
    )


def _verbose(ctx: click.Context, param: click.Parameter, value: int) -> int:
    _debug(ctx, param, value > 1)
    return value


def _debug(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value and isinstance(ctx.obj, State):
        ctx.obj.debug = True


def _add(function: _Function, *options: Callable[[_Function], _Function]) -> _Function:
    for option in reversed(options):
        function = option(function)
    return function


_READ: Final[Mapping[str, Callable[[click.Context, click.Parameter, Any], Any]]] = {
    "size": _size,
    "budget": _budget,
    "percentage": _percentage,
    "slowdown": _slowdown,
    **{kind: partial(_allowed, names) for kind, names in ALLOW_KINDS.items()},
    "partitions": parse_partitions,
    "shapes": lambda _ctx, _param, texts: parse_shapes(texts),
    "dims": lambda _ctx, _param, texts: parse_dims(texts),
    "ranges": lambda _ctx, _param, texts: parse_ranges(texts),
}
"""Per kind of value the function that reads it."""

_WRITTEN: Final[Mapping[str, Callable[[Any], Any]]] = {
    "percentage": "{:g}".format,
    "slowdown": "{:g}".format,
    "allow": ",".join,
    "allow_io": ",".join,
    "allow_more": ",".join,
    "changes": ",".join,
}
"""Per kind of value how a default is written."""
