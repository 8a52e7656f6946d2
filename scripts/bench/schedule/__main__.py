"""The command line of the benchmarks; each table is printed by one command, as Markdown."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from memsched.errors import MemschedError
from memsched.graph.limits import Limits
from memsched.schedule.portfolio import SOLVERS
from scripts.bench.schedule import ablation, backtrack, cells, determinism, fusion, networks, peers
from scripts.bench.schedule.common import machine
from scripts.bench.schedule.published import ABLATION
from scripts.networks.catalogue import CLASSIFIERS, NAMES

_TABLES = {
    "networks": "every network: peaks, bounds, seconds per stage, reductions",
    "fusion": "every network: how far fusion shrinks it",
    "ablation": "what partitioning, fusion and pruning each do for the integer program",
    "onnxsim": "every network: onnxsim's memory planner on the file's order and on ours",
    "cells": "single RandWire stages of 48, 64 and 96 nodes",
    "backtrack": "BTSearch: beside the threshold search, against random orders, on series-parallel graphs",
    "determinism": "the same bytes whatever --workers and PYTHONHASHSEED",
}

_CHOSEN = {"ablation": "those of the published table", "backtrack": ", ".join(backtrack.NETWORKS)}


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Return the command line's values."""
    parser = argparse.ArgumentParser(
        prog="python -m scripts.bench.schedule",
        description="Measure the scheduler on networks of the literature; print the tables as Markdown.",
        epilog=f"Networks: {', '.join(NAMES)}; for backtrack also {', '.join(CLASSIFIERS)}.",
    )
    tables = parser.add_subparsers(dest="table", required=True, metavar="TABLE")
    added = {name: tables.add_parser(name, help=text, description=text) for name, text in _TABLES.items()}
    for name in ("networks", "fusion", "ablation", "onnxsim", "backtrack"):
        chosen = _CHOSEN.get(name, "all")
        added[name].add_argument("names", nargs="*", metavar="NETWORK", help=f"default: {chosen}")
    for name in ("networks", "fusion", "ablation", "cells", "backtrack"):
        added[name].add_argument("--target", default="paper", help="memory rules; default: %(default)s")
    for name in ("networks", "ablation", "cells", "backtrack"):
        added[name].add_argument("--time-limit", type=float, default=60.0, metavar="SECONDS", help="of each search")
    added["ablation"].add_argument("--parts", type=int, default=4, help="of the partitions; default: %(default)s")
    for name in ("networks", "fusion"):
        added[name].add_argument("--repeats", type=int, default=3, help="the quickest counts; default: %(default)s")
    added["onnxsim"].add_argument("--install", action="store_true", help="fetch onnxsim for this run alone")
    added["cells"].add_argument("--nodes", nargs="+", type=int, default=[48, 64, 96])
    added["cells"].add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3])
    added["cells"].add_argument("--solver", choices=SOLVERS, default="auto", help="default: %(default)s")
    added["backtrack"].add_argument("--orders", type=int, default=100, help="random ones; default: %(default)s")
    added["determinism"].add_argument("options", nargs="*", help="options of memsched optimize, after --")
    parsed = parser.parse_args(arguments)
    known = (*NAMES, *CLASSIFIERS) if parsed.table == "backtrack" else NAMES
    unknown = [name for name in getattr(parsed, "names", ()) if name not in known]
    if unknown:
        parser.error(f"there is no network '{unknown[0]}': choose from {', '.join(known)}")
    return parsed


def lines(arguments: argparse.Namespace) -> Iterator[str]:
    """Yield the lines of the table that was asked for."""
    names = getattr(arguments, "names", None) or NAMES
    if arguments.table == "networks":
        limits = Limits(time_limit=arguments.time_limit)
        return networks.tables(names, arguments.target, limits, arguments.repeats)
    if arguments.table == "fusion":
        return fusion.table(names, arguments.target, arguments.repeats)
    if arguments.table == "ablation":
        names = arguments.names or tuple(ABLATION)
        return ablation.table(names, arguments.target, arguments.time_limit, arguments.parts)
    if arguments.table == "onnxsim":
        return peers.onnxsim_table(names, install=arguments.install)
    if arguments.table == "cells":
        limits = Limits(time_limit=arguments.time_limit)
        return cells.table(arguments.nodes, arguments.seeds, arguments.target, limits, arguments.solver)
    if arguments.table == "backtrack":
        names = arguments.names or backtrack.NETWORKS
        return backtrack.tables(names, arguments.target, arguments.time_limit, arguments.orders)
    return determinism.table(arguments.options)


def main() -> None:
    """Print the table that the command line asks for."""
    arguments = parse()
    print(f"{machine()}.\n", flush=True)
    for text in lines(arguments):
        print(text, flush=True)


if __name__ == "__main__":
    try:
        main()
    except MemschedError as error:
        sys.exit(f"error: {error}")
