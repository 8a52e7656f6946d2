"""A pass of your own: read the graph, find an order, judge it, write it back, and run both models.

    python examples/own_pass.py models/networks/randwire1.onnx build/randwire1_greedy.onnx

The order is a simple greedy one: of the operators that can run next, the one that leaves the fewest bytes behind.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import memsched


def greedy_order(storage: memsched.Storage) -> list[int]:
    """Return an order in which each next operator releases the most, less what it creates; ties go to the file's."""
    uses = storage.remaining_uses()
    waiting = [len(befores) for befores in storage.preds]
    ready = [op for op, count in enumerate(waiting) if not count]
    order: list[int] = []

    def growth(op: int) -> int:
        """Bytes that stay in use after this operator and were not in use before it."""
        created = sum(storage.sizes[buffer] for buffer in storage.creates[op] if uses[buffer])
        released = sum(storage.sizes[buffer] for buffer in storage.reads[op] if uses[buffer] == 1)
        return created - released

    while ready:
        op = min(ready, key=lambda one: (growth(one), one))
        ready.remove(op)
        order.append(op)
        for buffer in storage.reads[op]:
            uses[buffer] -= 1
        for after in storage.succs[op]:
            waiting[after] -= 1
            if not waiting[after]:
                ready.append(after)
    return order


def main() -> int:
    """Do what the command line says and return the exit code."""
    parser = argparse.ArgumentParser(description="Order a model's operators greedily.")
    parser.add_argument("model", help="an .onnx or .tflite file")
    parser.add_argument("output", help="the model to write")
    arguments = parser.parse_args()
    try:
        analysis = memsched.analyze(arguments.model)  # the graph with the rules of its runtime: views, in place
        storage = memsched.Storage.of(analysis.graph)
        order = greedy_order(storage)
        before, after = analysis.schedule.peak, memsched.evaluate(storage, order).peak
        print(f"peak in the file's order {before:,} B, in the greedy order {after:,} B")
        if after >= before:
            print("not better: nothing is written")
            return 0
        data = memsched.reorder(analysis.module, order)
        print(f"peak of the file written {memsched.analyze(data).schedule.peak:,} B")
        comparison = memsched.verify(arguments.model, data, runs=2)
    except memsched.MemschedError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    if not comparison.same:
        print(f"outputs differ, or could not be compared: {comparison.verification.reason}", file=sys.stderr)
        return 4
    print(f"outputs bit-equal in {comparison.verification.runtime} on {comparison.verification.runs} random inputs")
    Path(arguments.output).parent.mkdir(parents=True, exist_ok=True)
    Path(arguments.output).write_bytes(data)
    return 0


if __name__ == "__main__":
    sys.exit(main())
