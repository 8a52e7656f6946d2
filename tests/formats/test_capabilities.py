"""Capabilities: formats that have one are found, and for others the command goes on or refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from memsched.formats import capabilities
from memsched.formats.blocks import Range
from memsched.formats.capabilities import (
    ActivationChains,
    BorderRewrites,
    Capability,
    DecoderCaches,
    DynamicDimensions,
    KernelContents,
    ScaledWeights,
    ShapeArithmetic,
    Shards,
    SizeGuards,
    Stages,
    WeightFiles,
    WeightPlacement,
)
from memsched.formats.format import Format
from memsched.formats.known import FORMATS, capability, format_named
from memsched.formats.module import LoadOptions
from memsched.formats.segment import Segment
from tests.failures import fails
from tests.formats.test_segments import module

PLAIN = cast(
    "Format", SimpleNamespace(traits=replace(format_named("onnx").traits, title="Plain"), name="plain", capabilities=())
)
"""A format that reads and writes models, and nothing else."""

KINDS = Capability.__subclasses__()


def test_every_kind_is_public_and_some_format_has_it_once() -> None:
    assert {kind.__name__ for kind in KINDS} < {*capabilities.__all__}
    for kind in KINDS:
        counts = [sum(isinstance(one, kind) for one in form.capabilities) for form in FORMATS]
        assert 1 in counts
        assert set(counts) <= {0, 1}, kind


@pytest.mark.parametrize("kind", KINDS)
def test_a_capability_is_found_by_format_and_by_module(kind: type[Capability]) -> None:
    given = module()
    form = format_named(given.format)
    assert capability(given, kind) == capability(form, kind)
    assert type(capability(form, kind)) in {kind, *map(type, form.capabilities)}
    assert type(capability(PLAIN, kind)) is kind


def test_without_a_capability_there_is_nothing_to_do() -> None:
    given, options, segment = module(), LoadOptions(), Segment((0,), ("x",), ("a",))
    stages, files, guards = (capability(PLAIN, Stages), capability(PLAIN, WeightFiles), capability(PLAIN, SizeGuards))
    assert (stages.together(given), stages.annotate_stages(given, [0])) == ((), None)
    assert stages.segment_options(given, segment) == options
    assert (files.references(b"", Path()), files.external_files(given)) == ((), ())
    assert files.copy_external_files(given, Path()) == ()
    assert (guards.fixed_dimensions(given, b""), guards.with_guards(given, given, b"x")) == ({}, b"x")
    assert guards.sizes_can_be_refused(given, options)
    assert not capability(PLAIN, BorderRewrites).borders(given).found
    assert capability(PLAIN, ActivationChains).chains(given) == ()
    assert capability(PLAIN, ShapeArithmetic).folded(given, options) is None
    assert capability(PLAIN, ScaledWeights).rewrite_scaled(given, given.graph) is None
    placement = capability(PLAIN, WeightPlacement)
    assert (placement.in_branches(given, b"x"), placement.weights_first(b"x")) == ((), b"x")
    kernels = capability(PLAIN, KernelContents).layer_kernels(given)
    assert len(kernels) == len(given.graph.ops)


def test_commands_that_cannot_go_on_refuse_the_format_by_name() -> None:
    with fails("format-without-stages", "Plain", module().path):
        capability(PLAIN, Stages).cutter(module())
    with fails("no-shards", "Plain", module().path):
        capability(PLAIN, Shards).part_writer(module())
    with fails("no-such-dimension", "Plain", "net", "n"):
        capability(PLAIN, DynamicDimensions).open_model(b"", "net", {}, {"n": Range(1, 2)})
    with fails("no-decoder", "Plain", "net"):
        capability(PLAIN, DecoderCaches).open_decoder(b"", "net", {}, None)
