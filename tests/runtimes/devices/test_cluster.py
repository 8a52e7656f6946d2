"""Plans executed by one process per device: bytes at the sockets, memory, and processes that die or hang."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memsched.features.distribute import distribute as distributing
from memsched.features.distribute.distribute import DistributedNetwork
from memsched.features.distribute.execute import execute
from memsched.features.distribute.step_models import given_sends, program_of
from memsched.runtimes.devices import parent
from memsched.runtimes.devices.parent import run_cluster
from memsched.runtimes.devices.wire import HEADER_BYTES, elements_of, receive_array, send_array
from memsched.runtimes.onnxruntime.runner import OnnxRuntimeRunner
from memsched.search.messages import Channel
from memsched.search.processes import start_process
from tests.distributed_nets import classifier, cluster_of
from tests.failures import fails
from tests.needs import MEASURABLE


def planned(devices: int = 3) -> DistributedNetwork:
    return distributing.distribute(classifier(), cluster=cluster_of(devices), method="even")


def alive(numbers: Sequence[int]) -> list[int]:
    """Processes that still run; one that has ended and was not waited for does not."""
    found = []
    for number in numbers:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
            if state != "Z":
                found.append(number)
    return found


def test_a_classifier_on_three_processes() -> None:
    started: list[int] = []
    distributed = planned()
    found = distributing.run_plan(distributed, on_start=started.extend)
    plan, executed = found.plan, found.executed
    assert executed is not None
    assert executed.relative_error <= 1e-5
    assert len(started) == 3
    assert not alive(started)
    transfers = [*(one for step in plan.steps for one in step.transfers), *plan.results]
    run = executed.run
    for number, device in enumerate(run.devices):
        mine = [one for one in transfers if one.source == number]
        assert device.sent == sum(one.size * len(one.targets) for one in mine) > 0
        assert device.sent_once == sum(one.size for one in mine)
        assert device.received == sum(one.size for one in transfers if number in one.targets) > 0
        assert device.headers == HEADER_BYTES * sum(len(one.targets) for one in mine)
    assert run.given == sum(one.size * len(one.targets) for one in transfers if one.source == -1)
    if MEASURABLE:
        for number, device in enumerate(run.devices):
            steps = range(len(plan.steps))
            files = [
                distributed.models.facts_of(number, step) for step in steps if distributed.models.steps[number][step]
            ]
            assert device.activations is not None
            used = device.activations + sum(file.weights for file in files)
            assert used == pytest.approx(plan.memory[number], rel=0.15)


def test_bytes_that_differ_from_the_plan_are_a_defect() -> None:
    distributed = planned(2)
    first = distributed.plan.steps[0]
    false = replace(first.transfers[0], size=1 + first.transfers[0].size)
    steps = (replace(first, transfers=(false, *first.transfers[1:])), *distributed.plan.steps[1:])
    followed = replace(distributed.followed, plan=replace(distributed.plan, steps=steps))
    with fails("bytes-differ", "device "):
        execute(distributed.module, distributed.data, followed, distributed.models.steps, distributed.models.file)


# Processes that fail ------------------------------------------------------------------------------------------------


def started(
    distributed: DistributedNetwork, model: Callable[[int, int], bytes], then: Callable[[Sequence[int]], None]
) -> None:
    """Run a plan, with one's own models, and with something done to its processes."""
    steps = distributed.models.steps
    programs = [program_of(distributed.followed, device, steps[device]) for device in range(distributed.plan.devices)]
    feeds = {"x0": np.zeros((1, 3, 20, 20), np.float32)}
    run_cluster(
        *(programs, given_sends(distributed.followed), model, feeds),
        runtime=OnnxRuntimeRunner.parts,
        patience_seconds=600,
        on_start=then,
    )


