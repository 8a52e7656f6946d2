"""What the pipelines return: frozen values that know how to save themselves."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import msgspec

from memsched.base.arguments import checked
from memsched.base.errors import BudgetError, UsageError, VerificationError
from memsched.base.frozen import FrozenValue
from memsched.formats.capabilities import WeightFiles
from memsched.formats.known import FORMATS, capability
from memsched.formats.module import Module
from memsched.formats.staging import (
    STANDARD_STREAM,
    check_apart,
    check_writable,
    is_regular,
    overwrites,
    same_file,
    staged_files,
)
from memsched.graph.model import Allocation, Graph, Schedule
from memsched.report.c_array import model_array
from memsched.report.dump import dump_report, report_pieces
from memsched.report.header import arena_header
from memsched.report.values.base import Section
from memsched.report.values.optimize import OptimizeReport
from memsched.report.verdict import verdict_line
from memsched.runtimes.values import Verification

__all__ = [
    "AnalyzeResult",
    "OptimizeResult",
    "OutputsDifferError",
    "Report",
    "check_outputs",
    "hold_to_budget",
    "save_outputs",
]


_Values_co = TypeVar("_Values_co", bound=Section, covariant=True)


@dataclass(frozen=True)
class Report(Generic[_Values_co]):
    """A report as typed values; ``report["verdict"]["bytes"]`` is ``report.values.verdict.bytes``."""

    values: _Values_co

    @cached_property
    def data(self) -> Mapping[str, Any]:
        """The report as plain values, as its JSON file holds them."""
        data: Mapping[str, Any] = json.loads(self.to_json())
        return data

    def __getitem__(self, key: str) -> Any:
        return self.data[key]

    def _repr_html_(self) -> str:
        """Return what notebooks show."""
        from memsched.report.notebook import notebook_html

        return notebook_html(self.values)

    def to_json(self) -> str:
        """Return the report as the text of its JSON file."""
        return dump_report(self.values)

    @checked
    def to_header(self: Report[OptimizeReport], path: str | os.PathLike[str], model_bytes: int | None = None) -> str:
        """Return the text of the C header that is to be written to ``path``, which gives its include guard.

        Args:
            model_bytes: The size of the model where a C array of it is written, too.

        Raises:
            UsageError: The file is for every size in a range.
        """
        if self.values.sections.open_loops is not None:
            raise UsageError(
                "a header states the sizes of one shape: this file is for every size in a range", code="needs-one-shape"
            )
        return arena_header(self.values, os.fspath(path), model_bytes)

    @checked
    def to_c_array(self: Report[OptimizeReport], model: bytes, path: str | os.PathLike[str]) -> str:
        """Return the text of the C source that is to be written to ``path`` and defines ``model`` as an array."""
        return model_array(self.values, model, os.fspath(path))

    def to_html(self: Report[OptimizeReport]) -> str:
        """Return the page: one HTML file that needs nothing else.

        Raises:
            OutputError: What pages are made with is not installed (the extra ``html``).
        """
        from memsched.report.page import render_page

        return render_page(self.values)

    @checked
    def save(
        self: Report[Any],
        path: str | os.PathLike[str] | None,
        header_path: str | os.PathLike[str] | None = None,
        html_path: str | os.PathLike[str] | None = None,
        others: Mapping[str, bytes] = MappingProxyType({}),
    ) -> None:
        """Write the JSON file, a C header and the page, all or none; a path of None is not written.

        Args:
            others: Files to write with them, by path.

        Raises:
            OutputError: One of them cannot be written.
        """
        for one in (path, header_path, html_path, *others):
            if one is not None:
                check_writable(os.fspath(one))
        with staged_files() as files:
            if path is not None:
                files.add(path, report_pieces(self.values))
            if header_path is not None:
                files.add(header_path, self.to_header(header_path).encode())
            if html_path is not None:
                files.add(html_path, self.to_html().encode())
            for other, data in others.items():
                files.add(other, data)
            files.commit()


class AnalyzeResult(FrozenValue, frozen=True):
    """What a model needs as it stands.

    Attributes:
        graph: The main graph with the target's rules.
        schedule: The file's order, with its peak and bound.
    """

    module: Module
    graph: Graph
    schedule: Schedule
    allocation: Allocation
    report: Report[OptimizeReport]

    def _repr_html_(self) -> str:
        return self.report._repr_html_()


class OptimizeResult(FrozenValue, frozen=True):
    """A model in its new order.

    Attributes:
        model: The model file's bytes; those of the input where nothing better was found.
        graph: The main graph with the target's rules; ``schedule`` and ``allocation`` refer to its ops and tensors.
        budget_met: None when no budget was given.
        interrupted: The search was ended early by ``stop``.
        work: What the searches did, as ``effort`` counts it.
        files: Files that have to lie beside the model, by name, such as its weights.
        withheld: The budget is missed, so that nothing can be saved; see ``keep_best`` of `memsched.optimize`.
    """

    model: bytes
    report: Report[OptimizeReport]
    schedule: Schedule
    allocation: Allocation
    module: Module
    graph: Graph
    verification: Verification | None
    budget_met: bool | None
    interrupted: bool
    work: float = 0.0
    withheld: bool = False
    files: Mapping[str, bytes] = MappingProxyType({})

    def __repr__(self) -> str:
        """Return one line: the model and the verdict."""
        values = self.report.values
        return f"<OptimizeResult {values.model.path}: {verdict_line(values)[0]}>"

    def _repr_html_(self) -> str:
        return self.report._repr_html_()

    @property
    def missed(self) -> bool:
        """Whether the result misses its budget, or the target's pools cannot hold it."""
        pools = self.report.values.sections.pools
        return self.budget_met is False or (pools is not None and pools.weighted_traffic is None)

    @checked
    def save(self, path: str | os.PathLike[str], force: bool = False) -> None:
        """Write the model, whole or not at all, and the external data that it refers to.

        Args:
            force: Permits to overwrite the input.

        Raises:
            OutputError: It cannot be written, or ``path`` is the input and ``force`` is False.
            BudgetError: The budget is missed, and ``keep_best`` was not given.
        """
        check_writable(os.fspath(path))
        save_outputs(self, model_path=path, report_path=None, force=force)


