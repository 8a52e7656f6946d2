"""Models as C for accelerators of many sizes, compiled without a warning, executed, and compared with their runtimes.

    python -m tests.tools.emitted_models --count 50

8 bits must be equal to TensorFlow Lite Micro's, floats within 1e-5 of ONNX Runtime's and TensorFlow Lite Micro's, and
every group must move what was planned, to the byte: in C with transfers carried out as they are started, and as they
are awaited, and in Python. The models of models/, the networks of models/networks at small sizes with random weights,
and random ones.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import onnx

from memsched.base.errors import MemschedError
from memsched.targets.load import load_target
from memsched.targets.model import Target
from scripts.networks.catalogue import CLASSIFIERS
from scripts.networks.catalogue import build as build_network
from scripts.networks.mobilenet_tflite import mobilenet_v2
from scripts.networks.random_weights import randomised
from scripts.networks.resnet8_tflite import resnet8
from tests.codegen.harness import (
    COMPILER,
    EmittedCase,
    Values,
    by_the_plan,
    compiled,
    differences,
    emitted,
    emitted_somewhere,
    error_of,
    executed,
    in_runtime,
    random_inputs,
)
from tests.codegen.networks import quantised_net
from tests.formats.tflite_builder import MODELS
from tests.rewrites.tile.random_nets import onnx_net, tflite_net

SIZES = (64, 128, 224)
"""Rows and columns of the networks' images: the smallest that they take."""


def at_size(model: onnx.ModelProto, size: int) -> onnx.ModelProto:
    """Return a network of convolutions for images of another size."""
    largest = max(one.type.tensor_type.shape.dim[2].dim_value for one in model.graph.input)
    for one in model.graph.input:
        for axis in (2, 3):
            dim = one.type.tensor_type.shape.dim[axis]
            dim.dim_value = dim.dim_value * size // largest
    del model.graph.value_info[:]
    for one in model.graph.output:
        one.type.tensor_type.ClearField("shape")
    return onnx.shape_inference.infer_shapes(model, strict_mode=True)


def network(path: Path) -> bytes:
    """Return a network of models/networks with random weights, at a small size."""
    for size in SIZES:
        with contextlib.suppress(onnx.shape_inference.InferenceError, IndexError, ValueError):
            return bytes(at_size(randomised(onnx.load(path), 0), size).SerializeToString())
    return bytes(randomised(onnx.load(path), 0).SerializeToString())


def models() -> Iterator[tuple[str, Callable[[], bytes]]]:
    """Yield names and what makes the files: those that are there first, then random ones without end."""
    for path in sorted(MODELS.glob("*.tflite")):
        yield path.stem, path.read_bytes
    yield "resnet8", resnet8
    yield "mobilenet_v2 for 64 x 64", lambda: mobilenet_v2(0.35, 64, 10)
    for path in sorted((MODELS / "networks").glob("*.onnx")):
        yield path.stem, partial(network, path)
    seed = 0
    while True:
        yield f"8 bits, seed {seed}", partial(quantised_net, seed)
        yield f"ONNX, seed {seed}", partial(onnx_net, seed)
        yield f"TFLite floats, seed {seed}", partial(tflite_net, seed)
        seed += 1


@dataclass(frozen=True)
class Build:
    """How programs are compiled: the compiler, and what it is told beside the warnings that are errors."""

    compiler: str | None
    flags: tuple[str, ...]

    def host(self, case: EmittedCase, folder: Path) -> Path:
        """Write and compile a program."""
        return compiled(case.files, folder, *self.flags, compiler=self.compiler)