def test_a_process_that_is_killed_ends_the_run_at_once() -> None:
    numbers: list[int] = []

    def kill(found: Sequence[int]) -> None:
        numbers.extend(found)
        # While it is stopped, the other one gets as far as it can.
        os.kill(found[1], signal.SIGSTOP)
        threading.Timer(2.0, os.kill, (found[1], signal.SIGKILL)).start()

    # Without noticing, the run would end after its patience and say that a device did not answer.
    with fails("process-ended", "device 1", "SIGKILL"):
        started(planned(2), planned(2).models.file, kill)
    assert not alive(numbers)


def test_a_process_that_hangs_is_not_waited_for_for_ever() -> None:
    numbers: list[int] = []

    def stop(found: Sequence[int]) -> None:
        numbers.extend(found)
        os.kill(found[0], signal.SIGSTOP)

    distributed = planned(2)
    with fails("no-answer", "2 s"):
        distributing.run_plan(distributed, patience_seconds=2, on_start=stop)
    assert len(numbers) == 2
    assert not alive(numbers)


def test_one_that_reads_nothing_is_not_waited_for_either(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor with a program longer than what a connection takes unread."""

    def stopped(*words: str, folder: Path, log: IO[bytes]) -> tuple[subprocess.Popen[bytes], Channel]:
        process, channel = start_process(*words, folder=folder, log=log)
        os.kill(process.pid, signal.SIGSTOP)
        return process, channel

    monkeypatch.setattr(parent, "start_process", stopped)
    monkeypatch.setattr(parent, "_links", lambda programs: [list(range(10**5))] * len(programs))
    with fails("no-answer", "2 s"):
        distributing.run_plan(planned(2), patience_seconds=2)


def test_a_model_that_does_not_load_is_named() -> None:
    with fails("device-failed", "device ", "odel"):
        started(planned(2), lambda _device, _step: b"no model", lambda _: None)


def test_no_process_outlives_this_one(tmp_path: Path) -> None:
    script = tmp_path / "run.py"
    script.write_text(
        "import os, sys\n"
        "from memsched.features.distribute import distribute as distributing\n"
        "from tests.distributed_nets import classifier, cluster_of\n"
        "def told(numbers):\n"
        "    print(*numbers, flush=True)\n"
        "    os.kill(os.getpid(), 9)\n"
        "plan = distributing.distribute(classifier(), cluster=cluster_of(2), method='even')\n"
        "distributing.run_plan(plan, on_start=told)\n"
    )
    search = os.pathsep.join([str(Path(__file__).parents[3]), *sys.path])
    done = subprocess.run(
        [sys.executable, str(script)], env={**os.environ, "PYTHONPATH": search}, capture_output=True, check=False
    )
    numbers = [int(number) for number in done.stdout.split()]
    assert len(numbers) == 2
    until = time.monotonic() + 300
    while alive(numbers) and time.monotonic() < until:
        time.sleep(0.1)
    assert not alive(numbers)


# The wire -----------------------------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(0, 3), st.integers(0, 3)), max_size=4),
    st.sampled_from(["float32", "int8", "float64", "bool"]),
)
def test_parts_of_arrays_go_through_sockets_as_they_are(axes: list[tuple[int, int, int]], dtype: str) -> None:
    shape = [size + before + after for size, before, after in axes]
    rng = np.random.default_rng(0)
    whole = np.asarray(rng.integers(0, 2, shape)).astype(dtype)
    index: tuple[Any, ...] = (*(slice(before, before + size) for size, before, _ in axes), ...)
    part = whole[index]
    assert b"".join(bytes(chunk) for chunk in elements_of(part)) == part.tobytes()
    into = np.zeros(shape, dtype)
    place = into[index]
    one, other = socket.socketpair()
    with one, other:
        sender = threading.Thread(target=send_array, args=(one, 1, 2, part))
        sender.start()
        header = other.recv(HEADER_BYTES, socket.MSG_WAITALL)
        assert receive_array(other, place) == part.nbytes
        sender.join()
    assert int.from_bytes(header[8:16], "big") == part.nbytes
    assert place.tobytes() == part.tobytes()
    assert into.sum() == part.sum()
