"""What `import memsched` offers: names, types and docstrings, orders of one's own, and the examples."""

from __future__ import annotations

import contextlib
import inspect
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import memsched
from memsched.features.distribute.distribute import distribute, run_plan
from memsched.features.pipeline.pipeline import pipeline
from memsched.graph import dag
from tests import small_models
from tests.failures import fails
from tests.formats import tflite_builder
from tests.outcomes import line_with

ROOT = Path(__file__).parents[1]
TFLITE = tflite_builder.build(tflite_builder.branches(size=64))
MODELS = {"onnx": small_models.branches(), "tflite": TFLITE}


# Names ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", memsched.__all__)
def test_every_name_is_there_and_documented(name: str) -> None:
    value = getattr(memsched, name)
    assert name in dir(memsched)
    if name != "__version__":
        assert inspect.getdoc(value)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'optimise'"):
        memsched.optimise  # noqa: B018


def test_public_functions_are_typed_and_documented() -> None:
    assert (ROOT / "memsched" / "py.typed").is_file()
    functions = [getattr(memsched, name) for name in memsched.__all__]
    functions += [pipeline, distribute, run_plan]
    for function in filter(inspect.isfunction, functions):
        signature = inspect.signature(function)
        assert signature.return_annotation is not inspect.Signature.empty, function
        assert all(p.annotation is not inspect.Parameter.empty for p in signature.parameters.values()), function
        keywords = [name for name, p in signature.parameters.items() if p.kind is p.KEYWORD_ONLY or name == "options"]
        text = inspect.getdoc(function) or ""
        assert "Raises:" in text or not keywords, f"{function.__name__} does not say what it raises"


# What is given wrongly -----------------------------------------------------------------------------------------------

NAN = float("nan")
GUARANTEES = ("none", "session", "pins", "default")


@pytest.mark.parametrize(
    ("kind", "values", "told"),
    [
        (
            "onnx",
            {"order_guarantee": "sess"},
            ("option-choice", "--order-guarantee sess", *GUARANTEES),
        ),
        ("tflite", {"order_guarantee": "x"}, ("option-choice", "--order-guarantee x", *GUARANTEES)),
        ("onnx", {"session": "zzz"}, ("option-choice", "--session zzz", "default", "all", "extended", "basic")),
        ("tflite", {"target": "tflm", "budget_for": "q"}, ("option-choice", "--budget-for q", "arena", "activations")),
        ("tflite", {"target": "tflm", "tflm_plan": 3}, ("argument-type", "tflm_plan", "True, False", "None", "3")),
        ("onnx", {"solver": "fast"}, ("option-choice", "--solver fast", "auto, ")),
        ("onnx", {"partitions": "two"}, ("option-range", "--partitions two", "1", "auto")),
        ("onnx", {"time_limit": NAN}, ("option-range", "--time-limit nan")),
        ("onnx", {"effort": NAN}, ("option-range", "--effort nan")),
        ("onnx", {"max_extra_macs": NAN}, ("option-range", "--max-extra-macs nan")),
        ("onnx", {"max_slowdown": NAN}, ("option-range", "--max-slowdown nan")),
        ("onnx", {"budget": 1.5}, ("argument-type", "budget", "None", "1.5")),
        ("onnx", {"input_shapes": {"x": 5}}, ("argument-type", "input_shapes: x", "5")),
        ("onnx", {"dims": {"x": "12"}}, ("argument-type", "dims: x", "'12'")),
        ("onnx", {"dims": {"x": (1, "8")}}, ("argument-type", "dims: x", "'8'")),
        ("onnx", {"dims": {"x": -1}}, ("bad-length", "dims: x", "-1")),
        ("onnx", {"dims": {"x": 2**70}}, ("bad-length", "dims: x", "1180591620717411303424")),
        ("onnx", {"dims": {"x": (1, 2**70)}}, ("bad-length", "dims: x", "1180591620717411303424")),
        ("onnx", {"input_shapes": {"x": (1, -1)}}, ("bad-length", "input_shapes: x", "-1")),
    ],
)
def test_optimize_says_what_may_be_given(kind: str, values: dict[str, Any], told: tuple[str, ...]) -> None:
    with fails(*told):
        memsched.optimize(MODELS[kind], verify=False, **values)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"budget_for": "q"}, ("option-choice", "--budget-for q", "arena", "activations")),
        ({"time_limit": NAN}, ("option-range", "--time-limit nan")),
        ({"input_shapes": {"x": 5}}, ("argument-type", "input_shapes: x", "5")),
        ({"dims": {"n": (1, 8)}, "budget_for": "arena"}, ("option-conflict", "--budget-for arena")),
    ],
)
def test_analyze_says_what_may_be_given(values: dict[str, Any], told: tuple[str, ...]) -> None:
    with fails(*told):
        memsched.analyze(TFLITE, **values)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"runtime": "foo"}, ("option-choice", "--runtime foo", "onnxruntime", "litert", "tflm")),
        ({"rtol": NAN}, ("option-range", "--rtol nan", "0")),
        ({"atol": -1.0}, ("option-range", "--atol -1.0", "0")),
        ({"runs": 0}, ("option-range", "--runs 0", "1")),
        ({"input_shapes": {"x": 5}}, ("argument-type", "input_shapes: x", "5")),
    ],
)
def test_verify_says_what_may_be_given(values: dict[str, Any], told: tuple[str, ...]) -> None:
    with fails(*told):
        memsched.verify(MODELS["onnx"], MODELS["onnx"], **values)


