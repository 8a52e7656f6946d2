"""Runs that take minutes or hours: fuzzing, mutants, kills, solvers against each other, the same bytes twice."""
