"""Targets are data: the built-in ones load, and every mistake in a file is one line that names file and key."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec.structs import fields, replace

from memsched.errors import TargetError, UsageError
from memsched.targets.load import Target, builtin_targets, default_target, load_target
from memsched.targets.model import InPlaceRule, PartViewRule, PipelineRules, ViewRule, WorkspaceRule


def write(folder: Path, text: str, name: str = "own.toml") -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_built_in_targets_load_under_their_own_names() -> None:
    assert builtin_targets() == (
        "coral_edgetpu", "diannao", "ideal", "litert", "litert-builtin", "onnxruntime", "paper", "tflm",
        "tflm-cmsis-nn", "tflm-cmsis-nn-mve", "tflm-esp-nn-s3", "tflm-reference",
    )  # fmt: skip
    for name in builtin_targets():
        target = load_target(name)
        assert target.name == name
        assert target.description


def test_what_the_built_in_targets_say() -> None:
    alignments = {name: load_target(name).alignment_bytes for name in builtin_targets()}
    assert alignments == {
        "coral_edgetpu": 1,
        "diannao": 1, "ideal": 1, "paper": 1, "onnxruntime": 256, "litert": 64, "litert-builtin": 64,
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
    builtin = load_target("litert-builtin")
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
    with pytest.raises(TargetError, match="no default target for format 'pb'"):
        default_target("pb")


def test_targets_are_frozen() -> None:
    with pytest.raises(AttributeError, match="immutable"):
        load_target("ideal").name = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("idael", "did you mean 'ideal'?"),
        ("ONNXRUNTIME", "did you mean 'onnxruntime'?"),
        ("zzz", "built-in targets: coral_edgetpu"),
    ],
)
def test_an_unknown_name_gets_a_suggestion_and_the_list(name: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_target(name)
    assert hint in str(caught.value)
    assert ", ".join(builtin_targets()) in str(caught.value)
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
    "aligment_bytes = 4": "unknown key 'aligment_bytes' (did you mean 'alignment_bytes'?)",
    "extend = 'tflm'": "unknown key 'extend' (did you mean 'extends'?)",
    "qqq = 4": "unknown key 'qqq'; known keys: extends, name",
    'alignment_bytes = "16"': "key 'alignment_bytes' must be of type int, not '16'",
    "alignment_bytes = 16.0": "key 'alignment_bytes' must be of type int",
    "alignment_bytes = true": "key 'alignment_bytes' must be of type int, not True",
    "alignment_bytes = 0": "key 'alignment_bytes' must be a power of two, not 0",
    "alignment_bytes = -16": "key 'alignment_bytes' must be a power of two",
    "alignment_bytes = 24": "key 'alignment_bytes' must be a power of two, not 24",
    "name = 3": "key 'name' must be of type str",
    "outputs_own = 1": "key 'outputs_own' must be of type bool",
    'inputs = "mine"': "key 'inputs' must be one of 'arena', 'kept', 'caller', not 'mine'",
    "inputs = [1]": "key 'inputs' must be one of",
    'runtime = "tvm"': "key 'runtime' must be one of",
    'weights = "disk"': "key 'weights' must be one of",
    'default_order = "random"': "key 'default_order' must be one of",
    "int4_bytes_per_element = 2": "key 'int4_bytes_per_element' must be 0.5 or 1",
    "most_join_inputs = 1": "key 'most_join_inputs' must be 2 or more, not 1",
    'most_join_inputs = "ten"': "key 'most_join_inputs' must be of type int",
    "int4_bytes_per_element = nan": "key 'int4_bytes_per_element' must be 0.5 or 1",
    'inputs = "caller"\noverwrite_inputs = true': "key 'overwrite_inputs' contradicts inputs = \"caller\"",
    'inputs = "kept"\noverwrite_inputs = true': "key 'overwrite_inputs' contradicts inputs = \"kept\"",
    "views = 3": "key 'views' must be a list of tables, written as [[views]]",
    'views = ["Reshape"]': "key 'views' must be a list of tables",
    '[views]\nops = ["Reshape"]': "key 'views' must be a list of tables",
    "[[views]]\ninput = 0": "[[views]] number 1: key 'ops' is missing",
    "[[views]]\nops = []": "[[views]] number 1: key 'ops' must not be empty",
    '[[views]]\nops = "Reshape"': "[[views]] number 1: key 'ops' must be a list",
    "[[views]]\nops = [1]": "[[views]] number 1: key 'ops' must be of type str",
    '[[views]]\nops = ["A"]\ninput = -1': "key 'input' must not be negative",
    '[[in_place]]\nops = ["A"]\n[[in_place]]\nops = ["B"]\ninput = 0': "number 2: unknown key 'input' (did you mean",
    'extends = "\\u0000.toml"': "is no path of a target file",
    '[[in_place]]\nops = ["A"]\ninputs = 0': "key 'inputs' must be a list",
    '[[in_place]]\nops = ["A"]\ninputs = [-1]': "key 'inputs' must not be negative",
    '[[in_place]]\nops = ["A"]\nmatch = "name"': "key 'match' must be one of",
    '[[in_place]]\nops = ["A"]\nabove_bytes = -1': "key 'above_bytes' must not be negative",
    '[[part_views]]\nops = ["A"]': "[[part_views]] number 1: key 'kind' is missing",
    '[[part_views]]\nops = ["A"]\nkind = "half"': "key 'kind' must be one of",
    '[[workspace]]\nops = ["A"]': "[[workspace]] number 1: key 'outputs' is missing",
    '[[workspace]]\nops = ["A"]\noutputs = inf': "key 'outputs' must not be negative, infinite",
    '[[workspace]]\nops = ["A"]\noutputs = nan': "key 'outputs' must not be negative, infinite or no number",
    '[[views]]\nops = ["A"]\n[[in_place]]\nops = ["B", "A"]': "key 'in_place': 'A' is in 'views' as well",
    "pipeline = 3": "key 'pipeline' must be a table, written as [pipeline]",
    "[[pipeline]]\nops_per_second = 1": "key 'pipeline' must be a table, written as [pipeline]",
    "[pipeline]\nlink_bytes_per_second = 1": "[pipeline]: key 'parameter_cache_bytes' is missing",
    '[pipeline]\nparameter_cache_bytes = "8 apples"': "key 'parameter_cache_bytes': '8 apples' is not a size",
    "[pipeline]\ncache = 1": "[pipeline]: unknown key 'cache'",
    _PIPELINE.format(link=0, share=1): "[pipeline]: key 'link_bytes_per_second' must be 1 or more, not 0",
    _PIPELINE.format(link="inf", share=1): "key 'link_bytes_per_second' must be 1 or more and finite, not inf",
    _PIPELINE.format(link=1, share="nan"): "key 'utilisation' must be 1e-06 or more and finite, not nan",
    _PIPELINE.format(link=1, share=1.5): "key 'utilisation' must be at most 1, not 1.5",
    _PIPELINE.format(link="5e-324", share=1): "key 'link_bytes_per_second' must be 1 or more and finite, not 5e-324",
    _PIPELINE.format(link=1, share="5e-324"): "key 'utilisation' must be 1e-06 or more and finite, not 5e-324",
    "flops_per_second = 5e-324": "key 'flops_per_second' must be 0 or at least 1, not 5e-324",
    "flops_per_second = 1" + "0" * 400: "key 'flops_per_second' must be at most 1,000,000",
    "on_chip_bytes = 0x1" + "0" * 5000: "key 'on_chip_bytes' must be at most 1,125,899,906,842,624, not a number",
    '[[workspace]]\nops = ["A"]\noutputs = 1e300': "key 'outputs' must be at most 1,000,000, not 1e+300",
    "alignment_bytes = 0x8" + "0" * 5000: "key 'alignment_bytes' must be at most 1,125,899,906,842,624, not a num",
    "alignment_bytes = 0x100000000": "must be a power of two of at most 1,073,741,824, not 4294967296",
    "extends = 3": "key 'extends' must be the name",
    'extends = "idael"': "key 'extends': unknown target 'idael' (did you mean 'ideal'?)",
    'extends = "nowhere.toml"': "nowhere.toml: no such target file",
    'extends = "own.toml"': "key 'extends' leads in a circle: own.toml -> own.toml",
    "alignment_bytes": "not valid TOML",
    "alignment_bytes = 1\nalignment_bytes = 2": "not valid TOML",
}


@pytest.mark.parametrize("text", BAD_FILES)
def test_a_mistake_is_one_line_that_names_file_and_key(tmp_path: Path, text: str) -> None:
    with pytest.raises(TargetError) as caught:
        load_target(write(tmp_path, text + "\n"))
    message = str(caught.value)
    assert BAD_FILES[text] in message
    assert ".toml" in message
    assert "\n" not in message


def test_a_circle_through_another_file_is_named(tmp_path: Path) -> None:
    write(tmp_path, 'extends = "b.toml"', "a.toml")
    write(tmp_path, 'extends = "a.toml"', "b.toml")
    with pytest.raises(TargetError, match=r"circle: a\.toml -> b\.toml -> a\.toml"):
        load_target(str(tmp_path / "a.toml"))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="no such target file"):
        load_target(str(tmp_path / "none.toml"))
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(TargetError, match="cannot be read"):
        load_target(str(tmp_path / "folder.toml"))
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TargetError, match="not UTF-8"):
        load_target(str(tmp_path / "bytes.toml"))
    (tmp_path / "deep.toml").write_text("views = " + "[" * 100_000, encoding="utf-8")
    with pytest.raises(TargetError, match="not valid TOML"):
        load_target(str(tmp_path / "deep.toml"))
    if os.geteuid():
        (tmp_path / "secret.toml").write_text("", encoding="utf-8")
        (tmp_path / "secret.toml").chmod(0)
        with pytest.raises(TargetError, match="cannot be read"):
            load_target(str(tmp_path / "secret.toml"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('on_chip_bytes = "many"', "key 'on_chip_bytes': 'many' is not a size"),
        ("on_chip_bytes = -1", "key 'on_chip_bytes' must not be negative"),
        ("on_chip_bytes = 0.5", "key 'on_chip_bytes' must be of type int"),
        ("flops_per_second = -1", "key 'flops_per_second' must not be negative"),
        ("bandwidth_bytes_per_second = inf", "key 'bandwidth_bytes_per_second' must not be negative, infinite"),
    ],
)
def test_figures_of_an_accelerator_are_checked(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(TargetError, match=message):
        load_target(write(tmp_path, text))
