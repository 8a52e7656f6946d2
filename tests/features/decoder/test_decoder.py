"""Decoders whose caches are written in place: equal outputs, one buffer, and code that runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

from memsched.commands.options import DecoderOptions
from memsched.features.decoder.decoder import DecoderModel, decode_in_place
from memsched.features.decoder.report import decoder_report, save_decoder
from memsched.formats.onnx import decoder as opened
from memsched.formats.onnx.caches import append_in_place
from memsched.runtimes.special import WORDS as SPECIAL_WORDS
from tests.failures import fails
from tests.formats.onnx.decoders.nets import WORDS, decoder, kernel_decoder

MODELS = {
    "plain": decoder(),
    "tokens_first": decoder(tokens_first=True),
    "mask": decoder(mask="past + length"),
    "mask_of_its_own": decoder(mask="total"),
    "one_at_a_time": decoder(mask="past + 1", length=1),
    "identity": decoder(identity=True),
    "in_branches": decoder(branch=True),
    "turned": decoder(turned=True),
    "opset_13": decoder(opset=13),
    "by_identity": decoder(handed="Identity"),
    "by_concat": decoder(handed="Concat", identity=True, branch=True),
    "kernel": kernel_decoder(),
}


def _made(folder: Path, model: onnx.ModelProto, **options: Any) -> DecoderModel:
    path = folder / "net.onnx"
    onnx.save(model, path)
    return decode_in_place(str(path), DecoderOptions(**{"tokens": 40, "chunk": 5, **options}))


@pytest.mark.parametrize("name", MODELS)
def test_the_printed_code_gives_the_same_words(tmp_path: Path, name: str) -> None:
    made = _made(tmp_path, MODELS[name])
    output = tmp_path / "new folder" / "in place.onnx"
    report = decoder_report(made, str(output))
    save_decoder(made, report, None)
    onnx.checker.check_model(output)
    assert all(one.equal or (one.error or 1) < 1e-6 for one in made.texts)

    length = 13
    prompt = np.random.default_rng(0).integers(0, WORDS, (1, length))
    feeds = {"input_ids": prompt, "attention_mask": np.ones((1, length), np.int64)}
    held: dict[str, Any] = {**feeds, "length": length}
    exec("\n".join(report.values.code), held)  # noqa: S102 - it is what users copy

    session = onnxruntime.InferenceSession(tmp_path / "net.onnx")
    caches = {one.name: np.zeros(_empty(one.shape), np.float32) for one in session.get_inputs() if "past" in one.name}
    for begin, end in [(at, at + 1) for at in range(length)] if name == "one_at_a_time" else [(0, length)]:
        fed = {"input_ids": prompt[:, begin:end], "attention_mask": feeds["attention_mask"][:, :end], **caches}
        names = {one.name for one in session.get_inputs()}
        words, *rest = session.run(None, {key: value for key, value in fed.items() if key in names})
        caches = dict(zip(caches, rest, strict=True))
    count = min(words.shape[1], held["results"][0].shape[1])
    np.testing.assert_allclose(held["results"][0][:, -count:], words[:, -count:], rtol=1e-5, atol=1e-5)


def _empty(shape: list[Any]) -> list[int]:
    return [{"batch": 1, "past": 0}.get(size, size) for size in shape]


@pytest.mark.parametrize("name", ["plain", "tokens_first", "kernel"])
def test_a_step_writes_nothing_but_its_token(tmp_path: Path, name: str) -> None:
    made = _made(tmp_path, MODELS[name])
    path = tmp_path / "in_place.onnx"
    path.write_bytes(made.data)
    session = onnxruntime.InferenceSession(path)
    binding = session.io_binding()
    buffers = {}
    for cache in made.decoder.caches:
        shape = [12 if size is None else size for size in cache.shape]
        buffer = onnxruntime.OrtValue.ortvalue_from_numpy(np.full(shape, 7, np.float32))
        binding.bind_ortvalue_input(cache.past, buffer)
        binding.bind_ortvalue_output(cache.present, buffer)
        buffers[cache.past] = (buffer, cache.axis)
    binding.bind_cpu_input("input_ids", np.array([[3]]))
    if made.decoder.past_length is None:
        binding.bind_cpu_input("attention_mask", np.ones((1, 5), np.int64))
    else:
        binding.bind_cpu_input(made.decoder.past_length, np.array([4]))
    binding.bind_output("logits")
    session.run_with_iobinding(binding)
    for buffer, axis in buffers.values():
        rows = np.moveaxis(buffer.numpy(), axis, 0)
        assert [bool((row == 7).all()) for row in rows] == [at != 4 for at in range(12)]


def test_a_text_beyond_the_buffers_is_refused_by_the_runtime(tmp_path: Path) -> None:
    made = _made(tmp_path, MODELS["plain"])
    session = onnxruntime.InferenceSession(made.data)
    feeds = {
        one.past: np.zeros([4 if size is None else size for size in one.shape], np.float32)
        for one in made.decoder.caches
    }
    feeds |= {"input_ids": np.array([[3, 3]]), "past_length": np.array([3])}
    with pytest.raises(Exception, match="invalid indice"):
        session.run(None, feeds)
    session.run(None, feeds | {"past_length": np.array([2])})


def test_a_batch_that_is_stated_is_fixed(tmp_path: Path) -> None:
    made = _made(tmp_path, MODELS["plain"], dims={"batch": 3})
    assert made.decoder.caches[0].shape == (3, 2, None, 4)
    assert made.decoder.bytes_per_token() == 4 * 3 * 2 * 4 * 4


def test_what_is_wrong_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def late(model: onnx.ModelProto, *arguments: Any) -> None:
        append_in_place(model, *arguments)
        for node in model.graph.node:
            if node.op_type == "Slice" and node.name.endswith("_filled"):
                node.input[2] = arguments[2]  # without the new tokens

    monkeypatch.setattr(opened, "append_in_place", late)
    with fails("outputs-differ") as caught:
        _made(tmp_path, MODELS["plain"])
    assert "NaN" not in str(caught.value)


def test_what_makes_something_else_of_nan_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def without_nan(model: onnx.ModelProto, *arguments: Any) -> None:
        append_in_place(model, *arguments)
        name = model.graph.output[0].name
        (last,) = [node for node in model.graph.node if name in node.output]
        if last.op_type != "Where":
            last.output[0] = "any"
            model.graph.node.append(onnx.helper.make_node("IsNaN", ["any"], ["none"]))
            model.graph.node.append(onnx.helper.make_node("Where", ["none", "nothing", "any"], [name]))
            model.graph.initializer.append(numpy_helper.from_array(np.array(0, np.float32), "nothing"))

    assert _made(tmp_path, MODELS["plain"]).special_values == tuple(SPECIAL_WORDS.values())
    monkeypatch.setattr(opened, "append_in_place", without_nan)
    with fails("outputs-differ", "NaN", " 37 "):
        _made(tmp_path, MODELS["plain"])


def test_what_is_no_decoder_is_refused(tmp_path: Path) -> None:
    model = decoder()
    del model.graph.output[1:]
    with fails("no-decoder"):
        _made(tmp_path, model)
    with fails("no-such-dimension", "--length", "'length'"):
        _made(tmp_path, decoder(), length="tokens_in")
    with fails("needs-file"):
        decode_in_place("-", DecoderOptions())


def test_the_budget_is_answered_by_what_was_measured(tmp_path: Path) -> None:
    made = _made(tmp_path, MODELS["plain"], budget="4GB")
    values = decoder_report(made, "out.onnx").values.budget
    assert values is not None
    assert values.met
    assert values.largest_tokens is not None
    assert _made(tmp_path, MODELS["plain"], budget=1).largest(given=False) is None
