"""Structure-aware fuzzing of everything that reads a file: models, buffer tables, targets, clusters, reports."""
