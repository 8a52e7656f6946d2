"""What reads each kind of file, as the command that is given it does; every option that takes a file is here."""

from __future__ import annotations

import io
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.permissions import allowed
from tests.tools.fuzz.tree_mutations import MARK

__all__ = [
    "read_cluster",
    "read_compared",
    "read_list",
    "read_model",
    "read_plan",
    "read_report",
    "read_table",
    "read_target",
]

_OPTIMIZED = 50
"""One model in so many goes through the whole of `optimize`, not just through reading and analysis."""

_USED = 20
"""One target or cluster in so many is used for a small model."""

_SEEDS = Path(__file__).with_name("seeds")
_HARMFUL = (MARK, "\x00", "\x1b", "\u202e", "\u2028")
"""What neither a page nor a terminal may get from a file."""


class HarmError(Exception):
    """What was read was used, and reached where it must not: a defect."""


@contextmanager
def _file(data: bytes, suffix: str) -> Iterator[str]:
    descriptor, path = tempfile.mkstemp(suffix=suffix)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
        yield path
    finally:
        Path(path).unlink()


def read_model(data: bytes, number: int) -> None:
    """Read a model as `analyze` does, some as `optimize` does."""
    from memsched.commands.optimize.analysis import analyze
    from memsched.commands.optimize.optimize import optimize

    if number % _OPTIMIZED:
        analyze(data)
    else:
        rewrite = number % (2 * _OPTIMIZED) == 0
        optimize(data, time_limit=2.0, allow=allowed(tile=rewrite, remat=rewrite), verify=False, seed=number)


def read_table(data: bytes, number: int) -> None:
    """Read lifetimes and sizes as `allocate` does."""
    from memsched.commands.allocate import allocate_buffers

    allocate_buffers(data, capacity=10_000 if number % 2 else None, time_limit=0.2)


def read_target(data: bytes, number: int) -> None:
    """Read a target as `--target` does, and analyse a model under some of them, and cut it into stages."""
    from memsched.targets.load import load_target

    with _file(data, ".toml") as path:
        load_target(path)
        if number % _USED:
            return
        from memsched.commands.optimize.analysis import analyze
        from memsched.features.pipeline.pipeline import pipeline
        from memsched.features.pipeline.report import file_names, report_of

        _check_json(analyze(_network(), target=path).report.data)
        staged = pipeline(_network(), stages=2, target=path, time_limit=1.0, verify=False)
    _check_json(report_of(staged, file_names("model.onnx", None, 2, None, annotated=False)).data)


def read_cluster(data: bytes, number: int) -> None:
    """Read a cluster as `distribute --cluster` does, and plan for some of them."""
    from memsched.targets.cluster import load_cluster

    with _file(data, ".toml") as path:
        cluster = load_cluster(path)
    if number % _USED:
        return
    from memsched.features.distribute.distribute import distribute
    from memsched.features.distribute.report import report_of

    plan = distribute(_network(), cluster=cluster, time_limit=0.2)
    _check_json(report_of(plan).data)


def _network() -> bytes:
    from tests.small_models import branches

    return branches(2)


def read_report(data: bytes, _number: int) -> None:
    """Make a page of a report as `memsched report` does."""
    from memsched.report.page import render_page
    from memsched.report.reading import parse_report

    page = render_page(parse_report(data, "'report.json'"))
    page.encode()
    _check_harmless(page, "the page")


def read_compared(data: bytes, number: int) -> None:
    """Compare a report with a valid one, or with itself, as `memsched diff` does, and print what is different."""
    from rich.console import Console

    from memsched.base.typed import UnfitError, converted
    from memsched.commands.diff import compare_reports, load_report
    from memsched.report.diff import print_diff
    from memsched.report.values.diff import DiffReport

    with _file(data, ".json") as path:
        given = load_report(path)
        batch = given["command"] == "batch"
        other = given if number % 4 == 3 else load_report(str(_SEEDS / ("batch.json" if batch else "optimize.json")))
        old, new = (given, other) if number % 2 else (other, given)
        diff = compare_reports(old, new, names=("old.json", "new.json"), fail_percent=(None, 0.0, 5.0)[number % 3])
    try:
        converted(diff.data, DiffReport)
    except UnfitError as error:
        raise HarmError(f"the comparison is not of its form: {error}") from None
    _check_json(diff.data)
    text = io.StringIO()
    print_diff(Console(file=text, force_terminal=False, width=100), diff.values, verbose=number % 5 == 0)
    _check_harmless(text.getvalue().replace(MARK, ""), "the terminal")
    text.getvalue().encode("utf-8", "backslashreplace")


def read_plan(data: bytes, _number: int) -> None:
    """Look into a folder with an earlier plan, as `distribute -o` does."""
    from memsched.features.distribute.report import PLAN_FILE, check_folder

    with tempfile.TemporaryDirectory() as folder:
        Path(folder, PLAN_FILE).write_bytes(data)
        check_folder(folder, force=False)


def read_list(data: bytes, _number: int) -> None:
    """Look for the models of a list, as `batch @FILE` does."""
    from memsched.commands.batch import inputs

    with _file(data, ".txt") as path:
        models = inputs.find_models(inputs.read_list(path), leave_out="build")
    inputs.check_apart(models, "build/fuzz-batch", ("batch.json",))


def _check_json(values: Any) -> None:
    """Check that values can be written as JSON that any program reads."""
    json.dumps(values, allow_nan=False).encode()


def _check_harmless(text: str, where: str) -> None:
    for harm in _HARMFUL:
        if harm in text:
            raise HarmError(f"{where} holds {harm!r} as it stands")
