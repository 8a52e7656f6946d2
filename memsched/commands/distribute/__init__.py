"""`memsched distribute`: the work on every operator shared out to devices side by side."""
