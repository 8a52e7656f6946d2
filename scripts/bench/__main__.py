"""List the benchmarks, or run one: `python -m scripts.bench [NAME [OPTIONS]]`."""

from __future__ import annotations

import sys

from scripts.bench.runner.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
