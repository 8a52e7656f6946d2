"""How a search runs: limits, progress, the solver of constraint programs, workers, clusters, memory."""
