"""Decoders that compute prompts and further tokens. The child process's side.

Called through ``run_in_child``; requests and answers are plain values. Sessions have no options. A file is a dict of
"path", "folder" (where weights lie that it names; None: beside it), "caches" and "others" (its inputs, as `Cache` and
`TokenInput` have them), "past_length" and "capacity": tokens that its buffers hold, or None where it gives back longer
caches than it was given.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from memsched.runtimes.compare import compare, relative_error
from memsched.runtimes.inputs import random_values
from memsched.runtimes.onnxruntime.inputs import dtype_of
from memsched.runtimes.onnxruntime.opened import opened, runtime
from memsched.runtimes.sessions import SessionPoint
from memsched.runtimes.special import THREADS, Special, applying, judged, mixed, rng_of, tried
from memsched.runtimes.values import BOUND, one_line

__all__ = ["OpenText", "compare_files", "special_files"]


class OpenText:
    """A decoder that puts tokens behind random ones in steps, as an `RunnableModel` whose sizes are the steps.

    Args:
        file: As this module has it.
        past: Random tokens before.
        steps: How many tokens are put behind them in each.
    """

    def __init__(self, file: Mapping[str, Any], past: int, steps: Sequence[int], seed: int) -> None:
        self._model, self._past, self._seed = _model(file), past, seed
        self._steps = list(_steps(past, steps))
        self._text = _TokenFeeds(file, past + sum(steps), seed)
        self._feed: Mapping[str, Any] = {}

    def start(self, size: int) -> None:
        """Begin a text anew before its first step; cut the inputs of a step."""
        if not size:
            self._model.start(self._past, self._seed)
            self._text.know(self._model.session)
        self._feed = self._text.feed(*self._steps[size])

    def run(self, size: int) -> None:
        """Put the tokens of a step behind those before."""
        self.outputs(size)

    def outputs(self, size: int) -> Sequence[Any]:
        """Do that and return the outputs."""
        return self._model.step(self._feed, *self._steps[size])


def compare_files(request: Mapping[str, Any]) -> dict[str, Any]:
    """Run a model beside the first one on texts of several lengths.

    Args:
        request: "files": both; "prompts": tokens of each; "chunk": that the second computes at a time; "further":
            tokens behind each prompt; "seed".

    Returns:
        "version"; "rows": per text "tokens", "equal", "error" and "message".

    Raises:
        Exception: The first does not run, in the runtime's words.
    """
    first, second = (_model(file) for file in request["files"])
    rows = []
    for number, prompt in enumerate(request["prompts"]):
        seed, further = request["seed"] + number, [1] * request["further"]
        text = _TokenFeeds(request["files"][0], prompt + len(further), seed)
        text.know(first.session)
        single = request["files"][0]["single"]
        chunks, whole = ([1] * prompt,) * 2 if single else (_chunks(prompt, request["chunk"]), [prompt])
        expected = _outputs(first, text, whole, further, seed)
        row = {"tokens": prompt, "equal": False, "error": None, "message": None}
        try:
            found = _outputs(second, text, chunks, further, seed)
            pairs = [_aligned(one, other) for one, other in zip(expected, found, strict=True)]
        except Exception as error:  # the runtime raises classes of its own
            rows.append({**row, "message": one_line(error)})
            continue
        known, others = [one for one, _ in pairs], [other for _, other in pairs]
        equal, _ = compare(known, others)
        rows.append({**row, "equal": equal, "error": relative_error(known, others)})
    return {"version": runtime().__version__, "rows": rows}


def special_files(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `memsched.runtimes.special.judged` says of special values in caches, and among inputs.

    Args:
        request: As `compare_files` has it; of "prompts" the first is the tokens of a past, the second those of a
            prompt; "tolerance".
    """
    past, prompt = request["prompts"]
    behind = _TextPair(request, past, 0)
    alone = _TextPair(request, 0, prompt)
    runs = tried(behind, session=f"a session behind {past} tokens", tolerance=request["tolerance"])
    return judged([*runs, *tried(alone, session=f"a prompt of {prompt} tokens", tolerance=request["tolerance"])])


