"""The command line of all benchmarks: what there is, and one of them run, printed and compared with the page's copy."""

from __future__ import annotations

import argparse
import ast
import importlib
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from memsched.base.errors import MemschedError
from scripts.bench.runner.declare import ROOT, Benchmark, Heading, Values, Verdict
from scripts.bench.runner.documented import Table, compared, tables_of
from scripts.bench.runner.text import machine, printed

__all__ = ["benchmark", "listed", "main", "parser_of", "run"]

_PACKAGE = "scripts.bench"
_FOLDER = ROOT / "scripts" / "bench"


@cache
def listed() -> dict[str, str]:
    """Return what every benchmark shows, in one line, by name; no module is imported for that."""
    found = {}
    for path in sorted(_FOLDER.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = {node.targets[0].id for node in tree.body if _assigns_name(node)}  # type: ignore[attr-defined]
        if "BENCH" in names:
            shows = (ast.get_docstring(tree) or "").partition("\n\n")[0]
            found[".".join(path.relative_to(_FOLDER).with_suffix("").parts)] = " ".join(shows.split())
    return found


def _assigns_name(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)


def benchmark(name: str) -> Benchmark:
    """Return the benchmark of that name.

    Raises:
        KeyError: There is none.
    """
    if name not in listed():
        raise KeyError(name)
    found: Benchmark = importlib.import_module(f"{_PACKAGE}.{name}").BENCH
    return found


def parser_of(name: str) -> argparse.ArgumentParser:
    """Return the parser of a benchmark's options."""
    declared = benchmark(name)
    parser = argparse.ArgumentParser(
        prog=f"python -m {_PACKAGE} {name}",
        description=declared.shows,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for option in declared.options:
        parser.add_argument(*option.names, **option.settings)
    parser.add_argument(
        "--check",
        metavar="PAGE",
        type=Path,
        nargs="?",
        const=ROOT / declared.docs,
        help=f"compare the tables with their copy on a page, all but seconds; without a name: {declared.docs}",
    )
    return parser


def main(arguments: Sequence[str]) -> int:
    """List the benchmarks, or run the one that is named; return the exit code."""
    if not arguments or arguments[0] in {"-h", "--help"}:
        _list()
        return 0
    name, *options = arguments
    if name not in listed():
        print(f"error: there is no benchmark '{name}': `python -m {_PACKAGE}` lists them", file=sys.stderr)
        return 2
    try:
        return run(benchmark(name), parser_of(name).parse_args(options))
    except MemschedError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _list() -> None:
    print(f"python -m {_PACKAGE} NAME [OPTIONS] runs a benchmark; NAME --help tells its options.\n")
    width = max(map(len, listed()))
    for name, shows in listed().items():
        print(f"{name:{width}}  {shows}")


def run(declared: Benchmark, values: Values) -> int:
    """Print a benchmark's tables as they come; 1 where a verdict is wrong or a row differs from the page's copy."""
    tables: list[Table] = []
    wrong = False
    print(f"{machine()}.\n", flush=True)
    for part in declared.tables(values):
        for text in printed([part]):
            print(text, flush=True)
        if isinstance(part, Heading):
            tables.append(Table(part.columns, [], part.varying))
        elif isinstance(part, tuple):
            tables[-1].rows.append(tuple(str(cell).strip() for cell in part))
        wrong |= isinstance(part, Verdict) and part.wrong
    if values.check is not None:
        page = values.check
        differing = compared(tables, tables_of(page.read_text(encoding="utf-8")), page.name)
        print("\n" + "\n".join(differing.lines), flush=True)
        wrong |= differing.count > 0
    return int(wrong)
