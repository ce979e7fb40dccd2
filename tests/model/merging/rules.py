"""The rules of ordered merges, joins and removals, each with the simpler form that looks right and is not.

`Rules()` is the protocol. A field set to any other of its values is a wrong form. The version behind a field is that of
the rule in docs/decisions/0012.
"""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Rules:
    """One protocol: the first value of each field is the right form."""

    # Order.
    sequence: Literal["of the commit", "of the proposal"] = "of the commit"  # 1
    inputs: Literal["no other in their span", "neighbours by lowest", "any"] = "no other in their span"  # 2
    markers: Literal["dropped at the bottom", "dropped"] = "dropped at the bottom"  # 3
    # Joins and jobs, as in docs/decisions/0003 and 0005; here with deletions.
    join_files: Literal["must not reach over", "any"] = "must not reach over"
    join_jobs: Literal["none open", "any"] = "none open"
    replace: Literal["partition by partition", "original partition", "every partition in range"] = (
        "partition by partition"
    )
    # Removals.
    fence_adds: Literal["refused", "accepted"] = "refused"  # 4
    fence_base: Literal["of the first proposal", "of this attempt"] = "of the first proposal"  # 4
    fence_jobs: Literal["refused", "accepted"] = "refused"  # 4
    unfenced: Literal["log order", "refuses older"] = "log order"  # 5
