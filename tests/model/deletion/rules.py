"""The rules of deletion, each with the simpler form that looks right and is not.

`Rules()` is the protocol. A field set to any other of its values is a wrong form.
"""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Rules:
    """One protocol: the first value of each field is the right form."""

    # Garbage collection.
    collect: Literal["mark, pins, delete", "pins, mark, delete", "pins, delete, mark"] = "mark, pins, delete"
    others_marks: Literal["pins after", "pins before"] = "pins after"
    pin: Literal["pin, then look", "look, then pin", "pin only"] = "pin, then look"
    pinned: Literal["by retained-from", "by what is there"] = "by retained-from"
    mark: Literal["tags at commit", "tags when planned"] = "tags at commit"
    tag: Literal["retained, at commit", "retained, when planned", "any number"] = "retained, at commit"
    # Writers.
    unknown: Literal["delete nothing", "delete own files"] = "delete nothing"
    repeat: Literal["by request key", "by file name"] = "by request key"
    stamp: Literal["of the store", "of the writer"] = "of the store"
    # The sweep.
    horizon: Literal["in the log", "of the clock"] = "in the log"
    age: Literal["judged again", "judged once"] = "judged again"
    swept: Literal["older than T", "T and older"] = "older than T"
    known: Literal["read after the horizon", "read before the horizon"] = "read after the horizon"
    open_jobs: Literal["hold the horizon", "not minded"] = "hold the horizon"
    outputs: Literal["of open jobs only", "whenever"] = "of open jobs only"
