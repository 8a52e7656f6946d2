"""Completion in bash, zsh and fish: the script to source, and which values parameters may have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem, get_completion_class

__all__ = ["add_completion", "completion_option"]

if TYPE_CHECKING:
    _Type = click.ParamType[str]
else:
    _Type = click.ParamType  # generic in newer releases alone

_SHELLS = ("bash", "zsh", "fish")
_VARIABLE = "_MEMSCHED_COMPLETE"
_METAVARS_OF_FILES = ("FILE", "OUT", "DIR")


def completion_option(command: click.Command) -> None:
    """Add ``--completion SHELL``, which prints the script that a shell sources."""
    click.option(
        "--completion",
        type=click.Choice(_SHELLS),
        expose_value=False,
        is_eager=True,
        callback=_print_script,
        metavar="SHELL",
        help="Print the script that completes commands and options in bash, zsh or fish.",
    )(command)


def _print_script(ctx: click.Context, _param: click.Parameter, shell: str | None) -> None:
    if shell is None or ctx.resilient_parsing:
        return
    kind = get_completion_class(shell)
    if kind is not None:
        # Not `source`, which starts a bash to ask for its version: the script may be meant for another machine.
        completion = kind(ctx.command, {}, "memsched", _VARIABLE)
        click.echo(completion.source_template % completion.source_vars())
    ctx.exit()


class _File(_Type):
    """Text that is taken as it is and completed as the name of a file."""

    name = "text"

    def shell_complete(self, _ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(incomplete, type="file")]


class _TargetName(_Type):
    """A built-in target, or the name of a file."""

    name = "text"

    def shell_complete(self, _ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from memsched.targets.load import builtin_targets

        found = [CompletionItem(name) for name in builtin_targets() if name.startswith(incomplete)]
        return found or [CompletionItem(incomplete, type="file")]


class _PermissionList(_Type):
    """A comma-separated list of what may be done."""

    name = "text"

    def shell_complete(self, _ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from memsched.commands.levels import ALLOWED

        *given, last = incomplete.split(",")
        names = [name for name in ALLOWED if name not in given and name.startswith(last)]
        return [CompletionItem(",".join([*given, name])) for name in names]


def add_completion(command: click.Command) -> None:
    """Set how each parameter of ``command`` that takes any text is completed; nothing else changes."""
    for parameter in command.params:
        metavar = parameter.metavar or ""
        if parameter.type is not click.STRING:
            continue
        if "--target" in parameter.opts or (command.name, parameter.name) == ("targets", "name"):
            parameter.type = _TargetName()
        elif "--allow" in parameter.opts:
            parameter.type = _PermissionList()
        elif isinstance(parameter, click.Argument) or any(word in metavar for word in _METAVARS_OF_FILES):
            parameter.type = _File()
