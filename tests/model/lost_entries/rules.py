"""The rules of a log that may lose entries, each with simpler forms that look right but are wrong.

`Rules()` is the protocol. A field set to any other of its values is a wrong form.
"""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Rules:
    """One protocol: the first value of each field is the right form."""

    # The writer.
    append: Literal["behind the entry it knows", "behind any entry", "if absent"] = "behind the entry it knows"
    gaps: Literal["not filled", "filled"] = "not filled"
    # The first read of a process.
    end: Literal["looks past it", "the first missing entry"] = "looks past it"
    witness: Literal["missing entry read again", "believed"] = "missing entry read again"
