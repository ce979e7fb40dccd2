"""The errors for entries that a log has lost: one that is missing, and a log that went back.

A remedy must do no harm if it is followed on a healthy log: it never says to overwrite, delete or skip anything that is
there. Pure. Source: docs/operations.md.
"""

from __future__ import annotations

from lakebed.errors import Code, Error


def gone(log: str, version: int) -> Error:
    """Return the error for an entry that should exist and does not."""
    return Code.ENTRY_MISSING(
        f"entry {version} of {log} is missing from the log; put back this entry alone, unchanged, from a copy (a "
        "backup, an earlier version of the object), and overwrite nothing that is there: see docs/operations.md",
        log=log,
        version=version,
    )


def replaced(log: str, version: int) -> Error:
    """Return the error for an entry that was in the log and is not, or is another one now."""
    return Code.LOG_WENT_BACK(
        f"the log of {log} went back: entry {version}, which was in it, is missing or is another one now (after a "
        "fail-over that lost commits, or a restored backup). Put back the lost entries from a copy, or give them up as "
        "docs/operations.md says; nothing was changed",
        log=log,
        version=version,
    )
