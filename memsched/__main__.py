"""``python -m memsched``: the command line."""

import sys

from memsched.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
