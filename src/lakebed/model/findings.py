"""The depth of a verification, and its findings, each with a remedy: values. Pure.

A finding is damage if data cannot be rebuilt, were changed by a store, or give wrong results; otherwise it is a note.
Verifications return findings and do not raise them, so one run reports all. Core types: :class:`Deep`,
:class:`Finding`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lakebed.errors import Code
from lakebed.model.checks import check_flag, check_whole_number, shown

Progress = Callable[[int, int], None]

RESTORE = "restore the object from a copy"


@dataclass(frozen=True, slots=True)
class Deep:
    """How a verification reads data files: all, or random whole files until they have a ``share`` of all bytes.

    Every byte is verified by its digest, at the speed of the disk. If ``rows``, every row is decoded and checked as
    well, which takes a core one second for about 50 MB of small rows.

    The same ``seed`` selects the same files of a version. None selects others each time; the report has the seed that
    was used. ``progress`` is called with the bytes read so far and the bytes to read.

    Raises UsageError for a share that is not above 0 and at most 1, a seed that is not a whole number, or a value of
    ``rows`` that is not True or False.
    """

    share: float = 1.0
    seed: int | None = None
    progress: Progress | None = None
    rows: bool = True

    def __post_init__(self) -> None:
        check_flag("rows", self.rows)
        if not _is_share(self.share):
            raise Code.ARGUMENT_INVALID(
                f"share = {shown(self.share)}: must be a number above 0 and at most 1, such as 0.05"
            )
        check_whole_number("seed", self.seed)
        if self.progress is not None and not callable(self.progress):
            raise Code.ARGUMENT_INVALID(
                f"progress = {shown(self.progress)}: must be a function of two numbers of bytes"
            )


@dataclass(frozen=True, slots=True)
class Finding:
    """A difference found by a verification; without ``damage`` it is harmless.

    A finding about a data file has the ``file``, its ``object`` by URL, its least and greatest key, and its number of
    ``rows`` in the table, which are at risk. All of these are None for other findings.
    """

    kind: str
    damage: bool
    what: str
    remedy: str
    file: str | None = None
    object: str | None = None
    min_key: dict[str, Any] | None = None
    max_key: dict[str, Any] | None = None
    rows: int | None = None


def _is_share(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 1


def damage(kind: str, what: str, remedy: str = RESTORE) -> Finding:
    """Return a finding about data that cannot be rebuilt, that a store changed, or that gives wrong results."""
    return Finding(kind, damage=True, what=what, remedy=remedy)


def note(kind: str, what: str, remedy: str) -> Finding:
    """Return a harmless finding."""
    return Finding(kind, damage=False, what=what, remedy=remedy)
