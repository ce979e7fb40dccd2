"""Request keys of migrations: they say which versions of which sources a table has.

A migration is committed under a key of its source, of the version there, and of the caller's job id, if there is one.
So a version that was migrated is found by its source, whether a job id was given or not, and by its job id. Pure.

Core types: :class:`MigrationKey`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from msgspec import Struct

if TYPE_CHECKING:
    from lakebed.model.state.table_state import TableState

_KIND = "migrate"


class MigrationKey(Struct, frozen=True):
    """``origin`` identifies the source at all of its versions, ``version`` the rows that were migrated."""

    origin: str
    version: str
    job_id: str | None = None

    @property
    def text(self) -> str:
        """The request key. The job id is last, since it may have colons."""
        parts = (_KIND, self.origin, quote(self.version, safe=""))
        return ":".join(parts if self.job_id is None else (*parts, self.job_id))

    @classmethod
    def of(cls, request_key: str) -> MigrationKey | None:
        """Return the key that a text is; None: it is that of another request."""
        kind, *parts = request_key.split(":", 3)
        if kind != _KIND or len(parts) < 2:
            return None
        return cls(parts[0], unquote(parts[1]), parts[2] if len(parts) > 2 else None)


def versions_migrated(state: TableState, origin: str) -> dict[str, int]:
    """Return for each version of a source that was migrated the version of the table with its rows, the latest last."""
    found = [
        (answer.version, key.version)
        for text, answer in state.requests.items()
        if (key := MigrationKey.of(text)) is not None and key.origin == origin
    ]
    return {version: here for here, version in sorted(found)}


def migrated_as(state: TableState, job_id: str) -> int | None:
    """Return the version at which a migration with the job id was committed; None: none was, or it has expired."""
    for text, answer in state.requests.items():
        key = MigrationKey.of(text)
        if key is not None and key.job_id == job_id:
            return answer.version
    return None
