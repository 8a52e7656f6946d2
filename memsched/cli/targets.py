"""``memsched targets``: the built-in targets, or one in full."""

from __future__ import annotations

import dataclasses
import json

import click

__all__ = ["command"]


@click.command("targets", short_help="The built-in targets, or one in full.")
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def command(name: str | None, as_json: bool) -> int:
    """List the built-in targets, or show all rules of NAME, which may also be the path of a TOML file."""
    from memsched.targets.load import builtin_targets, load_target

    targets = [load_target(each) for each in ([name] if name else builtin_targets())]
    if as_json:
        values = [dataclasses.asdict(target) for target in targets]
        click.echo(json.dumps(values[0] if name else values, indent=2))
    elif name:
        _show(dataclasses.asdict(targets[0]))
    else:
        width = max(len(target.name) for target in targets)
        for target in targets:
            click.echo(f"{target.name:<{width}}  {target.description}")
    return 0


def _show(values: dict[str, object]) -> None:
    """Print a target as the TOML that would describe it."""
    tables = {key: value for key, value in values.items() if isinstance(value, tuple)}
    single = {key: value for key, value in values.items() if isinstance(value, dict)}
    for key, value in values.items():
        if value is not None and key not in tables and key not in single:
            click.echo(f"{key} = {json.dumps(value)}")
    for key, rules in tables.items():
        for rule in rules:
            click.echo(f"\n[[{key}]]")
            for name, value in rule.items():
                if value is not None:
                    click.echo(f"{name} = {json.dumps(value)}")
    for key, table in single.items():
        click.echo(f"\n[{key}]")
        for name, value in table.items():
            click.echo(f"{name} = {json.dumps(value)}")
