"""A dask cluster of two workers on this machine: ``python -m tests.dask.local_cluster FOLDER``, a process of its own.

It prints its address and the workers' process ids as JSON, and ends when its standard input does. The workers run in
FOLDER, so that a path relative to the tests' own means nothing to them.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Addresses", "local_cluster"]


@dataclass(frozen=True)
class Addresses:
    scheduler: str
    workers: tuple[int, ...]


@contextlib.contextmanager
def local_cluster(folder: Path) -> Iterator[Addresses]:
    """Give the addresses of a cluster that lives as long as this context."""
    root = Path(__file__).resolve().parent.parent.parent
    with subprocess.Popen(
        [sys.executable, "-m", "tests.dask.local_cluster", str(folder)],
        cwd=root,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            values = json.loads(process.stdout.readline())
            yield Addresses(values["scheduler"], tuple(values["workers"]))
        finally:
            process.communicate("")


def main(folder: str) -> int:
    """Run the cluster."""
    from distributed import LocalCluster

    os.chdir(folder)
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    options: dict[str, Any] = {"dashboard_address": None, "silence_logs": logging.CRITICAL}
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, local_directory=folder, **options) as cluster:
        pids = [worker.pid for worker in cluster.workers.values()]
        print(json.dumps({"scheduler": cluster.scheduler_address, "workers": pids}), flush=True)  # noqa: T201
        sys.stdin.read()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
