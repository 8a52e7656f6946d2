"""Targets are data: the built-in ones load, and every mistake in a file is one line that names file and key."""

from __future__ import annotations

import os
from pathlib import Path
from typing import get_args

import pytest
from msgspec.structs import fields, replace

from memsched.base.errors import TargetError
from memsched.targets.load import Target, builtin_targets, default_target, load_target
from memsched.targets.model import (
    KERNELS_OF,
    InPlaceRule,
    Kernels,
    PartViewRule,
    PipelineRules,
    ViewRule,
    WorkspaceRule,
)
from tests.failures import fails


def write(folder: Path, text: str, name: str = "own.toml") -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_built_in_targets_load_under_their_own_names() -> None:
    assert builtin_targets() == (
        "coral_edgetpu", "diannao", "ideal", "litert", "litert-reference", "onnxruntime", "paper", "tflm",
        "tflm-cmsis-nn", "tflm-cmsis-nn-mve", "tflm-esp-nn-s3", "tflm-reference",
    )  # fmt: skip
    for name in builtin_targets():
        target = load_target(name)
        assert target.name == name
        assert target.description


def test_all_kernels_are_for_one_planner() -> None:
    assert sorted(one for kernels in KERNELS_OF.values() for one in kernels) == sorted({*get_args(Kernels)} - {""})


def test_what_the_built_in_targets_say() -> None:
    alignments = {name: load_target(name).alignment_bytes for name in builtin_targets()}
    assert alignments == {
        "coral_edgetpu": 1,
        "diannao": 1, "ideal": 1, "paper": 1, "onnxruntime": 256, "litert": 64, "litert-reference": 64,
        "tflm": 16, "tflm-reference": 16,
        "tflm-cmsis-nn": 16, "tflm-cmsis-nn-mve": 16, "tflm-esp-nn-s3": 16,
    }  # fmt: skip
    chip = load_target("diannao")
    assert (chip.on_chip_bytes, chip.bandwidth_bytes_per_second, chip.flops_per_second) == (768 * 1024, 1.5e9, 200e9)
    assert load_target("coral_edgetpu").pipeline == PipelineRules(8 << 20, 320e6, 4e12, 0.25, 8)
    assert all(load_target(name).pipeline is None for name in builtin_targets() if name != "coral_edgetpu")
    onnxruntime, litert, tflm = load_target("onnxruntime"), load_target("litert"), load_target("tflm")
    assert (onnxruntime.runtime, onnxruntime.inputs, onnxruntime.default_order) == (
        "onnxruntime",
        "caller",
        "onnxruntime",
    )
    assert onnxruntime.outputs_own
    assert onnxruntime.reuse_equal_shapes
    assert (litert.runtime, litert.inputs, litert.default_order) == ("litert", "kept", "file")
    builtin = load_target("litert-reference")
    said = {"name": litert.name, "description": litert.description, "default_delegate": True}
    assert replace(builtin, **said) == litert
    assert not builtin.default_delegate
    assert (tflm.runtime, tflm.inputs, tflm.dead_tensors_allocated, tflm.int4_bytes_per_element) == (
        "",
        "arena",
        True,
        1,
    )
    # What only copies, whoever wrote the kernel, may be copied onto itself.
    assert [rule.ops for rule in tflm.views] == [("RESHAPE", "SQUEEZE", "EXPAND_DIMS")]
    assert [rule.ops for rule in tflm.part_views] == [("CONCATENATION",), ("SLICE",)]
    assert [rule.ops for rule in tflm.in_place] == [("DYNAMIC_UPDATE_SLICE",)]
    assert not tflm.pads_over_inputs
    reference = load_target("tflm-reference")
    assert (tflm.planner, reference.planner, reference.overwrite_inputs) == ("tflm", "tflm", True)
    assert (reference.dead_tensors_allocated, reference.int4_bytes_per_element) == (True, 1)
    assert load_target("paper") == Target("paper", load_target("paper").description)
    assert load_target("ideal").overwrite_inputs
    assert all(load_target(name).weights == "flash" for name in builtin_targets())


def test_default_targets() -> None:
    assert (default_target("onnx"), default_target("tflite")) == ("onnxruntime", "litert")
    with fails("no-default-target", "'pb'", "onnxruntime"):
        default_target("pb")


