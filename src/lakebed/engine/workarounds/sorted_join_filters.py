"""Finds joins of sorted rows whose conditions DataFusion 55 may evaluate over other columns.

Its physical optimizer moves a projection below such a join, and leaves the condition beside the equalities with the
places that columns had before: rows are lost or come in excess, or the engine panics. Hash joins are right.

A plan does not show whether a projection was moved. So the plans before and after the rule that moves them are
compared: the columns of what is joined are those of the nodes down to the next projections.

Rule: too many statements may be found, never too few.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise

_CONDITION = re.compile(r"SortMergeJoinExec: [^\n]*, filter=")
_UNCHANGED = "SAME TEXT AS ABOVE"
_MOVING = "physical_plan after ProjectionPushdown"


def may_mistake_columns(steps: Iterable[tuple[str, str]]) -> bool:
    """Return whether a projection may have moved below a join of sorted rows with a condition beside its equalities.

    ``steps`` are the kinds and plans of EXPLAIN VERBOSE, in order.
    """
    changes = [step for step in steps if step[1] != _UNCHANGED]
    return any(
        kind == _MOVING and list(_joined(before)) != list(_joined(after))
        for (_, before), (kind, after) in pairwise(changes)
    )


def _joined(plan_text: str) -> Iterator[list[str]]:
    """Return what each such join of a plan joins: the nodes below it, down to the next projections."""
    lines = [(len(line) - len(line.lstrip()), line.lstrip()) for line in plan_text.splitlines()]
    for place, (depth, join) in enumerate(lines):
        if _CONDITION.match(join):
            below: list[str] = []
            hidden_from = None
            for deep, line in lines[place + 1 :]:
                if deep <= depth:
                    break
                if hidden_from is None or deep <= hidden_from:
                    below.append(line)
                    hidden_from = deep if line.startswith("ProjectionExec") else None
            yield below