def judged(name: str, model: bytes, folder: Path, build: Build, ways: dict[str, Any]) -> tuple[str, bool]:
    """Return what was found of one model, in words, and whether all is well.

    Raises:
        ModelError: It has an operator without a kernel.
    """
    least = 600 if "seed" in name else 16384
    case, size = emitted_somewhere(model, [least << step for step in range(16)], **ways)
    host = build.host(case, folder)
    inputs = random_inputs(case, 1)
    wanted = in_runtime(model, case, inputs)
    wrong = [f"in Python: {one}" for one in differences(case, by_the_plan(case, inputs), wanted)]
    said = ""
    for late in (False, True):
        try:
            found, said = executed(case, host, inputs, late=late)
        except AssertionError as error:
            return f"{size:,} B on chip: {error}", False
        wrong += differences(case, found, wanted)
    pieces = max(group.tile.planes * group.tile.channels for group in case.found.groups)
    kept = any(buffer.kept for group in case.found.groups for buffer in group.buffers)
    shape = f"{size:,} B on chip, {len(case.found.groups)} groups, up to {pieces} pieces{', rows kept' if kept else ''}"
    return f"{shape}; {said}{''.join(f'; WRONG: {one}' for one in wrong)}", not wrong


WAYS: dict[str, dict[str, Any]] = {
    "none": {"method": "layers", "policy": "separate"},
    "flowchart": {"method": "flowchart", "policy": "separate"},
    "flowchart + reuse": {"method": "flowchart"},
    "optimal": {},
}
"""Ways to plan the networks of the literature, by name."""


def literature(build: Build, target: Target, only: str) -> int:
    """Print the networks of the layer fusion literature as a table, each planned in all ways; 1 where one is wrong.

    They have their full size, and take minutes.
    """
    print("| network | way | planned, B | moved, B | while computing | transfers | off ONNX Runtime |")
    print("|---|---|--:|--:|--:|--:|--:|")
    wrong = 0
    for name in CLASSIFIERS:
        if only not in name:
            continue
        model = bytes(randomised(build_network(name), 0).SerializeToString())
        wanted: list[Values] = []
        for way, ways in WAYS.items():
            case = emitted(model, target, 300.0, **ways)
            inputs = random_inputs(case, 1)
            wanted = wanted or in_runtime(model, case, inputs)
            with tempfile.TemporaryDirectory() as folder:
                # What awaited transfers move arrives as late as can be.
                found, said = executed(case, build.host(case, Path(folder)), inputs, late=True)
            loaded, _, stored, _, transfers, overlapped = (int(one) for one in re.findall(r"[0-9]+", said))
            moved, off = loaded + stored, max(map(error_of, found, wanted))
            wrong += bool(differences(case, found, wanted))
            planned = f"{case.found.cost.traffic:,} | {moved:,} | {100 * overlapped / moved:.1f} %"
            print(f"| {name} | {way} | {planned} | {transfers:,} | {off:.1e} |", flush=True)
    return wrong > 0


def main() -> int:
    """Run; 1 where a result was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=50, help="models to be executed")
    parser.add_argument("--only", default="", help="those whose name has this in it")
    parser.add_argument("--compiler", default=COMPILER, help="by default cc")
    parser.add_argument("--sanitize", action="store_true", help="with address and undefined behaviour sanitizers")
    parser.add_argument("--classifiers", action="store_true", help="the five networks of the literature instead")
    parser.add_argument("--target", default="diannao", help="of --classifiers: the accelerator")
    args = parser.parse_args()
    sanitizers = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all") if args.sanitize else ()
    build = Build(args.compiler, ("-O2", *sanitizers))
    if args.classifiers:
        return literature(build, load_target(args.target), args.only)
    done = refused = wrong = 0
    began = time.process_time()
    for number, (name, make) in enumerate(models()):
        if done == args.count:
            break
        if args.only not in name:
            continue
        # The greedy groups and those without reuse have to be right, too.
        ways = [{}, {"objective": "time"}, {"method": "greedy"}, {"method": "greedy", "policy": "separate"}][number % 4]
        with tempfile.TemporaryDirectory() as folder:
            try:
                text, well = judged(name, make(), Path(folder), build, ways)
            except MemschedError as error:
                refused += 1
                print(f"{name}: refused: {error}", flush=True)
                continue
        done += 1
        wrong += not well
        print(f"{name}: {text}", flush=True)
    print(
        f"{done} executed, {wrong} wrong, {refused} refused; {time.process_time() - began:.0f} s of processor time here"
    )
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
