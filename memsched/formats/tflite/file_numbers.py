"""Numbers of TFLite files that the schema does not state."""

from __future__ import annotations

from typing import Final

__all__ = ["FileNumbers"]


class FileNumbers:
    """Bytes, unless they say otherwise.

    Attributes:
        ALIGNMENT: Bytes to which what is put before a file, or around its weights, is aligned: runtimes read it there.
        BLOB_ALIGNMENT: Bytes to which a buffer is aligned.
        ROOT: The byte at which the first object may lie, behind the root's offset and the file's identifier.
        LAST_OLD_CODE: What the field for operator codes of 8 bits says of later operators.
        DEPENDENCIES_VERSION: The version of the metadata of dependencies.
        PLAN_HEADER: Bytes of the metadata of a memory plan before its offsets: version, subgraph and their number.
    """

    ALIGNMENT: Final = 64
    BLOB_ALIGNMENT: Final = 16
    ROOT: Final = 8
    LAST_OLD_CODE: Final = 127
    DEPENDENCIES_VERSION: Final = 1
    PLAN_HEADER: Final = 12