def test_targets_are_frozen() -> None:
    with pytest.raises(AttributeError, match="immutable"):
        load_target("ideal").name = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("name", "hint"),
    [("idael", "'ideal'?"), ("ONNXRUNTIME", "'onnxruntime'?"), ("zzz", "coral_edgetpu")],
)
def test_an_unknown_name_gets_a_suggestion_and_the_list(name: str, hint: str) -> None:
    with fails("no-such-target", f"'{name}'", hint, *builtin_targets()) as caught:
        load_target(name)
    assert "\n" not in str(caught.value)


def test_a_file_may_say_everything(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """
        name = "board"
        description = "Ours"
        runtime = "litert"
        alignment_bytes = 32
        default_order = "onnxruntime"
        inputs = "arena"
        overwrite_inputs = true
        outputs_own = true
        weights = "ram"
        reuse_equal_shapes = true
        dead_tensors_allocated = true
        int4_bytes_per_element = 1.0
        [[views]]
        ops = ["RESHAPE"]
        input = 1
        [[part_views]]
        ops = ["CONCATENATION"]
        kind = "concatenation"
        [[in_place]]
        ops = ["RELU", "ADD"]
        inputs = [0, 1]
        match = "shape"
        elementwise = true
        sole_reader = true
        above_bytes = 8
        [[workspace]]
        ops = ["CONV_2D"]
        outputs = 0.5
        when = "axis_not_last"
        [pipeline]
        parameter_cache_bytes = "1KB"
        parameter_bits = 16
        link_bytes_per_second = 1e6
        ops_per_second = 2e6
        utilisation = 1
        """,
    )
    expected = Target(
        name="board",
        description="Ours",
        runtime="litert",
        alignment_bytes=32,
        default_order="onnxruntime",
        inputs="arena",
        overwrite_inputs=True,
        outputs_own=True,
        weights="ram",
        reuse_equal_shapes=True,
        dead_tensors_allocated=True,
        int4_bytes_per_element=1.0,
        views=(ViewRule(("RESHAPE",), 1),),
        part_views=(PartViewRule(("CONCATENATION",), "concatenation"),),
        in_place=(InPlaceRule(("RELU", "ADD"), (0, 1), "shape", True, True, 8),),
        workspace=(WorkspaceRule(("CONV_2D",), 0.5, "axis_not_last"),),
        pipeline=PipelineRules(1024, 1e6, 2e6, 1.0, 16),
    )
    assert load_target(path) == expected
    assert {field.name for field in fields(Target)} == {field.name for field in fields(expected)}


def test_a_file_may_change_a_few_keys_of_another(tmp_path: Path) -> None:
    base = load_target("ideal")
    own = load_target(write(tmp_path, 'extends = "ideal"\nalignment_bytes = 8\n'))
    assert (own.name, own.alignment_bytes, own.in_place, own.views) == ("own", 8, base.in_place, base.views)
    write(tmp_path, 'extends = "own.toml"\nname = "third"\nviews = []\n', "third.toml")
    third = load_target(str(tmp_path / "third.toml"))
    assert (third.name, third.alignment_bytes, third.views) == ("third", 8, ())


def test_the_name_of_a_file_without_one_is_its_stem(tmp_path: Path) -> None:
    assert load_target(write(tmp_path, "alignment_bytes = 4\n", "stm32.toml")).name == "stm32"


_PIPELINE = """
[pipeline]
parameter_cache_bytes = 1
ops_per_second = 1
link_bytes_per_second = {link}
utilisation = {share}
"""

