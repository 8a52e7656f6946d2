"""``memsched distribute`` on the command line: plan, models, refusals, and what people read."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import onnx
import pytest

from memsched.base.units import format_size
from memsched.features.distribute import distribute as distributing
from memsched.features.distribute.execute import DistributedRun, execute
from memsched.features.distribute.space import NoPlanFitsError
from memsched.report.schema import json_schema
from tests.cli.conftest import Run
from tests.cli.written import names
from tests.distributed_nets import Net, classifier, cluster_of, wide_first
from tests.failures import fails
from tests.formats.tflite_builder import O, Sub, T, build, options
from tests.outcomes import line_with

SCHEMA = jsonschema.Draft202012Validator(json_schema("distribute"))

CLUSTER = """
name = "two boards"
[router]
bandwidth_bytes_per_second = 1e8
latency_seconds = 1e-5
[compute.board]
default = { base_seconds = 1e-6, seconds_per_mac = 1e-9, seconds_per_byte = 1e-10 }
[[devices]]
name = "left"
memory_bytes = "1MB"
compute = "board"
[[devices]]
name = "right"
memory_bytes = "1MB"
compute = "board"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with net.onnx and cluster.toml."""
    (tmp_path / "net.onnx").write_bytes(classifier())
    (tmp_path / "cluster.toml").write_text(CLUSTER)
    return tmp_path


def distribute(run: Run, folder: Path, *more: object) -> Any:
    return run("distribute", folder / "net.onnx", "--cluster", folder / "cluster.toml", "--method", "even", *more)


def test_plan_and_models_are_written_and_run(run: Run, folder: Path) -> None:
    result = distribute(run, folder, "--json")
    assert result.code == 0
    written = folder / "net_distributed"
    assert (written / "plan.json").read_text() == result.out
    plan = json.loads(result.out)
    SCHEMA.validate(plan)
    files = {one["file"]: one for step in plan["steps"] for one in step["computations"]}
    assert names(written) == sorted([*files, "plan.json"])
    for name, one in files.items():
        data = (written / name).read_bytes()
        assert hashlib.sha256(data).hexdigest() == one["sha256"]
        model = onnx.load_from_string(data)
        assert [value.name for value in model.graph.input] == [value["name"] for value in one["inputs"]]
        assert [value.name for value in model.graph.output] == [value["name"] for value in one["outputs"]]
        assert name == f"net_device_{one['device']}_step_{name.rpartition('_')[2][:-5]}.onnx"
    assert plan["run"]["relative_error"] <= 1e-5
    assert plan["run"]["transmitted_bytes"] == plan["result"]["transmitted_bytes"]
    assert plan["run"]["delivered_bytes"] == plan["result"]["delivered_bytes"]
    assert line_with(result.err, "2 devices", "'two boards'")
    predicted, alone = plan["result"]["latency_seconds"], plan["result"]["single_device"]["latency_seconds"]
    assert line_with(result.err, f" {1000 * predicted:,.2f} ms", f" {1000 * alone:,.2f} ms")
    assert line_with(result.err, plan["run"]["runtime"])
    for device in plan["devices"]:
        assert line_with(result.err, f"{device['name']}  ")


def test_what_fits_only_in_a_better_order_is_planned_and_run_in_it(run: Run, folder: Path) -> None:
    (folder / "net.onnx").write_bytes(wide_first())
    (folder / "cluster.toml").write_text(CLUSTER.replace('"1MB"', '"60KB"'))
    result = run("distribute", folder / "net.onnx", "--cluster", folder / "cluster.toml")
    assert result.code == 0, result.err
    plan = json.loads((folder / "net_distributed" / "plan.json").read_text())
    SCHEMA.validate(plan)
    order = plan["result"]["order"]
    told = line_with(result.out, *(f" {format_size(order[one]['cost_bytes'])}" for one in ("found", "given")))
    assert " ms" not in told
    assert (order["kept"], order["given"]["latency_seconds"], order["least_peak_proven"]) == ("found", None, True)
    assert order["found"]["peak_bytes"] < order["given"]["peak_bytes"]
    place = {share["op"]: number for number, share in enumerate(plan["shares"])}
    for step in plan["steps"]:
        for one in step["computations"]:
            places = [place[op["op"]] for op in one["ops"]]
            assert places == sorted(places)
            stored = [node.name for node in onnx.load(str(folder / "net_distributed" / one["file"])).graph.node]
            # A concatenation of what a device holds is none of its model's nodes.
            assert [name for name in stored if name in place] == [op["op"] for op in one["ops"] if op["op"] in stored]
    for device in plan["devices"]:
        assert device["memory_bytes"] <= 60 * 1024
        assert device["measured"]["weights_and_activations_bytes"] <= 1.02 * device["memory_bytes"]


@pytest.mark.parametrize("metric", ["peak", "sum"])
def test_a_chain_of_wide_branches_that_was_refused_runs_in_its_order(run: Run, folder: Path, metric: str) -> None:
    """The file's order has no plan that fits (and `--method even` improves none); by either metric one runs."""
    net = Net()
    x = net.given(1, 4, 16, 16)
    for _ in range(2):
        wide = [net.conv(x, 16) for _ in range(5)]
        x = net.conv(net.concat([net.conv(one, 2, 3, 2) for one in wide]), 4, 1)
    (folder / "net.onnx").write_bytes(net.model(net.head(x, 10)))
    (folder / "cluster.toml").write_text(CLUSTER.replace('"1MB"', '"50KB"'))
    result = distribute(run, folder, "--metric", metric)
    assert result.code == 0, result.err
    assert ("summed" in result.out) == (metric == "sum")
    plan = json.loads((folder / "net_distributed" / "plan.json").read_text())
    SCHEMA.validate(plan)
    order = plan["result"]["order"]
    assert (order["kept"], order["metric"], order["given"]["latency_seconds"]) == ("found", metric, None)
    assert order["found"]["cost_bytes"] < order["given"]["cost_bytes"]
    assert plan["run"]["relative_error"] <= 1e-5


