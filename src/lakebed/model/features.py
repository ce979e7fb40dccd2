"""The features of the format that a log requires, and of which programs. Pure.

A document names in its header the features without which it cannot be read (:mod:`lakebed.model.documents`). A log also
requires features of the programs that use it, as a part of its state: of readers, of writers, or of collectors alone. A
writer reads, and a collector reads and writes, so each must know what those before it must know. This Lakebed requires
none of its own accord: the requirement is there so that a later one can add to the format without shutting out the
readers of today. Source: docs/format.md, section 5.2; decision 0089.
"""

from __future__ import annotations

from collections.abc import Mapping

from lakebed.errors import Code
from lakebed.model.documents import FEATURES

READERS, WRITERS, COLLECTORS = "readers", "writers", "collectors"

_EXEMPT: Mapping[str, frozenset[str]] = {
    READERS: frozenset({WRITERS, COLLECTORS}),
    WRITERS: frozenset({COLLECTORS}),
    COLLECTORS: frozenset(),
}
"""The requirements that do not concern a program. One of a kind that is not known here concerns every program."""

RequiredFeatures = Mapping[str, str]
"""Features by name, with the programs that must know them."""


def unknown_features(required: RequiredFeatures, program: str) -> list[str]:
    """Return the features that a program, one of the three kinds, must know and this Lakebed does not, sorted."""
    exempt = _EXEMPT[program]
    return sorted(name for name, of in required.items() if of not in exempt and name not in FEATURES)


def missing_features(required: RequiredFeatures, program: str) -> str | None:
    """Return why this Lakebed must not be such a program, as text; None if it may be."""
    unknown = unknown_features(required, program)
    if not unknown:
        return None
    return (
        f"{program} must know {', '.join(unknown)}, a feature of the storage format that this Lakebed does not "
        "know; nothing was changed: upgrade"
    )


def require_features(required: RequiredFeatures, program: str, what: str) -> None:
    """Raise UnsupportedFormatError if this Lakebed must not be such a program; ``what`` begins the message."""
    if missing := missing_features(required, program):
        raise Code.FORMAT_TOO_NEW(f"{what}: {missing}")