@pytest.mark.parametrize("name", ["scheduler", "balance", "profile", "skips"])
def test_pipeline_says_what_may_be_given(name: str) -> None:
    wrong: dict[str, Any] = {name: "zz"}
    with fails("option-choice", f"--{name} zz"):
        pipeline(MODELS["onnx"], stages=2, verify=False, **wrong)


@pytest.mark.parametrize("name", ["method", "metric"])
def test_distribute_says_what_may_be_given(name: str) -> None:
    wrong: dict[str, Any] = {name: "zz"}
    with fails("option-choice", f"--{name} zz"):
        distribute(MODELS["onnx"], cluster="pi4x4", **wrong)


ANALYSIS = memsched.analyze(MODELS["onnx"])
OPS = range(len(ANALYSIS.graph.ops))
BUFFERS = memsched.allocate_buffers(b"id,lower,upper,size\na,0,2,10\nb,1,3,20\n")
CALLS: list[tuple[Any, list[Any], dict[str, Any]]] = [
    (memsched.load, [MODELS["onnx"]], {}),
    (memsched.analyze, [MODELS["onnx"]], {}),
    (memsched.optimize, [MODELS["onnx"]], {"verify": False, "effort": 0.3}),
    (memsched.verify, [MODELS["onnx"]] * 2, {}),
    (memsched.allocate_buffers, [b"id,lower,upper,size\na,0,2,10\n"], {}),
    (memsched.load_report, ["none.json"], {}),
    (memsched.compare_reports, [ANALYSIS.report.data] * 2, {"names": ("a", "b")}),
    (memsched.reorder, [ANALYSIS.module, OPS], {}),
    (memsched.evaluate, [memsched.Storage.of(ANALYSIS.graph), OPS], {}),
    (memsched.Storage.of, [ANALYSIS.graph], {}),
    (pipeline, [MODELS["onnx"]], {"stages": 2, "verify": False}),
    (distribute, [MODELS["onnx"]], {"cluster": "pi4x4", "time_limit": 0}),
    (run_plan, [distribute(MODELS["onnx"], cluster="pi4x4", time_limit=0)], {}),
    (ANALYSIS.report.save, ["report.json"], {}),
    (ANALYSIS.report.to_header, ["model.h"], {}),
    (ANALYSIS.report.to_c_array, [b"", "model.c"], {}),
    (BUFFERS.save, ["buffers.csv"], {}),
]
PARAMETERS = [(call, name) for call in CALLS for name in inspect.signature(call[0]).parameters]
OTHERS: tuple[object, ...] = (
    3,
    "zz",
    None,
    1.5,
    True,
    b"x",
    [],
    ["x"],
    [1, "x"],
    (1, 2),
    {},
    {1: 2},
    {"x": "y"},
    {"x": 1.5},
    {"x": (1,)},
)


