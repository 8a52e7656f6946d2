"""The child process's side of ``memsched.runtimes.child``: ``python -m memsched.runtimes.worker NUMBER``."""

from __future__ import annotations

import importlib
import sys

from memsched.search.messages import Channel
from memsched.search.processes import end_with_parent

__all__ = ["main"]


def main(channel: Channel) -> None:
    """Call the function that the parent names, and tell it the result."""
    request = channel.hear()
    end_with_parent(channel)
    module, _, name = request["function"].partition(":")
    try:
        function = getattr(importlib.import_module(module), name)
        channel.tell({"value": function(request["payload"])})
    except Exception as error:  # whatever it is, the parent must hear of it
        told = {"error": " ".join(str(error).split()) or type(error).__name__, "type": type(error).__name__}
        channel.tell(told)


if __name__ == "__main__":
    main(Channel.inherited(sys.argv[1]))
