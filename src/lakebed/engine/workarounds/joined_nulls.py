"""Finds statements in which DataFusion 55 would let joins lose their nulls. Pure.

Its optimizer makes inner joins that follow each other anew from all their equalities, and takes IS NOT DISTINCT FROM
for one: pairs of nulls are lost. Without the rule that does this, tables that only WHERE joins may be multiplied first,
which costs time.

Rule: too many statements may be found, never too few.
"""

from __future__ import annotations

import re
from itertools import pairwise

from lakebed.engine.tokens import tokens_of

RULE = "eliminate_cross_join"
_MARKS = re.compile(r"\bdistinct\b|<=>", re.IGNORECASE)


def joins_nulls(text: str) -> bool:
    """Return whether a statement compares values so that nulls are equal."""
    if _MARKS.search(text) is None:
        return False
    pairs = pairwise(tokens_of(text))
    return "<=>" in text or any(one.says("distinct") and after.says("from") for one, after in pairs)
