"""The ONNX backend tests, which the onnx package carries: as whole models, and as cells of larger ones."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from tests.corpus.onnx_corpus import Case, cases
from tests.strangers.cells import LAYOUTS, cell
from tests.strangers.judge import Subject

__all__ = ["celled", "whole"]

KINDS = ("node", "simple", "pytorch-operator", "pytorch-converted", "light")


@functools.cache
def whole() -> tuple[Subject, ...]:
    """Return every backend test with its recorded inputs and outputs."""
    return tuple(_subject(case) for kind in KINDS for case in cases(kind))


def _subject(case: Case) -> Subject:
    inputs = tuple(tuple(given) for given, _ in case.data_sets)
    recorded = tuple(tuple(made) for _, made in case.data_sets)
    return Subject("backend", f"{case.kind}/{case.name}", case.model, inputs, recorded, case.rtol, case.atol)


@functools.cache
def celled() -> tuple[Subject, ...]:
    """Return models that have the operator of a node test several times, in each layout that its shapes allow."""
    return tuple(_cells())


def _cells() -> Iterator[Subject]:
    for case in cases("node"):
        for layout in LAYOUTS:
            made = cell(case, layout)
            if made is not None:
                model, feeds = made
                yield Subject("cells", f"{case.name}/{layout}", model, (feeds,))
