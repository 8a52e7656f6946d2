"""``memsched targets``: the built-in targets, or one in full."""

from __future__ import annotations

import json

import click

from memsched.cli.groups import HelpCommand

__all__ = ["command"]


@click.command("targets", cls=HelpCommand, short_help="The built-in targets, or one in full.")
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def command(name: str | None, as_json: bool) -> int:
    """List the built-in targets, or show all rules of NAME, which may also be the path of a TOML file."""
    import msgspec

    from memsched.targets.load import builtin_targets, load_target
    from memsched.targets.text import to_toml

    targets = [load_target(each) for each in ([name] if name else builtin_targets())]
    if as_json:
        values = [msgspec.to_builtins(target) for target in targets]
        click.echo(json.dumps(values[0] if name else values, indent=2))
    elif name:
        click.echo(to_toml(targets[0]), nl=False)
    else:
        width = max(len(target.name) for target in targets)
        for target in targets:
            click.echo(f"{target.name:<{width}}  {target.description}")
    return 0
