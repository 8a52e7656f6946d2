"""`memsched pipeline`: one model for each accelerator of a row."""