BAD_FILES = {
    "aligment_bytes = 4": ("unknown-key", "'aligment_bytes'", "'alignment_bytes'"),
    "extend = 'tflm'": ("unknown-key", "'extend'", "'extends'"),
    "qqq = 4": ("unknown-key", "'qqq'"),
    'alignment_bytes = "16"': ("value-type", "'alignment_bytes'", "'16'"),
    "alignment_bytes = 16.0": ("value-type", "'alignment_bytes'"),
    "alignment_bytes = true": ("value-type", "'alignment_bytes'", "True"),
    "alignment_bytes = 0": ("contradiction", "'alignment_bytes'"),
    "alignment_bytes = -16": ("contradiction", "'alignment_bytes'"),
    "alignment_bytes = 24": ("contradiction", "'alignment_bytes'", "24"),
    "name = 3": ("value-type", "'name'"),
    "outputs_own = 1": ("value-type", "'outputs_own'"),
    'inputs = "mine"': ("value-choice", "'inputs'", "'arena'", "'kept'", "'caller'", "'mine'"),
    "inputs = [1]": ("value-choice", "'inputs'"),
    'runtime = "tvm"': ("value-choice", "'runtime'"),
    'weights = "disk"': ("value-choice", "'weights'"),
    'default_order = "random"': ("value-choice", "'default_order'"),
    "int4_bytes_per_element = 2": ("contradiction", "'int4_bytes_per_element'", "0.5"),
    "most_join_inputs = 1": ("value-range", "'most_join_inputs'", "2"),
    'most_join_inputs = "ten"': ("value-type", "'most_join_inputs'"),
    "int4_bytes_per_element = nan": ("contradiction", "'int4_bytes_per_element'", "0.5"),
    'inputs = "caller"\noverwrite_inputs = true': ("contradiction", "'overwrite_inputs'"),
    'inputs = "kept"\noverwrite_inputs = true': ("contradiction", "'overwrite_inputs'"),
    "views = 3": ("value-type", "'views'", "[[views]]"),
    'views = ["Reshape"]': ("value-type", "'views'"),
    '[views]\nops = ["Reshape"]': ("value-type", "'views'"),
    "[[views]]\ninput = 0": ("missing-key", "[[views]] number 1", "'ops'"),
    "[[views]]\nops = []": ("value-form", "[[views]] number 1", "'ops'"),
    '[[views]]\nops = "Reshape"': ("value-type", "[[views]] number 1", "'ops'"),
    "[[views]]\nops = [1]": ("value-type", "[[views]] number 1", "'ops'"),
    '[[views]]\nops = ["A"]\ninput = -1': ("value-range", "[[views]] number 1", "'input'"),
    '[[in_place]]\nops = ["A"]\n[[in_place]]\nops = ["B"]\ninput = 0': (
        "unknown-key",
        "[[in_place]] number 2",
        "number 2",
        "'input'",
    ),
    'extends = "\\u0000.toml"': ("target-unreadable",),
    '[[in_place]]\nops = ["A"]\ninputs = 0': ("value-type", "[[in_place]] number 1", "'inputs'"),
    '[[in_place]]\nops = ["A"]\ninputs = [-1]': ("value-range", "[[in_place]] number 1", "'inputs'"),
    '[[in_place]]\nops = ["A"]\nmatch = "name"': ("value-choice", "[[in_place]] number 1", "'match'"),
    '[[in_place]]\nops = ["A"]\nabove_bytes = -1': ("value-range", "[[in_place]] number 1", "'above_bytes'"),
    '[[part_views]]\nops = ["A"]': ("missing-key", "[[part_views]] number 1", "'kind'"),
    '[[part_views]]\nops = ["A"]\nkind = "half"': ("value-choice", "[[part_views]] number 1", "'kind'"),
    '[[workspace]]\nops = ["A"]': ("missing-key", "[[workspace]] number 1", "'outputs'"),
    '[[workspace]]\nops = ["A"]\noutputs = inf': ("value-range", "[[workspace]] number 1", "'outputs'"),
    '[[workspace]]\nops = ["A"]\noutputs = nan': ("value-range", "[[workspace]] number 1", "'outputs'"),
    '[[views]]\nops = ["A"]\n[[in_place]]\nops = ["B", "A"]': ("contradiction", "'in_place'", "'A'", "'views'"),
    "pipeline = 3": ("value-type", "'pipeline'", "[pipeline]"),
    "[[pipeline]]\nops_per_second = 1": ("value-type", "'pipeline'", "[pipeline]"),
    "[pipeline]\nlink_bytes_per_second = 1": ("missing-key", "[pipeline]", "'parameter_cache_bytes'"),
    '[pipeline]\nparameter_cache_bytes = "8 apples"': (
        "bad-size",
        "[pipeline]",
        "'parameter_cache_bytes'",
        "'8 apples'",
    ),
    "[pipeline]\ncache = 1": ("unknown-key", "[pipeline]", "'cache'"),
    _PIPELINE.format(link=0, share=1): ("value-range", "[pipeline]", "'link_bytes_per_second'"),
    _PIPELINE.format(link="inf", share=1): ("value-range", "[pipeline]", "'link_bytes_per_second'", "inf"),
    _PIPELINE.format(link=1, share="nan"): ("value-range", "[pipeline]", "'utilisation'", "1e-06", "nan"),
    _PIPELINE.format(link=1, share=1.5): ("value-range", "[pipeline]", "'utilisation'", "1.5"),
    _PIPELINE.format(link="5e-324", share=1): ("value-range", "[pipeline]", "'link_bytes_per_second'", "5e-324"),
    _PIPELINE.format(link=1, share="5e-324"): ("value-range", "[pipeline]", "'utilisation'", "1e-06", "5e-324"),
    "flops_per_second = 5e-324": ("contradiction", "'flops_per_second'", "5e-324"),
    "flops_per_second = 1" + "0" * 400: ("value-range", "'flops_per_second'", "1,000,000"),
    "on_chip_bytes = 0x1" + "0" * 5000: ("value-range", "'on_chip_bytes'", "1,125,899,906,842,624"),
    '[[workspace]]\nops = ["A"]\noutputs = 1e300': (
        "value-range",
        "[[workspace]] number 1",
        "'outputs'",
        "1,000,000",
        "1e+300",
    ),
    "alignment_bytes = 0x8" + "0" * 5000: ("value-range", "'alignment_bytes'", "1,125,899,906,842,624"),
    "alignment_bytes = 0x100000000": ("contradiction", "'alignment_bytes'", "1,073,741,824", "4294967296"),
    "extends = 3": ("value-type", "'extends'"),
    'extends = "idael"': ("no-such-base", "'extends'", "'idael'", "'ideal'"),
    'extends = "nowhere.toml"': ("no-such-target-file",),
    'extends = "own.toml"': ("extends-circle", "'extends'", "own.toml"),
    "alignment_bytes": ("target-not-toml", "'='"),
    "alignment_bytes = 1\nalignment_bytes = 2": ("target-not-toml",),
}


