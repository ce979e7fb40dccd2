"""The rules of a truncated log, each with simpler forms that look right but are wrong.

`Rules()` is the protocol. A field set to any other of its values is a wrong form. The number after a field is that of
the rule in docs/decisions/0011.
"""

from dataclasses import dataclass
from typing import Literal

KEPT = 2  # entries that the wrong form "keep the last ones" keeps


@dataclass(frozen=True, slots=True)
class Rules:
    """One protocol: the first value of each field is the right form."""

    # The trimmer.
    delete: Literal["behind the log start", "before the log start"] = "behind the log start"  # 1
    log_start: Literal["compare and set", "overwritten"] = "compare and set"  # 1
    checkpoints: Literal["two", "one"] = "two"  # 1
    checkpoint: Literal["read back", "believed"] = "read back"  # 1
    # The writer.
    created: Literal["floor after", "floor before", "no log start", "no log start, the last entries kept"] = (
        "floor after"  # 2
    )
    exists_as_ours: Literal["floor after", "believed"] = "floor after"  # 2
    own_entry: Literal["published when checked", "published when created"] = "published when checked"  # 2
    below_log_start: Literal["look in the state", "not committed"] = "look in the state"  # 2
    # The follower.
    missing: Literal["floor after", "floor before", "is the head"] = "floor after"  # 3
    found: Literal["floor after", "floor before", "believed"] = "floor after"  # 3
    listing: Literal[
        "from the head, in order, without a gap",
        "after the head, in any order",
        "up to the first gap",
        "without the log start",
    ] = "from the head, in order, without a gap"  # 7
    # Request keys.
    records: Literal["in the state", "not in checkpoints", "the last one"] = "in the state"  # 4
    base: Literal["of the first proposal", "of this attempt"] = "of the first proposal"  # 4
    too_old: Literal["unknown", "rejected"] = "unknown"  # 5
