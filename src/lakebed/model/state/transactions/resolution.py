"""The results of resolving a proposal that give no transaction, and the description of a transaction. Values.

A refusal is a value and not an exception, since losing a race is not an error: the committer reports it once the state
that refused it is committed. TooOld and TooManyRuns are outcomes of their own, since callers react differently to them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from lakebed.errors import Code, Facts

if TYPE_CHECKING:
    from lakebed.model.state.table_state import TableState


class Rejected(Struct, frozen=True):
    """The state does not allow the proposal. Programs test ``code`` and read ``facts``; ``reason`` is for people."""

    code: Code
    reason: str
    facts: Facts = msgspec.field(default_factory=Facts)


def refused_change(state: TableState) -> Rejected | None:
    """Return why only a feed may change the table; None for a table that is not a view."""
    if state.view is None:
        return None
    text = f"the table is a view of table {state.view.table}, and changes only when it is refreshed"
    return Rejected(Code.VIEW_READ_ONLY, text)


class TooOld(Struct, frozen=True, tag="too_old"):
    """First proposed below the request watermark, and not on record.

    An earlier proposal of the request may be in the log, with its key dropped from the state. So it is unknown whether
    the request was committed; this proposal was not. (Decision 0011.)
    """

    base_version: int
    request_watermark: int


class TooManyRuns(Struct, frozen=True, tag="too_many_runs"):
    """A partition that the files reach has more runs than ``runs_max``. ``job_open``: whether it has an open job."""

    partition: int
    runs: int
    runs_max: int
    job_open: bool


class Repeated(Struct, frozen=True):
    """The request was committed before, at ``version``; the proposal changes nothing."""

    version: int


Refusal = Rejected | Repeated | TooOld | TooManyRuns


class Description(Struct, frozen=True):
    """What a transaction reports for the history. ``None``: unknown without the earlier state.

    ``bytes_added`` counts ``files_added`` files. A split moves references and drops none permanently.
    """

    detail: str = ""
    rows_added: int = 0
    rows_removed: int | None = 0
    files_added: int = 0
    references_dropped: int | None = 0
    bytes_added: int = 0
    request_key: str | None = None
    job: str | None = None