class _TextPair:
    """Two models on one text, as a `memsched.runtimes.special.SpecialPair`.

    Args:
        past: Tokens whose caches are drawn.
        prompt: Tokens behind them that are computed at once as given, in chunks in place.
    """

    def __init__(self, request: Mapping[str, Any], past: int, prompt: int) -> None:
        self._request, self._past, self._prompt = request, past, prompt
        self._models = [_model(file) for file in request["files"]]
        self._expected: dict[Special, Any] = {}

    def given(self, special: Special, bound: int) -> Any:
        """Return what the first model gives."""
        del bound
        self._expected[special] = self._run(self._models[0], self._steps(chunked=False), special)
        return self._expected[special]

    def written(self, special: Special, bound: int) -> Any:
        """Return the same of the other one, as long as that of the first."""
        del bound
        found = self._run(self._models[1], self._steps(chunked=True), special)
        # Caches are views of buffers, which the next run writes.
        return [np.array(_as_long(one, other)) for one, other in zip(self._expected[special], found, strict=True)]

    def again(self, special: Special, bound: int) -> list[Any]:
        """Return what the first model gives with other numbers of threads."""
        del bound
        models = [_model(self._request["files"][0], threads) for threads in THREADS]
        return [self._run(model, self._steps(chunked=False), special) for model in models]

    def _steps(self, *, chunked: bool) -> list[int]:
        if self._request["files"][0]["single"]:
            return [1] * self._prompt
        return _chunks(self._prompt, self._request["chunk"] if chunked else max(1, self._prompt))

    def _run(self, model: _AsGiven | _Buffered, prompt: Sequence[int], special: Special) -> Any:
        further = [1] * self._request["further"]
        text = _TokenFeeds(self._request["files"][0], self._past + self._prompt + len(further), self._request["seed"])
        text.know(self._models[0].session)
        caches = self._request["files"][0]["caches"] if self._past else ()
        kinds = [(one["dtype"], False) for one in caches]
        if special not in applying([*kinds, *text.kinds()]):
            raise ValueError("no input has such values")
        text.mix(special)
        return _outputs(model, text, prompt, further, self._request["seed"], (self._past, special))


def _as_long(expected: Any, found: Any) -> Any:
    """Return ``found`` as long as ``expected`` if it is the longer one; else as it is."""
    shorter, cut = _aligned(expected, found)
    return cut if shorter.shape == expected.shape else found


def _outputs(
    model: _AsGiven | _Buffered,
    text: _TokenFeeds,
    prompt: Sequence[int],
    further: Sequence[int],
    seed: int,
    past: tuple[int, Special | None] = (0, None),
) -> Any:
    """Return what a model gives for a prompt in some steps, then token by token, and what its caches hold then.

    Args:
        past: Tokens before, and what is among the values of their caches.
    """
    model.start(past[0], seed, past[1])
    parts = [model.step(text.feed(begin, count), begin, count) for begin, count in _steps(past[0], prompt)]
    outputs = [_joined(list(values), list(prompt)) for values in zip(*parts, strict=True)]
    done = past[0] + sum(prompt)
    for begin, count in _steps(done, further):
        outputs += model.step(text.feed(begin, count), begin, count)
    return outputs + model.filled(done + len(further))


def _joined(values: Sequence[Any], counts: Sequence[int]) -> Any:
    """Return the outputs of several steps as one: behind each other where an axis has the tokens, or the last."""
    first = values[0]
    for axis in range(first.ndim):
        if any(count > 1 for count in counts) and all(
            one.shape[axis] == count for one, count in zip(values, counts, strict=True)
        ):
            return np.concatenate(values, axis=axis)
    return values[-1]


def _aligned(expected: Any, found: Any) -> tuple[Any, Any]:
    """Return two outputs with as many tokens: the last ones of the longer, where only a few were computed at once."""
    if expected.shape == found.shape or expected.ndim != found.ndim:
        return expected, found
    axis = next(axis for axis in range(expected.ndim) if expected.shape[axis] != found.shape[axis])
    length = min(expected.shape[axis], found.shape[axis])
    last = tuple(slice(-length, None) if place == axis else slice(None) for place in range(expected.ndim))
    return expected[last], found[last]


def _chunks(tokens: int, chunk: int) -> list[int]:
    return [min(chunk, tokens - begin) for begin in range(0, tokens, chunk)]


