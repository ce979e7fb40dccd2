"""Refuses the clauses that the parser of DataFusion 55 accepts and its planner leaves out. Pure.

Such a statement would be answered as if the clause were not there: all rows for a sample or a condition of PREWHERE, no
subtotals for WITH ROLLUP. Clauses that change no row, such as FOR UPDATE, are left as they are.

Rules. Words in quotes, texts and comments are no clauses, nor are names of WITH queries. Errors: UsageError.
"""

from __future__ import annotations

import re

from lakebed.engine.tokens import tokens_of
from lakebed.errors import Code

_WORDS = re.compile(r"sample|prewhere|connect|start|rollup|cube|totals|partition|ilike", re.IGNORECASE)

_CLAUSES = {
    ("tablesample",): "use LIMIT, or Table.sample",
    ("prewhere",): "write WHERE",
    ("connect", "by"): "write WITH RECURSIVE",
    ("start", "with"): "write WITH RECURSIVE",
    ("with", "rollup"): "write GROUP BY ROLLUP (…)",
    ("with", "cube"): "write GROUP BY CUBE (…)",
    ("with", "totals"): "write GROUP BY ROLLUP (…)",
    ("sample", "("): "use LIMIT, or Table.sample",
    ("partition", "("): "put a condition on the key into WHERE",
    ("*", "ilike"): "name the columns",
}
"""What to write instead of each clause."""

_BEFORE_NAMES = frozenset({"with", "recursive", "as", ","})
_AFTER_NAMES = frozenset({"as", "("})


def check_clauses(text: str) -> None:
    """Raise UsageError for a clause that the engine would leave out."""
    if _WORDS.search(text) is None:
        return
    words = ["", *(token.text.lower() for token in tokens_of(text)), "", ""]
    for before, word, after, beyond in zip(words, words[1:], words[2:], words[3:], strict=False):
        clause = (word,) if (word,) in _CLAUSES else (word, after)
        is_name = beyond in _AFTER_NAMES if word == "with" else before in _BEFORE_NAMES and after == "("
        if clause in _CLAUSES and not is_name:
            written = " ".join(clause).upper()
            raise Code.SQL_INVALID(
                f"{written} is not supported: {_CLAUSES[clause]}. A name of this form is written in double quotes"
            )
