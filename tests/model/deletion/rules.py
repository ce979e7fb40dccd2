"""The rules of deletion, each with simpler forms that look right but are wrong.

`Rules()` is the protocol. A field set to any other of its values is a wrong form. The number after a field is that of
the rule in docs/decisions/0013.
"""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Rules:
    """One protocol: the first value of each field is the right form."""

    # Garbage collection.
    collect: Literal["mark, pins, delete", "pins, mark, delete", "pins, delete, mark"] = "mark, pins, delete"  # 1
    others_marks: Literal["pins after", "pins before"] = "pins after"  # 1
    pin: Literal["pin, then look", "look, then pin", "pin only"] = "pin, then look"  # 3
    pinned: Literal["by earliest retained version", "by what is there"] = "by earliest retained version"  # 3
    mark: Literal["tags at commit", "tags when planned"] = "tags at commit"  # 2
    tag: Literal["retained, at commit", "retained, when planned", "any number"] = "retained, at commit"  # 2
    # Writers.
    unknown: Literal["delete nothing", "delete own files"] = "delete nothing"  # 7
    repeat: Literal["by request key", "by file name"] = "by request key"  # 4
    last_modified: Literal["of the store", "of the writer"] = "of the store"  # 5
    # The sweep.
    cutoff: Literal["in the log", "of the clock"] = "in the log"  # 5
    age: Literal["validated again", "validated once"] = "validated again"  # 5
    swept: Literal["older than T", "T and older"] = "older than T"  # 5
    known: Literal["read after the cutoff", "read before the cutoff"] = "read after the cutoff"  # 5
    open_jobs: Literal["hold the cutoff", "not minded"] = "hold the cutoff"  # 6
    outputs: Literal["of open jobs only", "whenever"] = "of open jobs only"  # 6