@pytest.mark.parametrize(
    ("call", "name"), PARAMETERS, ids=[f"{call[0].__qualname__}-{one}" for call, one in PARAMETERS]
)
def test_no_parameter_takes_a_value_of_another_type(
    call: tuple[Any, list[Any], dict[str, Any]], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    function, args, keywords = call
    names = list(inspect.signature(function).parameters)

    def called_with(value: object) -> None:
        given = dict(zip(names, args, strict=False)) | keywords | {name: value}
        function(*[given.pop(one) for one in names[: len(args)]], **given)

    with fails("argument-type", "<object obj") as caught:
        called_with(object())
    assert caught.value.location == name
    for value in OTHERS:
        with contextlib.suppress(memsched.MemschedError):
            called_with(value)


def test_order_of_ones_own_names_each_operator_once() -> None:
    storage = memsched.Storage.of(ANALYSIS.graph)
    wrong: tuple[Any, ...] = ([], [0] * len(OPS), ["x"] * len(OPS), [*OPS, 0])
    for order in wrong:
        with fails("not-an-order", f"{len(OPS)}"):
            memsched.evaluate(storage, order)
    with fails("runs-too-early"):
        memsched.evaluate(storage, OPS[::-1])


# Orders of one's own -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", MODELS)
@settings(max_examples=15)
@given(seed=st.integers(0, 10**6))
def test_any_order_is_written_and_costs_what_liveness_says(kind: str, seed: int) -> None:
    analysis = memsched.analyze(MODELS[kind])
    preds = dag.predecessors(analysis.graph)
    ranks = random.Random(seed).sample(range(len(preds)), len(preds))
    order = dag.topological_order(preds, ranks)
    data = memsched.reorder(analysis.module, order)
    again = memsched.analyze(data)
    names = [analysis.graph.ops[op].name for op in order]
    assert [op.name for op in again.graph.ops] == names
    assert again.schedule.peak == memsched.evaluate(memsched.Storage.of(analysis.graph), order).peak


@pytest.mark.parametrize("kind", MODELS)
def test_the_files_own_order_is_the_file(kind: str) -> None:
    module = memsched.load(MODELS[kind])
    assert memsched.reorder(module, range(len(module.graph.ops))) == MODELS[kind]


@pytest.mark.parametrize("kind", MODELS)
def test_no_order_is_refused_with_the_reason(kind: str) -> None:
    module = memsched.load(MODELS[kind])
    count = len(module.graph.ops)
    for order in ([], [0] * count, [*range(count), count], [*range(1, count)]):
        with fails("not-an-order", f"{count}"):
            memsched.reorder(module, order)
    with fails("runs-too-early"):
        memsched.reorder(module, list(reversed(range(count))))


def test_an_order_for_a_model_with_open_shapes() -> None:
    model = small_models.branches(side="height")
    module = memsched.load(model, dims={"height": 8})
    preds = dag.predecessors(module.graph)
    order = dag.topological_order(preds, [op // 2 for op in range(len(preds))])
    data = memsched.reorder(module, order, dims={"height": 8})
    assert memsched.verify(model, data, dims={"height": 8}).same


# Reports -------------------------------------------------------------------------------------------------------------


def test_reports_are_read_and_compared(tmp_path: Path) -> None:
    old, new = str(tmp_path / "old.json"), str(tmp_path / "new.json")
    memsched.optimize(MODELS["onnx"], verify=False).report.save(old)
    memsched.optimize(MODELS["onnx"], solver="file", verify=False).report.save(new)
    found = memsched.compare_reports(
        memsched.load_report(old), memsched.load_report(new), names=(old, new), fail_percent=1.0
    )
    assert found["failed"]
    assert found["models"][0]["change"] == "larger"


# Examples ------------------------------------------------------------------------------------------------------------


def example(name: str, *arguments: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / f"{name}.py", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


def test_every_example_is_run() -> None:
    tested = Path(__file__).read_text(encoding="utf-8")
    for path in (ROOT / "examples").glob("*.py"):
        assert f'example("{path.stem}"' in tested


def test_example_fits_a_model_for_a_firmware(tmp_path: Path) -> None:
    stem = tmp_path / "build" / "person"
    done = example("fit_for_firmware", ROOT / "models" / "person_detect.tflite", "75000", stem)
    assert "of 75,000 B" in done.stdout
    assert line_with(done.stdout, " pieces: 1, ")
    report = json.loads(stem.with_suffix(".json").read_text())
    assert report["budget"]["met"]
    assert report["output"]["path"] == str(stem.with_suffix(".tflite"))
    parts, header = report["sections"]["requirement"]["parts"], stem.with_name("person_arena.h").read_text()
    assert f"ACTIVATION_BYTES ((size_t){report['sections']['tflm']['head_bytes']}u)" in header
    assert f"PERSISTENT_BYTES ((size_t){parts['persistent_bytes']}u)" in header
    assert (
        report["sections"]["tflm"]["head_bytes"] + parts["persistent_bytes"]
        == report["budget"]["required_bytes"]
        <= 75_000
    )


def test_example_says_that_a_model_does_not_fit(tmp_path: Path) -> None:
    model = ROOT / "models" / "hello_world_int8.tflite"
    done = example("fit_for_firmware", model, "16", tmp_path / "hello", code=3)
    assert "of 16 B" in done.stdout
    assert "sequential/dense" in done.stdout
    assert list(tmp_path.iterdir()) == []
    assert "'much'" in example("fit_for_firmware", model, "much", tmp_path / "hello", code=2).stderr


def test_example_is_a_pass_of_its_own(tmp_path: Path) -> None:
    model, written = tmp_path / "model.onnx", tmp_path / "build" / "out.onnx"
    model.write_bytes(MODELS["onnx"])
    done = example("own_pass", model, written)
    assert "onnxruntime 1." in done.stdout
    found, given = memsched.analyze(written).schedule.peak, memsched.analyze(model).schedule.peak
    assert f" {given:,} B, " in done.stdout
    assert f" {found:,} B" in done.stdout
    assert found < given
    example("own_pass", written, tmp_path / "again.onnx")
    assert not (tmp_path / "again.onnx").exists()
    assert "README.md" in example("own_pass", ROOT / "README.md", written, code=1).stderr


def test_example_lists_what_is_at_fault_in_a_folder(tmp_path: Path) -> None:
    for kind, model in MODELS.items():
        path = tmp_path / f"model.{kind}"
        path.write_bytes(model)
        (tmp_path / "reports").mkdir(exist_ok=True)
        memsched.analyze(path).report.save(tmp_path / "reports" / f"{kind}.json")
    (tmp_path / "reports" / "other.json").write_text("[]")
    done = example("at_fault", tmp_path)
    assert done.stdout.endswith("2 reports\n")
    assert "other.json" in done.stderr
    worst = memsched.load_report(str(tmp_path / "reports" / "onnx.json"))["written"]["at_fault"][0]
    assert f"{worst['size_bytes']:,}" in done.stdout
    assert worst["tensor"] in done.stdout
    example("at_fault", tmp_path / "nothing", code=1)
