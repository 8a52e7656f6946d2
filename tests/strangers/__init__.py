"""Models that nobody in this project wrote, or that a solver chose: `make test-strangers`."""