def _steps(past: int, counts: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield where each step begins, and its tokens."""
    for count in counts:
        yield past, count
        past += count


class _TokenFeeds:
    """Random inputs of a text, cut for each step.

    Args:
        file: Whose inputs they are.
        tokens: Of the whole text.
    """

    def __init__(self, file: Mapping[str, Any], tokens: int, seed: int) -> None:
        self._others = file["others"]
        self._tokens, self._seed = tokens, seed
        self._whole: dict[str, Any] = {}

    def know(self, session: Any) -> None:
        """Draw all values, of the types that a session takes, unless they are drawn."""
        if self._whole:
            return

        types = {one.name: one.type for one in session.get_inputs()}
        rng = np.random.default_rng(self._seed)
        for one in self._others:
            shape = [size if isinstance(size, int) else self._tokens for size in one["axes"]]
            dtype = dtype_of(types[one["name"]][7:-1])
            drawn = random_values(dtype, shape, rng, high=BOUND)
            # Of a mask every token counts.
            masks = "all" in one["axes"] and np.issubdtype(drawn.dtype, np.integer)
            self._whole[one["name"]] = np.ones_like(drawn) if masks else drawn

    def kinds(self) -> list[tuple[Any, bool]]:
        """Return the types of all values, of which none is quantised."""
        return [(values.dtype, False) for values in self._whole.values()]

    def mix(self, special: Special) -> None:
        """Put special values among them."""
        rng = rng_of(self._seed, special)
        self._whole = {name: mixed(values, special, rng) for name, values in self._whole.items()}

    def feed(self, begin: int, count: int) -> dict[str, Any]:
        """Return the inputs of ``count`` tokens behind ``begin`` ones."""
        found = {}
        for one in self._others:
            spans = {"new": slice(begin, begin + count), "all": slice(0, begin + count)}
            cut = tuple(spans.get(size, slice(None)) for size in one["axes"])
            found[one["name"]] = np.ascontiguousarray(self._whole[one["name"]][cut])
        return found


class _Caches:
    """A session, and its caches.

    Attributes:
        session: Without options.
        names: Of the outputs that are no caches.
    """

    def __init__(self, file: Mapping[str, Any], session: Any) -> None:
        self.session = session
        self._caches = file["caches"]
        kept = {one["present"] for one in self._caches}
        self.names = [one.name for one in session.get_outputs() if one.name not in kept]

    def drawn(self, tokens: int, seed: int, special: Special | None = None) -> Iterator[tuple[Mapping[str, Any], Any]]:
        """Yield random values for so many tokens of each cache, with special ones among them if that is asked for."""
        rng = np.random.default_rng(seed)
        for one in self._caches:
            shape = [tokens if size is None else size for size in one["shape"]]
            numbers = rng.random(shape, np.float32)
            numbers -= 0.5
            values = numbers.astype(one["dtype"], copy=False)
            yield one, values if special is None else mixed(values, special, rng)


class _AsGiven(_Caches):
    """A model that gives back caches which are longer by what is new; those before are freed."""

    def start(self, past: int, seed: int, special: Special | None = None) -> None:
        """Begin with ``past`` random tokens."""
        self._held = {one["past"]: values for one, values in self.drawn(past, seed, special)}

    def step(self, feed: Mapping[str, Any], begin: int, count: int) -> list[Any]:
        """Return the outputs for further tokens."""
        del begin, count
        names = [one["present"] for one in self._caches]
        outputs = self.session.run([*self.names, *names], {**feed, **self._held})
        self._held = {one["past"]: values for one, values in zip(self._caches, outputs[len(self.names) :], strict=True)}
        return list(outputs[: len(self.names)])

    def filled(self, tokens: int) -> list[Any]:
        """Return what the caches hold."""
        del tokens
        return list(self._held.values())


class _Buffered(_Caches):
    """A model whose caches are buffers, each bound as input and output."""

    def __init__(self, file: Mapping[str, Any], session: Any) -> None:
        super().__init__(file, session)
        self._past_length, self._capacity = file["past_length"], file["capacity"]
        self._binding: Any = None
        self._buffers: dict[str, Any] = {}

    def start(self, past: int, seed: int, special: Special | None = None) -> None:
        """Begin with ``past`` random tokens."""
        import onnxruntime

        if self._binding is None:
            self._binding = self.session.io_binding()
            for one in self._caches:
                shape = [self._capacity if size is None else size for size in one["shape"]]
                buffer = onnxruntime.OrtValue.ortvalue_from_shape_and_type(shape, np.dtype(one["dtype"]).type)
                self._buffers[one["past"]] = buffer
                self._binding.bind_ortvalue_input(one["past"], buffer)
                self._binding.bind_ortvalue_output(one["present"], buffer)
        for one, values in self.drawn(past, seed, special):
            if past:
                self._filled(one, past)[...] = values

    def step(self, feed: Mapping[str, Any], begin: int, count: int) -> list[Any]:
        """Return the outputs for further tokens."""
        del count
        for name, values in feed.items():
            self._binding.bind_cpu_input(name, values)
        if self._past_length is not None:
            self._binding.bind_cpu_input(self._past_length, np.array([begin], np.int64))
        for name in self.names:
            self._binding.bind_output(name)
        self.session.run_with_iobinding(self._binding)
        bound = self._binding.get_outputs()
        return [one.numpy() for one in bound[-len(self.names) :]] if self.names else []

    def filled(self, tokens: int) -> list[Any]:
        """Return what the caches hold."""
        return [self._filled(one, tokens) for one in self._caches]

    def _filled(self, one: Mapping[str, Any], tokens: int) -> Any:
        whole = self._buffers[one["past"]].numpy()
        return whole[tuple(slice(tokens) if size is None else slice(None) for size in one["shape"])]


def _model(file: Mapping[str, Any], threads: int = 0) -> _AsGiven | _Buffered:
    """Open a session without options, but for its number of threads if that is not 0."""
    session = opened(file["path"], SessionPoint(threads=threads), folder=file["folder"])
    return _AsGiven(file, session) if file["capacity"] is None else _Buffered(file, session)
