"""`memsched batch`: many models, one process for each."""
