"""The rules of tables that merge rows, each with simpler forms that look right but are wrong.

`Rules()` is the protocol. A field set to any other of its values is a wrong form. The number after a field is that of
the rule in docs/decisions/0012.
"""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Rules:
    """One protocol: the first value of each field is the right form."""

    # Order.
    sequence: Literal["of the commit", "of the proposal"] = "of the commit"  # 1
    inputs: Literal["neighbours", "neighbours by lowest", "any"] = "neighbours"  # 2
    output: Literal["in place of its inputs", "last"] = "in place of its inputs"  # 2
    whole: Literal["nothing between in any partition", "neighbours in each partition"] = (
        "nothing between in any partition"  # 3
    )
    input_order: Literal["of the lists", "by greatest sequence"] = "of the lists"  # 3
    join_order: Literal["of the lists", "by greatest sequence", "by least sequence", "one list after the other"] = (
        "of the lists"  # 4
    )
    # Kinds of rows.
    deletes: Literal["dropped by complete jobs", "dropped"] = "dropped by complete jobs"  # 5
    complete: Literal["first in the list", "least sequence"] = "first in the list"  # 5
    sorted_deletes: Literal["kept", "dropped by complete jobs"] = "kept"  # 6
    partial: Literal["stays partial", "becomes whole"] = "stays partial"  # 7
    revived: Literal["whole", "partial"] = "whole"  # 7
    sorted_partial: Literal["refused", "accepted"] = "refused"  # 8
    # Joins and jobs, as in docs/decisions/0003 and 0005; here with deletes.
    join_files: Literal["must not reach over", "any"] = "must not reach over"
    join_jobs: Literal["none open", "any"] = "none open"
    replace: Literal["partition by partition", "original partition", "every partition in range"] = (
        "partition by partition"
    )
    # Removals and restores.
    fence_adds: Literal["refused", "accepted"] = "refused"  # 9
    fence_base: Literal["of the first proposal", "of this attempt"] = "of the first proposal"  # 9
    fence_jobs: Literal["refused", "accepted"] = "refused"  # 9
    unfenced: Literal["log order", "refuses older"] = "log order"  # 10
    restore_jobs: Literal["closed", "stay open"] = "closed"
    # Filters and age-off.
    filter_jobs: Literal["refused", "accepted"] = "refused"  # 12
    filter_field: Literal["of the row key", "any"] = "of the row key"  # 13
    cut: Literal["only rises", "any"] = "only rises"  # 14
    cut_of_job: Literal["of the state", "of a clock"] = "of the state"  # 14
    # Merge modes.
    mode_rows: Literal["none", "any"] = "none"  # 15
    mode_adds: Literal["refused", "accepted"] = "refused"  # 15
    mode_restore: Literal["refused", "accepted"] = "refused"  # 15
