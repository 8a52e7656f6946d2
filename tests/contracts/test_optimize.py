"""What `optimize` promises of every model, tried on random ones: networks of both formats, everything permitted."""

from __future__ import annotations

import functools
import io
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import memsched
from memsched.cli.main import main
from memsched.report.reading import parse_report
from memsched.report.schema import json_schema
from memsched.runtimes.child import run_in_child
from tests.bordered_nets import bordered_net
from tests.rewrites.tile.random_nets import tflite_net
from tests.tools.mixed_models import scaled_model

SEEDS = range(6)
EFFORT = 0.3
EVERYTHING: Mapping[str, Any] = {"allow": ("all",), "max_extra_macs": 100.0, "max_slowdown": None}
WORDS = ("--allow", "reorder,inplace,tile,remat", "--max-extra-macs", "100", "--max-slowdown", "none")


def model_of(seed: int) -> tuple[str, bytes, str]:
    """Return the suffix, the bytes and the target of a random network."""
    maker, suffix, target = (
        (scaled_model, ".onnx", "onnxruntime"),
        (tflite_net, ".tflite", "tflm-reference"),
        (bordered_net, ".tflite", "litert-reference"),
    )[seed % 3]
    return suffix, maker(seed), target


@functools.cache
def optimized(seed: int, effort: float = EFFORT) -> memsched.OptimizeResult:
    """Return what everything together gives for a random network, not verified."""
    _, data, target = model_of(seed)
    return memsched.optimize(data, target=target, effort=effort, seed=seed, verify=False, **EVERYTHING)


@pytest.mark.parametrize("seed", SEEDS)
def test_more_effort_is_never_worse(seed: int) -> None:
    peaks = [
        optimized(seed, effort).report["sections"]["requirement"]["bytes"]
        for effort in (EFFORT / 10, EFFORT, 4 * EFFORT)
    ]
    assert peaks == sorted(peaks, reverse=True)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_result_needs_no_more_than_the_file_as_given(seed: int) -> None:
    needed = optimized(seed).report["sections"]["requirement"]
    assert needed["bytes"] <= needed["given_bytes"]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_report_validates(seed: int) -> None:
    text = optimized(seed).report.to_json()
    jsonschema.validate(json.loads(text), json_schema("report"))
    parse_report(text.encode(), "report.json")  # refuses figures that contradict each other


