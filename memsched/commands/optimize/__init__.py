"""`memsched optimize` and `memsched analyze`."""
