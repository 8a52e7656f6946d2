"""``memsched schema``: JSON Schemas of the files that memsched writes and reads, for programs and editors."""

from __future__ import annotations

import json

import click

from memsched.cli.groups import HelpCommand

__all__ = ["command"]


@click.command("schema", cls=HelpCommand, short_help="JSON Schemas of reports and other files.")
@click.argument("name", required=False)
def command(name: str | None) -> int:
    """List the files that have a schema, or print the JSON Schema (draft 2020-12) of NAME."""
    from memsched.report.schema import SCHEMAS, json_schema

    if name is not None:
        click.echo(json.dumps(json_schema(name), indent=2))
        return 0
    width = max(map(len, SCHEMAS))
    for known in SCHEMAS:
        click.echo(f"{known:<{width}}  {json_schema(known)['description']}")
    return 0
