"""What the help of a command shows: with --help the options that most people need, with --help-all every option."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Mapping
from typing import Any, Final

import click

__all__ = ["OPTIMIZE", "GroupedCommand", "HelpCommand"]

_REST: Final = "Other options"
_HELP: Final = "help"
"""The option that click itself adds, which it names in its own way."""

OPTIMIZE: Final[Mapping[str, tuple[str, ...]]] = {
    "What to write": ("output", "report", "emit", "input", "header", "c_array", "html", "force"),
    "The model and its runtime": ("target", "input_shapes", "dims", "shapes_from_run"),
    "What may be spent": (
        "budget",
        "budget_for",
        "keep_best",
        "max_slowdown",
        "may_change",
        "level",
        "allow",
        "max_extra_macs",
    ),
    "The search": ("time_limit", "effort", "memory_limit", "solver", "partitions", "seed", "workers", "dask"),
    "What the runtime is told": ("order_guarantee", "session", "control_dependencies", "tflm_plan"),
    "Verification": ("verify",),
    "What is printed": ("as_json", "quiet", "verbose", "no_color", "debug", "help", "help_all"),
}
"""Those of `memsched optimize`: by title, the names of the parameters."""


_SHORT: Final = frozenset(
    {
        *("output", "report", "force", "target", "input_shapes", "dims", "budget", "max_slowdown", "may_change"),
        *("time_limit", "effort", "as_json", "quiet", "verbose", "help", "help_all"),
    }
)
"""The parameters that `--help` shows for every command in `_SHORT_OF` that has them."""

_SHORT_OF: Final[Mapping[str, frozenset[str]]] = {
    "optimize": frozenset(),
    "analyze": frozenset({"frontier", "plot"}),
    "batch": frozenset({"lists", "workers"}),
    "distribute": frozenset({"cluster", "method", "drop", "home", "run"}),
    "pipeline": frozenset({"stages", "balance"}),
    "relay": frozenset({"stages"}),
}
"""The commands with more options than one page holds: what their `--help` shows as well."""

_ALL: Final = "memsched.help_all"
"""Key of a context's notes: the user asked for every option."""

_PARAGRAPHS: Final = 2
"""Paragraphs of a description that `--help` shows: the summary, and what explains it."""


class HelpCommand(click.Command):
    """A command with `--help-all`; if its options fill more than one page, `--help` shows only those in `_SHORT`.

    Each of them then has one sentence, the first of its text.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.params.append(
            click.Option(
                ["--help-all"],
                is_flag=True,
                is_eager=True,
                expose_value=False,
                callback=_show_all,
                help="Show every option and exit.",
            )
        )

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the description, or its first paragraphs."""
        if self.help is None or not self._is_short(ctx):
            super().format_help_text(ctx, formatter)
            return
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text("\n\n".join(inspect.cleandoc(self.help).split("\n\n")[:_PARAGRAPHS]))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write all options, or one section with those that most people need."""
        if not self._is_short(ctx):
            self.format_all_options(ctx, formatter)
            return
        shown = _SHORT | _SHORT_OF[self.name or ""]
        brief = [(name, _in_one_sentence(option)) for name, option in self.named_options(ctx) if name in shown]
        records = [option.get_help_record(ctx) for _, option in brief]
        with formatter.section("Options"):
            formatter.write_dl([record for record in records if record is not None])

    def format_all_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write every option."""
        super().format_options(ctx, formatter)

    def _is_short(self, ctx: click.Context) -> bool:
        return self.name in _SHORT_OF and _ALL not in ctx.meta

    def named_options(self, ctx: click.Context) -> Iterator[tuple[str, click.Option]]:
        """Yield the options with their names, in the order in which they were declared."""
        asks_for_help = self.get_help_option(ctx)
        for parameter in self.get_params(ctx):
            if isinstance(parameter, click.Option):
                yield _HELP if parameter is asks_for_help else parameter.name or "", parameter


def _show_all(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        ctx.meta[_ALL] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


def _in_one_sentence(option: click.Option) -> click.Option:
    brief = copy.copy(option)
    sentence, rest, _ = (option.help or "").partition(". ")
    brief.help = f"{sentence}." if rest else sentence
    return brief


class GroupedCommand(HelpCommand):
    """A command whose `--help-all` has a section for each group of options, in the order of their declaration.

    Options that no group names come last, under a title of their own.
    """

    groups: Mapping[str, tuple[str, ...]] = OPTIMIZE

    def format_all_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections that are not empty."""
        titles = {name: title for title, names in self.groups.items() for name in names}
        sections: dict[str, list[tuple[str, str]]] = {title: [] for title in (*self.groups, _REST)}
        for name, option in self.named_options(ctx):
            record = option.get_help_record(ctx)
            if record is not None:
                sections[titles.get(name, _REST)].append(record)
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)
