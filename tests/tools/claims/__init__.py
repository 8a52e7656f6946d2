"""What memsched prints, held against what the runtimes show: `python -m tests.tools.claims`."""
