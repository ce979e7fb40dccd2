"""Finds statements in which DataFusion 55 would let joins take nulls for equal, or for different, that are not.

A join takes nulls of all its equalities for equal, or of none. The optimizer adds equalities of WHERE, and of the joins
beside it, to those of a join by IS NOT DISTINCT FROM, and keeps one of the two meanings for all: pairs of nulls come in
excess, or are lost. Added they are by a rule that joins anew, and by the second pass of all rules. Without both, tables
that only WHERE joins may be multiplied first, which costs time.

Rule: too many statements may be found, never too few.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

from lakebed.engine.tokens import tokens_of

if TYPE_CHECKING:
    from datafusion import SessionContext

_MARKS = re.compile(r"\bdistinct\b|<=>", re.IGNORECASE)


def joins_nulls(text: str) -> bool:
    """Return whether a statement compares values so that nulls are equal."""
    if _MARKS.search(text) is None:
        return False
    pairs = pairwise(tokens_of(text))
    return "<=>" in text or any(one.says("distinct") and after.says("from") for one, after in pairs)


def keep_equalities_apart(context: SessionContext) -> None:
    """Let a session add no equality to those of a join."""
    context.remove_optimizer_rule("eliminate_cross_join")
    context.sql("SET datafusion.optimizer.max_passes = '1'")