@pytest.mark.parametrize("seed", SEEDS)
def test_the_figures_of_a_report_add_up(seed: int) -> None:
    report = optimized(seed).report.data
    needed, alignment = report["sections"]["requirement"], report["written"]["allocation"]["alignment_bytes"]
    for parts, whole in (("parts", "bytes"), ("given_parts", "given_bytes")):
        assert not needed[parts] or sum(needed[parts].values()) == needed[whole]
    assert (
        max(step["footprint_bytes"] for step in report["written"]["steps"])
        == report["written"]["schedule"]["peak_bytes"]
    )
    buffers = report["written"]["buffers"]
    end = max(one["offset_bytes"] + one["size_bytes"] for one in buffers)
    assert end <= report["written"]["schedule"]["arena_bytes"] == -(-end // alignment) * alignment
    shared = {one["tensor"] for one in buffers if one["in_place_of"] or one["view_of"] or one["consists_of"]}
    alone = [one for one in buffers if one["tensor"] not in shared]
    for one, other in itertools.combinations(alone, 2):
        together = one["first_step"] <= other["last_step"] and other["first_step"] <= one["last_step"]
        below, above = sorted((one, other), key=lambda each: each["offset_bytes"])
        assert not together or below["offset_bytes"] + below["size_bytes"] <= above["offset_bytes"]


@pytest.mark.parametrize("seed", range(3))
def test_neither_workers_nor_hash_seeds_nor_the_core_change_a_byte(seed: int, tmp_path: Path) -> None:
    suffix, data, target = model_of(seed)
    (tmp_path / f"net{suffix}").write_bytes(data)
    surroundings: list[tuple[tuple[str, ...], dict[str, str]]] = [
        (("--workers", "1"), {"PYTHONHASHSEED": "0"}),
        (("--workers", "2"), {"PYTHONHASHSEED": "1"}),
        (("--workers", "1"), {"PYTHONHASHSEED": "2", "MEMSCHED_CORE": "0"}),
    ]
    written = []
    for workers, environment in surroundings:
        words = ("optimize", f"net{suffix}", "-o", f"out{suffix}", "--target", target, *WORDS, *workers, "--no-verify")
        command = [sys.executable, "-m", "memsched", *words, "--effort", "0.1", "--force"]
        subprocess.run(command, cwd=tmp_path, env={**os.environ, **environment}, capture_output=True, check=True)
        written.append((tmp_path / f"out{suffix}").read_bytes())
    assert written[0] == written[1] == written[2]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_budget_that_is_missed_leaves_no_file(seed: int, tmp_path: Path) -> None:
    suffix, data, target = model_of(seed)
    (tmp_path / f"net{suffix}").write_bytes(data)
    path = str(tmp_path / f"net{suffix}")
    words = ["optimize", path, "-o", str(tmp_path / f"out{suffix}"), "--target", target, "--effort", "0.1"]
    assert main([*words, "--budget", "8B"]) == 3
    assert [one.name for one in tmp_path.iterdir()] == [f"net{suffix}"]


_SESSIONS = 4
"""How often both files are opened at most."""


@pytest.mark.parametrize("seed", [one for one in SEEDS if model_of(one)[0] == ".onnx"])
@pytest.mark.quick
def test_a_session_without_options_requests_no_more_for_the_result(seed: int, tmp_path: Path) -> None:
    """Unless a session is named: the sessions here are opened as people open them, and ask for what they record."""
    _, data, _ = model_of(seed)
    result = memsched.optimize(data, effort=EFFORT, seed=seed, level=3, max_slowdown=None)
    paths = [str(tmp_path / name) for name in ("given.onnx", "written.onnx")]
    for path, content in zip(paths, (data, result.model), strict=True):
        Path(path).write_bytes(content)
    rng, feeds = np.random.default_rng(seed), io.BytesIO()
    graph = memsched.load(data).graph
    inputs = [graph.tensors[number] for number in graph.inputs]
    values = {one.name: rng.standard_normal(one.shape).astype("f") for one in inputs}
    np.savez(feeds, **values)  # type: ignore[arg-type]  # its keywords are the arrays' names
    request = {"paths": paths, "options": [], "claimed": None, "feeds": feeds.getvalue()}
    seen: list[tuple[int, int]] = []
    # In which order a session changes layouts is chance, and rarely takes more; what a file needs it always takes.
    while not seen or (seen[-1][1] > seen[-1][0] and len(seen) < _SESSIONS):
        found = run_in_child("tests.tools.claims.sessions:run_onnxruntime", request, 60.0)
        assert found.ok, found.reason
        seen.append(tuple(found.value["peaks"]))
    given, written = seen[-1]
    assert written <= given, seen
    assert found.value["same"]


def late_outputs() -> bytes:
    """Return a model whose file order suits a session with options better than the order without options does."""
    value = functools.partial(helper.make_tensor_value_info, elem_type=TensorProto.FLOAT)
    weights = {"k0": (8, 5, 4, 4), "k4": (4, 1, 4, 4)}
    rng = np.random.default_rng(0)
    constants = [numpy_helper.from_array(rng.random(shape, np.float32), name) for name, shape in weights.items()]
    constants.append(numpy_helper.from_array(np.array([1, 1]), "halves"))
    nodes = [
        helper.make_node("AveragePool", ["x0"], ["v1"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("Concat", ["x0", "v1"], ["v2"], axis=1),
        helper.make_node("ConvTranspose", ["x1", "k0"], ["v4"], strides=[2, 2]),
        helper.make_node("Sigmoid", ["x1"], ["v5"]),
        helper.make_node("Split", ["v2", "halves"], ["v6", "v7"], axis=0),
        helper.make_node("Sinh", ["v7"], ["v8"]),
        helper.make_node("Conv", ["v8", "k4"], ["v9"], group=4, strides=[2, 2]),
    ]
    inputs = [value("x0", shape=(2, 2, 5, 16)), value("x1", shape=(2, 8, 5, 7))]
    graph = helper.make_graph(nodes, "late", inputs, [value(f"v{one}", shape=None) for one in (4, 5, 6, 9)], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    data: bytes = model.SerializeToString()
    return data


def test_a_session_with_options_needs_no_more_for_another_order() -> None:
    required = memsched.optimize(late_outputs(), level=0, verify=False, effort=EFFORT).report["sections"]["requirement"]
    assert required["bytes"] <= required["given_bytes"]
