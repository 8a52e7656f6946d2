"""What people come for, done as the pages and `--help` say, with the real commands, to the end.

- `test_microcontroller`: a visual wake words model in 60 KB of whole arena, through header, CMake and a run on this
  machine.
- `test_smaller_process`: a network that finds text, through `memsched doctor` to a smaller process.
- `test_ci_gate`: a gate in CI that a larger model does not pass.
- `test_own_solver`: a solver of one's own, outside memsched and within.
- `test_own_chip`: a chip of one's own.
"""
