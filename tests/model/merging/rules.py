"""The rules of ordered merges, joins and removals, each with the simpler form that looks right and is not.

`Rules()` is the protocol. A field set to any other of its values is a wrong form.
"""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Rules:
    """One protocol: the first value of each field is the right form."""

    # Order.
    sequence: Literal["of the commit", "of the offer"] = "of the commit"
    inputs: Literal["no other in their span", "neighbours by lowest", "any"] = "no other in their span"
    markers: Literal["dropped at the bottom", "dropped"] = "dropped at the bottom"
    # Joins and jobs.
    join_files: Literal["must not reach over", "any"] = "must not reach over"
    join_jobs: Literal["none open", "any"] = "none open"
    replace: Literal["leaf by leaf", "original leaf", "every leaf in range"] = "leaf by leaf"
    # Removals.
    fence_adds: Literal["refused", "accepted"] = "refused"
    fence_base: Literal["of the first offer", "of this attempt"] = "of the first offer"
    fence_jobs: Literal["refused", "accepted"] = "refused"
    unfenced: Literal["log order", "refuses older"] = "log order"
