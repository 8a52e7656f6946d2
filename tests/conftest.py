"""Property tests draw the same cases in every run; `make test-random` draws others."""

import os
import sys

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("random", deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

# A defect in one candidate must not be hidden by the next best one.
os.environ.setdefault("MEMSCHED_DEFECTS", "raise")

# Tests start hundreds of Pythons. Where the environment forbids to keep bytecode, each would compile every module anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
