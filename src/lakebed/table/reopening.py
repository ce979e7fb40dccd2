"""Handles in other processes: instances, tables and snapshots are pickled as their locations, and reopened there.

A pickle has the URL of the instance, the storage options and the commit service, for a table also its id, and for a
snapshot its version. Storage options and tokens are in plain text, so a pickle is a secret. An
instance that was opened without options has none in its pickle either: each process then uses the credentials of its
own environment. A process opens each address once, however many handles it receives.

A snapshot is read again at its version. A pickle pins nothing: if the version is no longer retained, unpickling raises
NotRetainedError, as :meth:`Table.at` does.

Core types. :class:`InstanceAddress`. Errors. Those of :func:`lakebed.open` and :meth:`Table.at`.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from lakebed.errors import Code, NotFoundError
from lakebed.storage import connect

if TYPE_CHECKING:
    from lakebed.read.snapshot.snapshot import Snapshot
    from lakebed.table.instance import Instance
    from lakebed.table.table import Table


@dataclass(frozen=True, slots=True)
class InstanceAddress:
    """The arguments with which :func:`lakebed.open` opens an instance again."""

    url: str
    log_url: str | None
    commit_via: str | None
    storage_options: tuple[tuple[str, str], ...] = field(repr=False)
    token: str | None = field(repr=False)

    def instance(self) -> Instance:
        """Return the instance, which this process opens once."""
        # Not that of the process which forked this one: its locks may be held by threads that do not exist here.
        key = os.getpid(), self
        with _opening:
            found = _opened.get(key)
            if found is None:
                found = _opened[key] = _open(self)
            return found

    def table(self, table_id: str) -> Table:
        """Return the table with an id. Raises NotFoundError if it was dropped."""
        return self.instance().named(table_id)

    def snapshot(self, table_id: str, version: int) -> Snapshot:
        """Return a table at a version. Raises NotRetainedError if the version is gone."""
        return self.table(table_id).at(version=version)


_opened: WeakValueDictionary[tuple[int, InstanceAddress], Instance] = WeakValueDictionary()
_opening = threading.Lock()


def _open(address: InstanceAddress) -> Instance:
    from lakebed.table.opening import open as open_instance

    try:
        return open_instance(
            address.url,
            storage_options=dict(address.storage_options) or None,
            log_url=address.log_url,
            commit_via=address.commit_via,
            token=address.token,
        )
    except NotFoundError as error:
        if connect(address.url, dict(address.storage_options)).locality.shared:
            raise
        raise Code.INSTANCE_IN_MEMORY(
            f"{address.url} is in the memory of the process that made it, and cannot be opened in another: use a path "
            "or a store"
        ) from error