@pytest.mark.parametrize("text", BAD_FILES)
def test_a_mistake_is_one_line_that_names_file_and_key(tmp_path: Path, text: str) -> None:
    with fails(*BAD_FILES[text]) as caught:
        load_target(write(tmp_path, text + "\n"))
    assert isinstance(caught.value, TargetError)
    assert caught.value.location.endswith(".toml")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_a_circle_through_another_file_is_named(tmp_path: Path) -> None:
    write(tmp_path, 'extends = "b.toml"', "a.toml")
    write(tmp_path, 'extends = "a.toml"', "b.toml")
    with fails("extends-circle", "a.toml -> b.toml -> a.toml"):
        load_target(str(tmp_path / "a.toml"))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with fails("no-such-target-file", "none.toml"):
        load_target(str(tmp_path / "none.toml"))
    (tmp_path / "folder.toml").mkdir()
    with fails("target-unreadable", "folder.toml"):
        load_target(str(tmp_path / "folder.toml"))
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    with fails("target-not-text", "bytes.toml"):
        load_target(str(tmp_path / "bytes.toml"))
    (tmp_path / "deep.toml").write_text("views = " + "[" * 100_000, encoding="utf-8")
    with fails("target-not-toml", "deep.toml"):
        load_target(str(tmp_path / "deep.toml"))
    if os.geteuid():
        (tmp_path / "secret.toml").write_text("", encoding="utf-8")
        (tmp_path / "secret.toml").chmod(0)
        with fails("target-unreadable", "secret.toml"):
            load_target(str(tmp_path / "secret.toml"))


@pytest.mark.parametrize(
    ("text", "code", "about"),
    [
        ('on_chip_bytes = "many"', "bad-size", "'many'"),
        ("on_chip_bytes = -1", "value-range", "-1"),
        ("on_chip_bytes = 0.5", "value-type", "0.5"),
        ("flops_per_second = -1", "value-range", "-1"),
        ("bandwidth_bytes_per_second = inf", "value-range", "inf"),
    ],
)
def test_figures_of_an_accelerator_are_checked(tmp_path: Path, text: str, code: str, about: str) -> None:
    with fails(code, f"'{text.split(maxsplit=1)[0]}'", about):
        load_target(write(tmp_path, text))
