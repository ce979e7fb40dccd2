"""The rules of the protocol, each with simpler forms that look right but are wrong.

`Rules()` is the protocol. A field set to any other of its values is a wrong form; the model then follows that form
everywhere. `WRONG_FORMS` lists them with the violations that they cause.
"""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Rules:
    """One protocol: the first value of each field is the right form."""

    # The log: docs/decisions/0004.
    put: Literal["create if absent", "overwrite"] = "create if absent"
    exists: Literal["look whose", "lost race"] = "look whose"
    unclear: Literal["same bytes again", "other bytes", "read back", "next version"] = "same bytes again"
    own_entry: Literal["applied when settled", "applied when put"] = "applied when settled"
    repeat: Literal["first outcome", "forgotten", "compare content"] = "first outcome"
    # The group of transactions in one entry: 0004.
    validated_on: Literal["evolving state", "head"] = "evolving state"
    neighbours: Literal["apart", "all or none"] = "apart"
    rejection: Literal["of a committed head", "reported at once", "of a cached view"] = "of a committed head"
    repeat_beside: Literal["reported with its entry", "reported at once"] = "reported with its entry"
    # Files, references and partitions: 0003.
    add: Literal["resolved again", "resolved when planned"] = "resolved again"
    left_out: Literal["proven empty", "estimated empty"] = "proven empty"
    split: Literal["partition and keys", "carries references"] = "partition and keys"
    read: Literal["slice", "whole file"] = "slice"
    join_files: Literal["must not reach over", "any"] = "must not reach over"
    join_jobs: Literal["none open", "any"] = "none open"
    # Jobs, by 0005 and 0030.
    open_inputs: Literal["in no open job", "any"] = "in no open job"
    open_range: Literal["every row counts", "inputs somewhere in it"] = "every row counts"
    replace: Literal["partition by partition", "original partition", "every partition in range"] = (
        "partition by partition"
    )
    late_commit: Literal["refused", "accepted"] = "refused"
