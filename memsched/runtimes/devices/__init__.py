"""Devices side by side, as processes that talk to each other: the program, the wire, the worker."""
