"""Finds joins of sorted rows whose conditions DataFusion 55 may evaluate over other columns.

Its physical optimizer moves a projection below such a join, and leaves the condition beside the equalities with the
places that columns had before: rows are lost or come in excess, or the engine panics. Hash joins are right.

Rule: too many plans may be found, never too few: a plan does not show whether a projection was moved.
"""

from __future__ import annotations

import re

_CONDITION = re.compile(r"SortMergeJoinExec: [^\n]*, filter=")


def may_mistake_columns(plan_text: str) -> bool:
    """Return whether a physical plan has a join of sorted rows with a condition beside its equalities."""
    return _CONDITION.search(plan_text) is not None
