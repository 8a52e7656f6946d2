"""Makes the table of cuts: `python -m tests.tools.cuts`, for some operators `--only Conv CONV_2D`."""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path

from memsched.ops.cuts import TABLE
from tests.tools.cuts.case import Case
from tests.tools.cuts.judge import judge
from tests.tools.cuts.models import cases_for, sessions
from tests.tools.cuts.table import RUNTIMES, merged, read, spread, text_of


def main() -> None:
    """Compare, and write the table after each operator."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.cuts", description=__doc__)
    parser.add_argument("--runtime", choices=RUNTIMES, action="append", help="by default all")
    parser.add_argument("--only", nargs="*", default=(), metavar="OPERATOR", help="by default all that have a rule")
    parser.add_argument("--show", action="store_true", help="write nothing, and show an example of each difference")
    parser.add_argument("--out", type=Path, default=TABLE, metavar="FILE", help="what to write")
    asked = parser.parse_args()
    for runtime in asked.runtime or RUNTIMES:
        by_kind: dict[str, list[Case]] = defaultdict(list)
        for case in cases_for(runtime):
            if not asked.only or case.kind in asked.only:
                by_kind[case.kind].append(case)
        for kind, some in by_kind.items():
            found = judge(some, sessions(runtime))
            for key, seen in sorted(found.items()):
                if seen.example or asked.show:
                    print(runtime, *key, seen.exact, seen.rounds, seen.differs, seen.example, flush=True)
            if not found:
                print(f"{runtime} runs no {kind}", flush=True)
            if not asked.show:
                tables = read(asked.out)
                tables[runtime] = merged(tables[runtime], spread({key: one.verdict for key, one in found.items()}))
                asked.out.write_text(text_of(tables), encoding="utf-8")


if __name__ == "__main__":
    main()
