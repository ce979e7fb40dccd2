"""Translates the engine's messages about types that it cannot compare into the types of tables. Pure.

The engine calls a UUID ``FixedSizeBinary(16)``, and reports a range over values that it cannot compare as an internal
bug.
"""

from __future__ import annotations

import re

_REPORT = re.compile(r"\.?\s*This issue was likely caused by a bug in DataFusion's code\..*", re.DOTALL)
_RULE = re.compile(r"^type_coercion caused by ")
_KIND = re.compile(
    r"(?:Internal error|Error during planning): (?=Failed to coerce|Cannot infer|Can not find|There isn't)"
)
_BYTES = "FixedSizeBinary("
_ADVICE = (
    "; write bytes as X'…' with two hex digits each, and a uuid as text such as '6f9619ff-8b86-d011-b42d-00c04fc964ff'"
)


def plain_reason(text: str) -> str:
    """Return the message without the request to report a bug, and with how to write values compared with bytes."""
    plain = _KIND.sub("", _RULE.sub("", _REPORT.sub("", text)))
    return plain + _ADVICE if _BYTES in plain and "Utf8" in plain else plain
