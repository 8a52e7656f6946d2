"""The child process's side of ``memsched.runtimes.child``: ``python -m memsched.runtimes.worker MODULE:FUNCTION``."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from memsched.runtimes.child import read_value, write_value

__all__ = ["main"]


def main(function_path: str) -> None:
    """Call the function with the value in the file "request" and leave its answer in the file "response"."""
    module, _, name = function_path.partition(":")
    answer: dict[str, Any]
    try:
        function = getattr(importlib.import_module(module), name)
        answer = {"value": function(read_value(Path("request")))}
        write_value(Path("answer"), answer)
    except Exception as error:  # whatever it is, the parent must hear of it
        answer = {"error": " ".join(str(error).split()) or type(error).__name__, "type": type(error).__name__}
        write_value(Path("answer"), answer)
    Path("answer.data").replace("response.data")
    Path("answer").replace("response")


if __name__ == "__main__":
    main(sys.argv[1])
