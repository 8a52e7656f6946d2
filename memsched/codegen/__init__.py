"""C99 of plans of on-chip memory: what runs on the accelerator, and on a computer with its transfers counted."""
