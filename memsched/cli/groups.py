"""Options of a command in groups, as its help shows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import click

__all__ = ["OPTIMIZE", "GroupedCommand"]

_REST: Final = "Other options"
_HELP: Final = "help"
"""The option that click itself adds, which it names in its own way."""

OPTIMIZE: Final[Mapping[str, tuple[str, ...]]] = {
    "What to write": ("output", "report", "emit", "header", "c_array", "html", "force"),
    "The model and its runtime": ("target", "input_shapes", "dims", "shapes_from_run"),
    "What may be spent": ("budget", "budget_for", "keep_best", "level", "allow", "max_extra_macs", "max_slowdown"),
    "The search": ("time_limit", "effort", "memory_limit", "solver", "partitions", "seed", "workers", "dask"),
    "What the runtime is told": ("order_guarantee", "session", "control_dependencies", "tflm_plan"),
    "Verification": ("verify",),
    "What is printed": ("as_json", "quiet", "verbose", "no_color", "debug", "help"),
}
"""Those of `memsched optimize`: by title, the names of the parameters."""


class GroupedCommand(click.Command):
    """A command whose help has a section for each group of options, in the order in which they were declared.

    Options that no group names come last, under a title of their own.
    """

    groups: Mapping[str, tuple[str, ...]] = OPTIMIZE

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections that are not empty."""
        titles = {name: title for title, names in self.groups.items() for name in names}
        asks_for_help = self.get_help_option(ctx)
        sections: dict[str, list[tuple[str, str]]] = {title: [] for title in (*self.groups, _REST)}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            name = _HELP if parameter is asks_for_help else parameter.name or ""
            if record is not None:
                sections[titles.get(name, _REST)].append(record)
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)
