"""C of plans of on-chip memory: compiled, executed, and compared with the runtimes."""
