"""What all benchmarks share: how they are declared, run, timed, printed, and compared with the documentation."""
