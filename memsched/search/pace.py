"""How quickly an idle machine works: by these figures `Limits.effort` counts work, and a second's is 1, about.

They are measured, not chosen: whoever changes a search may measure its figure anew. What a search finds with a limit of
work changes with it, so that nothing here follows the machine at hand.
"""

from __future__ import annotations

from typing import Final

__all__ = ["MachinePace"]


class MachinePace:
    """Units of work per second, or where the name ends in SECONDS, seconds of one unit.

    Attributes:
        TASK_STATES: States that a search for an order visits, times the tasks of the segment and a hundred.
        CUT_TASKS: Tasks that are cut into stages.
        OP_SECONDS: An op of a graph that is made and judged: of an excerpt, or with another identity.
        PACKING_STEPS: `GreedyPlanner.order_steps`, with what is done beside.
        BLOCK_SECONDS: A block of a packing, for finding out which others it meets.
        PLANNED_BLOCK_SECONDS: A block for which a greedy search finds an address in one more order.
        SOLVING_SECONDS: A deterministic second of CP-SAT.
        LOOP_STEP_SECONDS: An operator in one iteration of a loop that is followed.
        PIECES: Ops of pieces that are judged.
        LOOPS: Forms of loops that are judged.
        EXECUTIONS: Steps of schedules with repetition that are executed, of the greedy and of local search.
        MOVES: Moves of a full search with repetition.
        SESSION_OPS: Ops of the orders in which sessions may execute a graph.
        SHARE_STEPS: Steps of the searches for a distribution; each asks first whether to go on.
        PAIRS: Pairs of sets of layers that one dynamic program looks at.
        PRICED_STAGES: Stages whose time or memory is asked for.
        REFERENCE_MACS: Multiply-accumulates of a runtime's reference kernels on a slow machine.
    """

    TASK_STATES: Final = 15e6
    CUT_TASKS: Final = 2_500
    OP_SECONDS: Final = 1e-4
    PACKING_STEPS: Final = 30_000_000
    BLOCK_SECONDS: Final = 1e-5
    PLANNED_BLOCK_SECONDS: Final = 5e-5
    SOLVING_SECONDS: Final = 6.0
    LOOP_STEP_SECONDS: Final = 2.5e-6
    PIECES: Final = 20_000
    LOOPS: Final = 3_000
    EXECUTIONS: Final = 400_000
    MOVES: Final = 60_000
    SESSION_OPS: Final = 300_000
    SHARE_STEPS: Final = 100
    PAIRS: Final = 1_000_000
    PRICED_STAGES: Final = 1_000
    REFERENCE_MACS: Final = 50e6