def test_a_throttled_run_is_measured_and_another_one_calibrates(run: Run, folder: Path) -> None:
    result = distribute(run, folder, "--throttle")
    assert result.code == 0, result.err
    plan = json.loads((folder / "net_distributed" / "plan.json").read_text())
    SCHEMA.validate(plan)
    throttled = plan["run"]["throttled"]
    assert line_with(result.out, " ms, ", f" {throttled['passes']} passes")
    assert len(throttled["steps"]) == len(plan["steps"]) + 1
    assert throttled["predicted_seconds"] == pytest.approx(plan["result"]["latency_seconds"])
    assert distribute(run, folder, "--calibrate", folder / "own.toml").code == 0
    again = run("distribute", folder / "net.onnx", "--cluster", folder / "own.toml", "--method", "even", "--no-run")
    assert again.code == 0, again.err
    plan = json.loads((folder / "net_distributed" / "plan.json").read_text())
    assert plan["result"]["latency_seconds"] > throttled["predicted_seconds"]
    for words in (("--throttle", "--calibrate", "own.toml"), ("--throttle", "--no-run")):
        assert distribute(run, folder, *words).code == 2


def test_everything_that_is_held_is_said(run: Run, folder: Path) -> None:
    """Whoever follows plan.json holds what every model, transfer and output is made of."""
    assert distribute(run, folder, "--no-run").code == 0
    plan = json.loads((folder / "net_distributed" / "plan.json").read_text())
    SCHEMA.validate(plan)
    assert plan["run"] is None
    held: list[set[str]] = [set(), set()]
    for step in plan["steps"]:
        for transfer in step["transfers"]:
            for target, key in zip(transfer["targets"], transfer["held_as"], strict=True):
                held[target].add(key)
        for gather in step["gathers"]:
            assert {part["held_as"] for part in gather["parts"]} <= held[gather["device"]]
            held[gather["device"]].add(gather["held_as"])
        for one in step["computations"]:
            assert {value["held_as"] for value in one["inputs"]} <= held[one["device"]]
            held[one["device"]].update(value["held_as"] for value in one["outputs"])
    for transfer in plan["results"]:
        held[plan["result"]["home"]].update(transfer["held_as"])
    held[plan["result"]["home"]].update(gather["held_as"] for gather in plan["result_gathers"])
    for output in plan["outputs"]:
        assert {part["held_as"] for part in output["parts"]} <= held[plan["result"]["home"]]


