"""Models of cases side by side, and sessions that run them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import onnxruntime
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from onnx import helper, numpy_helper

from memsched.runtimes.sessions import LISTED
from tests.formats.tflite_builder import O, Sub, T, build, options
from tests.tools.cuts import onnx_cases, tflite_cases
from tests.tools.cuts.case import Case, Operand

__all__ = ["Runtime", "Session", "cases_for", "model_of", "sessions"]

Array = Any
Runtime = Literal["onnxruntime", "litert", "tflm"]
_ARENA = 48 << 20
_TFLM_TYPES = {"float32", "int8", "int16", "int32", "bool"}


def model_of(cases: Sequence[Case], feeds: Mapping[str, Array]) -> bytes | None:
    """Return a model that computes all cases, whose outputs are y0, y1 and so on; None where one makes nothing."""
    return _tflite(cases) if cases[0].kind.isupper() and cases[0].kind != "LRN" else _onnx(cases, feeds)


def _onnx(cases: Sequence[Case], feeds: Mapping[str, Array]) -> bytes | None:
    plain = _onnx_model(cases, {})
    outputs = _Onnx("shapes", "disabled").run(plain, [feeds])
    return None if isinstance(outputs, str) else _onnx_model(cases, outputs[0])


def _onnx_model(cases: Sequence[Case], outputs: Mapping[str, Array]) -> bytes:
    nodes, inputs, constants = [], [], []
    for number, case in enumerate(cases):
        names = []
        for place, operand in enumerate(case.operands):
            name = f"x{number}_{place}"
            names.append("" if operand is None else name)
            if operand is not None and operand.value is None:
                element = helper.np_dtype_to_tensor_dtype(np.dtype(operand.dtype))
                inputs.append(helper.make_tensor_value_info(name, element, list(operand.shape)))
            elif operand is not None:
                constants.append(numpy_helper.from_array(np.asarray(operand.value), name))
        domain, _, kind = case.kind.rpartition(".")
        node = helper.make_node(kind, names, [f"y{number}"], f"n{number}", domain=domain, **case.attributes)
        nodes.append(node)
    made = [
        helper.make_tensor_value_info(
            f"y{number}",
            helper.np_dtype_to_tensor_dtype(outputs[f"y{number}"].dtype),
            list(outputs[f"y{number}"].shape),
        )
        if outputs
        else helper.make_empty_tensor_value_info(f"y{number}")
        for number in range(len(cases))
    ]
    graph = helper.make_graph(nodes, "cases", inputs, made, constants)
    opsets = [helper.make_opsetid("", cases[0].opset), helper.make_opsetid("com.microsoft", 1)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())


def _tflite(cases: Sequence[Case]) -> bytes:
    tensors: list[T] = []
    ops: list[O] = []
    inputs: list[int] = []
    outputs: list[int] = []
    for number, case in enumerate(cases):
        read = []
        for place, operand in enumerate(case.operands):
            if operand is None:
                read.append(-1)
                continue
            read.append(len(tensors))
            if operand.value is None:
                inputs.append(len(tensors))
            tensors.append(_tensor(f"x{number}_{place}", operand))
        assert case.output is not None
        outputs.append(len(tensors))
        tensors.append(_tensor(f"y{number}", case.output))
        ops.append(O(case.kind, read, [outputs[-1]], options(case.table, **case.attributes) if case.table else None))
    return build(Sub(tensors, ops, inputs, outputs))


def _tensor(name: str, operand: Operand) -> T:
    data = None if operand.value is None else np.ascontiguousarray(operand.value).tobytes()
    dtype = operand.dtype.upper()
    return T(
        *(name, operand.shape, dtype, data),
        scales=operand.scales,
        axis=operand.axis,
        zero_point=operand.zero_point,
    )


class Session:
    """Runs models in a way of its own."""

    name: str

    def run(self, data: bytes, feeds: Sequence[Mapping[str, Array]]) -> list[dict[str, Array]] | str:
        """Return the outputs by name for each of ``feeds``, or why the model does not run."""
        raise NotImplementedError


@dataclass
class _Onnx(Session):
    name: str
    level: str
    threads: int = 1

    def run(self, data: bytes, feeds: Sequence[Mapping[str, Array]]) -> list[dict[str, Array]] | str:
        given = onnxruntime.SessionOptions()
        given.log_severity_level = 4
        given.intra_op_num_threads = self.threads
        given.add_session_config_entry("session.intra_op.allow_spinning", "0")
        kept: list[str] = []
        level = onnxruntime.GraphOptimizationLevel
        if self.level == "disabled":
            given.graph_optimization_level = level.ORT_DISABLE_ALL
        elif self.level == "printed":
            given.graph_optimization_level = level.ORT_ENABLE_BASIC
            given.enable_mem_reuse = given.enable_mem_pattern = False
            given.add_session_config_entry("session.disable_quant_qdq", "1")
            kept = list(LISTED.disabled)
        try:
            session = onnxruntime.InferenceSession(
                data, given, disabled_optimizers=kept, providers=["CPUExecutionProvider"]
            )
            names = [one.name for one in session.get_outputs()]
            return [dict(zip(names, session.run(names, dict(one)), strict=True)) for one in feeds]
        except Exception as error:  # onnxruntime raises types of its own
            return str(error)


@dataclass
class _LiteRt(Session):
    name: str
    delegate: bool

    def run(self, data: bytes, feeds: Sequence[Mapping[str, Array]]) -> list[dict[str, Array]] | str:
        def outputs() -> Iterator[list[Array]]:
            resolver = OpResolverType.AUTO if self.delegate else OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
            interpreter = Interpreter(model_content=data, num_threads=1, experimental_op_resolver_type=resolver)
            interpreter.allocate_tensors()
            inputs, made = interpreter.get_input_details(), interpreter.get_output_details()
            for given in feeds:
                for one in inputs:
                    interpreter.set_tensor(one["index"], given[one["name"]])
                interpreter.invoke()
                yield [interpreter.get_tensor(one["index"]) for one in made]

        return _forked(_ports(data)[1], outputs, len(feeds))


@dataclass
class _Tflm(Session):
    name: str

    def run(self, data: bytes, feeds: Sequence[Mapping[str, Array]]) -> list[dict[str, Array]] | str:
        inputs, made = _ports(data)

        def outputs() -> Iterator[list[Array]]:
            from tflite_micro.python.tflite_micro import runtime

            interpreter = runtime.Interpreter.from_bytes(data, arena_size=_ARENA)
            for given in feeds:
                for place, name in enumerate(inputs):
                    interpreter.set_input(given[name], place)
                interpreter.invoke()
                yield [np.array(interpreter.get_output(place)) for place in range(len(made))]

        return _forked(made, outputs, len(feeds))


def _forked(
    names: Sequence[str], outputs: Callable[[], Iterator[list[Array]]], runs: int
) -> list[dict[str, Array]] | str:
    """Return what a runtime makes of a model in a fork of this process, which some models and kernels end."""
    with tempfile.TemporaryFile() as answer:
        child = os.fork()
        if not child:
            try:
                silent = os.open(os.devnull, os.O_WRONLY)
                os.dup2(silent, 1)
                os.dup2(silent, 2)
                made = {f"{run}/{at}": one for run, some in enumerate(outputs()) for at, one in enumerate(some)}
                np.savez(answer, **made)
                answer.flush()
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        if not answer.seek(0, os.SEEK_END):
            return "it was refused"
        answer.seek(0)
        found = np.load(answer)
        return [{name: found[f"{run}/{at}"] for at, name in enumerate(names)} for run in range(runs)]


def _ports(data: bytes) -> tuple[list[str], list[str]]:
    """Return the names of a TFLite model's inputs and outputs."""
    from tests.formats.tflite_builder import unpack

    main = unpack(data).subgraphs[0]
    return [main.tensors[at].name.decode() for at in main.inputs], [
        main.tensors[at].name.decode() for at in main.outputs
    ]


def cases_for(runtime: Runtime) -> list[Case]:
    """Return the cases that a runtime may have kernels for, those of slices included."""
    if runtime == "onnxruntime":
        return list(onnx_cases.cases())
    every = tflite_cases.cases()
    return [case for case in every if runtime == "litert" or case.dtype in _TFLM_TYPES]


def sessions(runtime: Runtime) -> list[Session]:
    """Return the ways in which a runtime is used."""
    if runtime == "onnxruntime":
        return [_Onnx("with the options that are printed", "printed"), _Onnx("without options", "all", 2)]
    if runtime == "litert":
        return [_LiteRt("without delegates", False), _LiteRt("with its default delegates", True)]
    return [_Tflm("tflm")]