def hold_to_budget(result: OptimizeResult, keep_best: bool, *, strict: bool = False) -> OptimizeResult:
    """Withhold a result that misses its budget, or that a target's pools cannot hold, unless ``keep_best``.

    Raises:
        BudgetError: It is withheld, and ``strict``.
    """
    if keep_best or not result.missed:
        return result
    withheld = _withhold(result)
    if strict:
        raise _budget_error(withheld)
    return withheld


def _budget_error(result: OptimizeResult) -> BudgetError:
    problem = "the budget is missed, so no file is written"
    error = BudgetError(problem, action="keep_best=True keeps the best result")
    error.result = result
    return error


def _withhold(result: OptimizeResult) -> OptimizeResult:
    values = result.report.values
    budget, output = values.budget, values.output
    if budget is not None:
        budget = msgspec.structs.replace(budget, withheld=True)
    if output is not None:
        output = msgspec.structs.replace(output, path=None)
    report = Report(msgspec.structs.replace(values, budget=budget, output=output))
    return dataclasses.replace(result, report=report, withheld=True)


class OutputsDifferError(VerificationError):
    """The reordered model computed other outputs; ``report`` says how far apart they are. There is no model."""

    def __init__(self, message: str, report: Report[OptimizeReport]) -> None:
        super().__init__(message)
        self.report = report


def save_outputs(
    result: OptimizeResult,
    *,
    model_path: str | os.PathLike[str] | None,
    report_path: str | os.PathLike[str] | None,
    header_path: str | os.PathLike[str] | None = None,
    html_path: str | os.PathLike[str] | None = None,
    array_path: str | os.PathLike[str] | None = None,
    force: bool = False,
) -> None:
    """Write model, report, C header, page and C array, all or none: each is complete before the first takes its name.

    A path of None is not written.

    Raises:
        OutputError: One of them cannot be written, or would overwrite the input without ``force``.
        BudgetError: The result misses its budget.
    """
    if result.withheld:
        raise _budget_error(result)
    with staged_files() as files:
        if model_path is not None:
            _check_input(result.module.path, model_path, force=force)
            files.add(model_path, result.model)
            for name, data in result.files.items():
                files.add(Path(model_path).parent / name, data)
            if not result.files:
                external = capability(result.module, WeightFiles)
                files.take(external.copy_external_files(result.module, Path(model_path).parent))
        if report_path is not None:
            files.add(report_path, report_pieces(result.report.values))
        if header_path is not None:
            size = None if array_path is None else len(result.model)
            files.add(header_path, result.report.to_header(header_path, size).encode())
        if html_path is not None:
            files.add(html_path, result.report.to_html().encode())
        if array_path is not None:
            files.add(array_path, result.report.to_c_array(result.model, array_path).encode())
        files.commit()


def check_outputs(
    source: str,
    model_path: str | None,
    report_path: str | None,
    *,
    force: bool,
    header_path: str | None = None,
    html_path: str | None = None,
    array_path: str | None = None,
) -> None:
    """Refuse outputs that cannot be written, or that would overwrite something else, before any time is spent.

    Raises:
        UsageError: Report, header, page, array, model and input are not files of their own, or one that must is none.
        OutputError: A folder cannot be made or written, the input would be overwritten without ``force``, or what
            pages are made with is not installed.
    """
    if model_path is not None:
        _check_input(source, model_path, force=force)
        check_writable(model_path)
        _check_extension(source, model_path)
    if report_path is not None:
        check_apart("report", report_path, (source, model_path))
    if header_path is not None:
        if header_path == STANDARD_STREAM:
            raise UsageError(
                "--header names a file: standard output has no name to make an include guard from", code="needs-file"
            )
        check_apart("header", header_path, (source, model_path, report_path))
    if html_path is not None:
        from memsched.report.page import check_page

        if html_path == STANDARD_STREAM:
            raise UsageError(
                "--html names a file: 'memsched report REPORT.json -o -' writes the page to standard output",
                code="needs-file",
            )
        check_page()
        check_apart("page", html_path, (source, model_path, report_path, header_path))
    if array_path is not None:
        if array_path == STANDARD_STREAM:
            raise UsageError(
                "--c-array names a file: standard output is for the model itself, with -o -", code="needs-file"
            )
        check_apart("array", array_path, (source, model_path, report_path, header_path, html_path))


def _check_extension(source: str, target: str) -> None:
    """Refuse a name that is no model's, or one of another format: models are written in the format that they have."""
    given, asked = (Path(path).suffix.lower() for path in (source, target))
    known = sorted(f".{one.name}" for one in FORMATS)
    if given != asked and {given, asked} <= set(known):
        raise UsageError(
            "models are not converted to other formats",
            code="other-format",
            action=f"end '{target}' in {given}, as '{source}' ends",
        )
    if asked not in {given, *known} and is_regular(target):
        wanted = given if given in known else " or ".join(known)
        raise UsageError(f"'{target}' is not the name of a model", code="file-ending", action=f"end it in {wanted}")


def _check_input(source: str, target: str | os.PathLike[str], *, force: bool) -> None:
    if source != STANDARD_STREAM and not force and same_file(source, target):
        raise overwrites(target, "the input", "give another name with -o, or --force to overwrite it")