def test_the_same_request_writes_the_same_models(run: Run, folder: Path) -> None:
    one, two = folder / "one", folder / "two"
    for place in (one, two):
        assert distribute(run, folder, "--no-run", "-q", "-o", place).code == 0
    assert names(one) == names(two)
    plans = []
    for place in (one, two):
        plans.append({**json.loads((place / "plan.json").read_text()), "seconds": 0})
        for name in names(place):
            assert name == "plan.json" or (place / name).read_bytes() == (one / name).read_bytes()
    assert plans[0] == plans[1]


def test_weights_lie_only_where_they_are_needed(run: Run, folder: Path) -> None:
    distribute(run, folder, "--no-run")
    plan = json.loads((folder / "net_distributed" / "plan.json").read_text())
    given = {"MatMul", "Gemm"}
    products = [share for share in plan["shares"] if share["type"] in given]
    assert all(share["axis"] == "channels" for share in products)
    sizes: dict[str, list[int]] = {}
    for step in plan["steps"]:
        for one in step["computations"]:
            model = onnx.load(str(folder / "net_distributed" / one["file"]))
            for node in model.graph.node:
                if node.op_type in given:
                    (stored,) = (tensor for tensor in model.graph.initializer if tensor.name == node.input[1])
                    sizes.setdefault(node.op_type, []).append(len(stored.raw_data))
    assert sizes == {"Gemm": [4 * 40 * 40] * 2, "MatMul": [4 * 80 * 5] * 2}


def test_a_device_that_has_dropped_out(run: Run, folder: Path) -> None:
    assert distribute(run, folder, "--no-run").code == 0
    before = names(folder / "net_distributed")
    result = distribute(run, folder, "--without", "left")
    assert result.code == 0
    assert "without left" in result.out
    plan = json.loads((folder / "net_distributed" / "plan.json").read_text())
    assert plan["cluster"]["dropped"] == ["left"]
    assert [device["name"] for device in plan["devices"]] == ["right"]
    assert all("_device_0_" in name for name in names(folder / "net_distributed") if name != "plan.json")
    assert any("_device_1_" in name for name in before)
    assert distribute(run, folder, "--without", "left", "--without", "1").code == 2
    distribute(run, folder, "--without", "middle").failed("no-such-device", "'middle'")


def test_files_that_are_no_plans_stay(run: Run, folder: Path) -> None:
    place = folder / "place"
    place.mkdir()
    (place / "notes.txt").write_text("mine")
    result = distribute(run, folder, "--no-run", "-o", place)
    result.failed("would-mix", "'notes.txt'")
    assert names(place) == ["notes.txt"]
    assert distribute(run, folder, "--no-run", "-o", place, "--force").code == 0
    assert (place / "notes.txt").read_text() == "mine"
    changed = next(path for path in sorted(place.iterdir()) if "_device_1_" in path.name)
    changed.write_bytes(b"mine, too")
    assert distribute(run, folder, "--no-run", "-o", place, "--force", "--without", "1").code == 0
    assert [name for name in names(place) if "_device_1_" in name] == [changed.name]


def test_the_input_is_never_overwritten(run: Run, folder: Path) -> None:
    link = folder / "link"
    link.mkdir()
    (link / "net_device_0_step_0.onnx").symlink_to(folder / "net.onnx")
    result = distribute(run, folder, "--no-run", "--force", "-o", link)
    result.failed("would-overwrite", "net_device_0_step_0.onnx")
    assert (folder / "net.onnx").read_bytes() == classifier()


