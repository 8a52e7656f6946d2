"""How much is said of what may be endless: rows of a list, columns of a name, characters of a text from elsewhere."""

from __future__ import annotations

import sys
from typing import Final

__all__ = [
    "ALIKE",
    "LABEL_COLUMNS",
    "LINE_COLUMNS",
    "LISTED_REASON",
    "LONGEST_REASON",
    "LONGEST_TEXT",
    "NAME_COLUMNS",
    "ROWS_SHOWN",
    "TABLE_ROWS",
    "UNLIMITED",
    "WORTH_TELLING",
]

ROWS_SHOWN: Final = 5
"""Rows of a list in a message and on the console, which counts the rest; ``--verbose`` and reports have all."""

TABLE_ROWS: Final = 100
"""Rows of a table on a page or in a comment; a comment on GitHub holds 65,536 characters."""

LABEL_COLUMNS: Final = 40
"""Columns of a name inside a sentence, and of a type."""

NAME_COLUMNS: Final = 100
"""Columns of a name in a table."""

LINE_COLUMNS: Final = 120
"""Columns of a line, however wide the terminal."""

UNLIMITED: Final = sys.maxsize
"""Columns in which every name and table has room."""

LONGEST_REASON: Final = 400
"""Characters of a reason that a sentence quotes."""

LISTED_REASON: Final = 240
"""The same of one that lists what is wrong with one tensor after the other, as TFLite's runtimes do."""

LONGEST_TEXT: Final = 2_000
"""Characters of a text by itself: an error's message, a note, the end of a log."""

WORTH_TELLING: Final = 0.01
"""Share of a figure that a difference must have to be worth a row, a line or a colour."""

ALIKE: Final = 0.03
"""Share by which processes of one file differ by chance: two that agree within it stand for their session."""
