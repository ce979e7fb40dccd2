"""The rules of a log that is trimmed, each with the simpler form that looks right and is not.

`Rules()` is the protocol. A field set to any other of its values is a wrong form.
"""

from dataclasses import dataclass
from typing import Literal

KEPT = 2  # entries that the wrong form "keep the last ones" keeps


@dataclass(frozen=True, slots=True)
class Rules:
    """One protocol: the first value of each field is the right form."""

    # The trimmer.
    delete: Literal["behind the floor", "before the floor"] = "behind the floor"
    floor: Literal["compare and set", "overwritten"] = "compare and set"
    snapshots: Literal["two", "one"] = "two"
    snapshot: Literal["read back", "believed"] = "read back"
    # The writer.
    created: Literal["floor after", "floor before", "no floor", "no floor, the last entries kept"] = "floor after"
    exists_as_ours: Literal["floor after", "believed"] = "floor after"
    own_entry: Literal["published when checked", "published when created"] = "published when checked"
    below_floor: Literal["look in the state", "not committed"] = "look in the state"
    # The follower.
    missing: Literal["floor after", "floor before", "is the head"] = "floor after"
    found: Literal["floor after", "floor before", "believed"] = "floor after"
    # Request keys.
    records: Literal["in the state", "not in snapshots", "the last one"] = "in the state"
    base: Literal["of the first offer", "of this attempt"] = "of the first offer"
    too_old: Literal["unknown", "rejected"] = "unknown"
