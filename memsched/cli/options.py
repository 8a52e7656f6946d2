"""Options that several subcommands share, and the values that they take."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

import click
from click.core import ParameterSource

from memsched.cli.allowed import ALLOWED
from memsched.cli.state import State
from memsched.errors import UsageError
from memsched.suggestions import did_you_mean
from memsched.units import parse_budget, parse_size

__all__ = [
    "allow_option",
    "budget_option",
    "check_extra_work",
    "check_frontier",
    "check_limits",
    "extra_work_option",
    "frontier_options",
    "header_option",
    "html_option",
    "limit_options",
    "memory_option",
    "model_options",
    "output_options",
    "parse_dims",
    "parse_percentage",
    "parse_shapes",
    "search_options",
    "shape_options",
    "size_option",
]


_ALL = "all"

_BY_DEFAULT = ("reorder", "inplace")
"""What changes no operator."""

_EXTRA_MACS = "15"
_EXTRA_MACS_OF_A_FRONTIER = "50"
_MOST_EXTRA_MACS = 10_000

_Function = TypeVar("_Function", bound=Callable[..., Any])


def size_option(name: str, text: str) -> Callable[[_Function], _Function]:
    """Return an option whose value is a size in bytes, written as "262144", "256KB" or "1.5MiB"."""
    return click.option(name, callback=_size, metavar="SIZE", help=text)


def _size(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    try:
        return None if value is None else parse_size(value)
    except UsageError as error:
        raise click.BadParameter(str(error), ctx, param) from None


def budget_option(text: str) -> Callable[[_Function], _Function]:
    """Return ``--budget``: a size as of `size_option`, or a part of what the file as given requires, as "50%"."""
    return click.option("--budget", callback=_budget, metavar="SIZE|PCT%", help=text)


def _budget(ctx: click.Context, param: click.Parameter, value: str | None) -> int | str | None:
    """Return bytes, or the percentage as it was written: only the model tells how many bytes that is."""
    if value is None:
        return None
    try:
        budget = parse_budget(value)
    except UsageError as error:
        raise click.BadParameter(str(error), ctx, param) from None
    return budget if isinstance(budget, int) else value


def parse_shapes(texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Return tensor names and shapes of "NAME:1,3,224,224" or "NAME:[1,3,224,224]"; names may hold colons.

    Raises:
        UsageError: A text is neither, a dimension is no positive number, or a name comes twice.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for text in texts:
        name, colon, listed = text.rpartition(":")
        inner = listed.strip().removeprefix("[").removesuffix("]")
        try:
            shape = tuple(_whole(part) for part in inner.split(",")) if inner.strip() else ()
        except ValueError:
            colon = ""
        if not colon or not name:
            raise UsageError(f"--input-shape '{text}' is not understood: write NAME:1,3,224,224")
        if name in shapes:
            raise UsageError(f"--input-shape names '{name}' twice")
        shapes[name] = shape
    return shapes


def parse_dims(texts: Sequence[str]) -> dict[str, int]:
    """Return dimension names and values of "NAME=8".

    Raises:
        UsageError: A text is not of that form, a value is no number of elements, or a name comes twice.
    """
    dims: dict[str, int] = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        try:
            value = _whole(number)
        except ValueError:
            raise UsageError(f"--dim '{text}' is not understood: write NAME=8") from None
        if not name:
            raise UsageError(f"--dim '{text}' is not understood: write NAME=8")
        if name in dims:
            raise UsageError(f"--dim names '{name}' twice")
        dims[name] = value
    return dims


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


def model_options(function: _Function) -> _Function:
    """Add the options that say how to read a model and for which target."""
    return _add(
        function,
        click.option("--target", metavar="NAME|FILE.toml", help="Memory rules; default: the format's runtime's."),
        _shape_option(),
        _dim_option(),
    )


def shape_options(function: _Function) -> _Function:
    """Add the options that state sizes that a model leaves open."""
    return _add(function, _shape_option(), _dim_option())


def _shape_option() -> Callable[[_Function], _Function]:
    return click.option(
        "--input-shape",
        "input_shapes",
        multiple=True,
        metavar="NAME:1,3,224,224",
        help="Shape of an input that the model leaves open.",
    )


def _dim_option() -> Callable[[_Function], _Function]:
    return click.option("--dim", "dims", multiple=True, metavar="NAME=8", help="Value of a symbolic dimension.")


def search_options(function: _Function) -> _Function:
    """Add the options that say how orders are sought, and what makes a runtime keep them."""
    return _add(
        function,
        click.option(
            "--solver",
            type=click.Choice(["auto", "exact", "cpsat", "backtrack", "greedy", "file"]),
            default="auto",
            show_default=True,
            help="auto tries all in turn.",
        ),
        click.option(
            "--partitions",
            callback=parse_partitions,
            default="auto",
            show_default=True,
            metavar="N|auto",
            help="Order N stages of the graph apart, without a proof; 1: never.",
        ),
        click.option(
            "--order-guarantee",
            type=click.Choice(["none", "session", "pins", "default"]),
            default="session",
            show_default=True,
            help="ONNX: session options that honour the order are listed, pins in the model hold it in any session, "
            "or the best default order is used.",
        ),
        click.option("--control-dependencies", is_flag=True, help="TFLite: state the order for delegates too."),
    )


def allow_option(function: _Function) -> _Function:
    """Add ``--allow``, a comma-separated list, as a tuple of names."""
    return click.option(
        "--allow",
        callback=_allowed,
        default=",".join(_BY_DEFAULT),
        show_default=True,
        metavar="LIST",
        help="All that may be done, with commas between. reorder: permute operators; inplace: let outputs take dying "
        "inputs' bytes as the target does; tile: compute groups of layers piece by piece, with some work done twice; "
        "remat: compute values again instead of keeping them; all: all of these.",
    )(function)


def _allowed(ctx: click.Context, param: click.Parameter, value: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in value.split(",") if part.strip())
    known = (*ALLOWED, _ALL)
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known)
            raise click.BadParameter(f"'{name}' is not available{hint}; choose from {', '.join(known)}", ctx, param)
    return ALLOWED if _ALL in names else names


def extra_work_option(function: _Function) -> _Function:
    """Add ``--max-extra-macs``, a percentage; see `check_extra_work`."""
    return click.option(
        "--max-extra-macs",
        callback=_percentage,
        default=_EXTRA_MACS,
        show_default=True,
        metavar="PCT",
        help="With tile or remat in --allow: multiply-accumulates that may come on top, in percent of the model's; for "
        "remat bytes moved count as well.",
    )(function)


def frontier_options(function: _Function) -> _Function:
    """Add ``--frontier`` and the options of its search; see `check_frontier`."""
    return _add(
        function,
        click.option(
            "--frontier",
            is_flag=True,
            help="Show what less memory costs: peaks by extra work, with all that --allow may name unless it is given.",
        ),
        click.option("--plot", metavar="FILE", help="With --frontier: a picture to write as well, .svg or .png."),
        click.option(
            "--max-extra-macs",
            callback=_percentage,
            default=_EXTRA_MACS_OF_A_FRONTIER,
            show_default=True,
            metavar="PCT",
            help="With --frontier: multiply-accumulates that may come on top; for remat bytes moved count as well.",
        ),
        *_limits("With --frontier: for", "the search"),
    )


def limit_options(*, of: str = "the search") -> Callable[[_Function], _Function]:
    """Add ``--time-limit`` and ``--effort``; see `check_limits`."""
    return lambda function: _add(function, *_limits("For", of))


def _limits(begin: str, of: str) -> tuple[Callable[[_Function], _Function], ...]:
    seconds = click.option(
        "--time-limit", type=float, default=60.0, show_default=True, metavar="SECONDS", help=f"{begin} {of}."
    )
    effort = click.option(
        "--effort",
        type=float,
        metavar="N",
        help=f"{begin} {of}, instead: work of about N seconds on an idle machine; the same result on every machine.",
    )
    return seconds, effort


def check_limits(context: click.Context) -> None:
    """Refuse ``--time-limit`` beside ``--effort``: results would depend on the machine again.

    Raises:
        UsageError: Both are given.
    """
    given = context.get_parameter_source("time_limit") != ParameterSource.DEFAULT
    if context.params["effort"] is not None and given:
        raise UsageError("--time-limit and --effort both limit the search: give one of them")


def check_frontier(ctx: click.Context) -> tuple[str, ...]:
    """Return what may be done to the model; refuse options of a search that was not asked for.

    Raises:
        UsageError: One of them was given without ``--frontier``.
    """
    allowed: tuple[str, ...] = ctx.params["allow"]
    if ctx.params["frontier"]:
        check_limits(ctx)
        return ALLOWED if ctx.get_parameter_source("allow") is ParameterSource.DEFAULT else allowed
    for name in ("plot", "max_extra_macs", "time_limit", "effort"):
        if ctx.get_parameter_source(name) is not ParameterSource.DEFAULT:
            raise UsageError(f"--{name.replace('_', '-')} has no effect without --frontier")
    return allowed


def parse_percentage(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Return the number that "15" or "15%" states; None where the option is not given."""
    return None if value is None else _percentage(ctx, param, value)


def _percentage(ctx: click.Context, param: click.Parameter, value: str) -> float:
    try:
        number = float(value.removesuffix("%"))
    except ValueError:
        number = math.nan
    if not 0 <= number <= _MOST_EXTRA_MACS:
        text = f"'{value}' is no percentage from 0 to {_MOST_EXTRA_MACS:,}: 15 permits 15 % more"
        raise click.BadParameter(text, ctx, param)
    return number


def check_extra_work(ctx: click.Context) -> None:
    """Refuse a limit of extra work where nothing is allowed that does any.

    Raises:
        UsageError: ``--max-extra-macs`` was given, and ``--allow`` names nothing that rewrites layers.
    """
    given = ctx.get_parameter_source("max_extra_macs") is not ParameterSource.DEFAULT
    if given and not set(ctx.params["allow"]) - set(_BY_DEFAULT):
        raise UsageError("--max-extra-macs needs tile or remat, as in --allow all")


def memory_option(function: _Function) -> _Function:
    """Add ``--memory-limit``; see `memsched.search.memory_limit`."""
    text = "Memory that memsched and its workers may hold, such as 2GB: a search ends there with the best so far."
    return size_option("--memory-limit", text)(function)


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
    """Add the options that say what is printed and how."""
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