def test_outputs_that_differ_leave_nothing_behind(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def false(*arguments: Any, **more: Any) -> DistributedRun:
        return replace(execute(*arguments, **more), equal=False, relative_error=2e-5)

    monkeypatch.setattr(distributing, "execute", false)
    result = distribute(run, folder)
    result.failed("outputs-differ", "2e-05")
    assert result.err.count("\n") == 1
    assert names(folder) == ["cluster.toml", "net.onnx"]


def test_too_little_memory_says_how_much_would_do(run: Run, folder: Path) -> None:
    (folder / "cluster.toml").write_text(CLUSTER.replace('"1MB"', '"10KB"'))
    result = distribute(run, folder)
    assert isinstance(result.error, NoPlanFitsError)
    result.failed(result.error.code, "30.4 KB", "10.0 KB")
    assert result.err.count("\n") == 1
    assert names(folder) == ["cluster.toml", "net.onnx"]


def test_memory_that_no_single_device_has(run: Run, folder: Path) -> None:
    (folder / "cluster.toml").write_text(CLUSTER.replace('"1MB"', '"35KB"'))
    result = distribute(run, folder, "--no-run")
    assert result.code == 0
    single = run("distribute", folder / "net.onnx", "--cluster", folder / "cluster.toml", "--method", "single")
    assert single.code == 3


@pytest.mark.parametrize(
    ("change", "code", "about"),
    [
        (("[[devices]]", "[[gadgets]]"), "unknown-key", "'gadgets'"),
        (("1e8", "-1"), "value-range", "'bandwidth_bytes_per_second'"),
        (('"1MB"', "0"), "value-range", "'memory_bytes'"),
        (("[router]", "[router"), "cluster-not-toml", "cluster.toml"),
    ],
)
def test_bad_clusters_are_one_line(run: Run, folder: Path, change: tuple[str, str], code: str, about: str) -> None:
    (folder / "cluster.toml").write_text(CLUSTER.replace(*change))
    result = distribute(run, folder)
    result.failed(code, about)
    assert result.err.count("\n") == 1
    assert names(folder) == ["cluster.toml", "net.onnx"]


def test_a_cluster_without_devices(run: Run, folder: Path) -> None:
    (folder / "cluster.toml").write_text(CLUSTER[: CLUSTER.index("[[devices]]")])
    distribute(run, folder).failed("missing-key", "'devices'")


@pytest.mark.parametrize(
    ("arguments", "code", "about"),
    [
        (("net.onnx",), "missing-parameter", "--cluster"),
        (("net.onnx", "--cluster", "cluster.toml", "-o", "-"), "needs-folder", "-o"),
        (("-", "--cluster", "cluster.toml"), "no-output-name", "-o"),
        (("net.onnx", "--cluster", "cluster.toml", "-o", "net.onnx"), "not-a-folder", "net.onnx"),
        (("net.onnx", "--cluster", "cluster.toml", "-o", "net.onnx/deep"), "not-a-folder", "net.onnx/deep"),
        (("net.onnx", "--cluster", "nowhere.toml"), "no-such-cluster-file", "nowhere.toml"),
        (("missing.onnx", "--cluster", "cluster.toml"), "no-such-file", "missing.onnx"),
        (("net.tflite", "--cluster", "cluster.toml"), "executes-graphs", "IF"),
        (("net.onnx", "--cluster", "cluster.toml", "--home", "9" * 5000), "no-such-device", "two boards"),
        (
            ("net.onnx", "--cluster", "pi4x4", *(word for board in "0123" for word in ("--without", board))),
            *("no-device-left", "4"),
        ),
    ],
)
def test_refusals(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], code: str, about: str
) -> None:
    monkeypatch.chdir(folder)
    either = O("IF", [0, 1], [2], options("IfOptions", thenSubgraphIndex=1, elseSubgraphIndex=1))
    main, body = (
        Sub([T("c", (1,), "BOOL"), T("x"), T("y")], [either], [0, 1], [2]),
        Sub([T("a"), T("b")], [O("NEG", [0], [1])], [0], [1]),
    )
    (folder / "net.tflite").write_bytes(build(main, body))
    before = names(folder)
    result = run("distribute", *arguments)
    result.failed(code, about)
    assert result.err.count("\n") == 1
    assert names(folder) == before


def test_devices_that_have_dropped_out_in_python() -> None:
    found = distributing.distribute(
        classifier(), cluster=cluster_of(3), method="even", home="board-2", drop=["board-1"]
    )
    assert [device.name for device in found.cluster.devices] == ["board-0", "board-2"]
    assert (found.dropped, found.plan.home) == (("board-1",), 1)
    with fails("no-device-left", "3"):
        distributing.distribute(
            classifier(), cluster=cluster_of(3), method="even", drop=["board-0", "board-1", "board-2"]
        )
