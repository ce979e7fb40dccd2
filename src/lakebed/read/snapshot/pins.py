"""Pins: objects by which readers retain the files of one version while they read.

A reader writes its pin and then reads the latest state; a collector commits the retired files and then reads the pins.
So one of them always sees the other: either the reader finds the *earliest retained version* above its own and starts
again, or the collector finds the pin and keeps its files. The existence of the files proves nothing: a collector that
did not see the pin may be about to delete them.

A pin is alive while its owner renews it, by the last-modified times of the store; no process's clock is used. A reader
that could not renew for too long (a suspended machine, an unreachable store) gets no error for that, because no file
may be missing. If files are gone it gets NotRetainedError, never an answer that lacks rows. Source: decision 0013;
tests/model/deletion.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from lakebed import clock
from lakebed.errors import Code, Error, StorageError
from lakebed.model.checks import is_whole
from lakebed.model.documents import decode_document, encode_document
from lakebed.model.files import is_pin_name, pin_folder, pin_name
from lakebed.model.version import this_writer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lakebed.model.state.table_state import TableState
    from lakebed.storage.contract import Listed, Storage

TIMEOUT_S = 3600
"""A pin that was not renewed for this long has expired. Not a setting: if readers and collectors disagreed about it,
pinned files would be deleted."""

RENEWALS = 3
"""Renewals per time-out: two may fail or come late, and the pin stays alive."""

ROUNDS_MAX = 8
"""Attempts of a reader whose files were retired before its pin was seen; each one needs another collection."""

RETRIES = 10
"""Attempts between two renewals, if the store fails."""


@dataclass(frozen=True, slots=True)
class Pins:
    """The versions held by live pins, and the objects of expired ones."""

    versions: frozenset[int]
    dead: tuple[str, ...]


def read_pins(storage: Storage, table_id: str, timeout_s: float = TIMEOUT_S) -> Pins:
    """Return the pins of a table, by the last-modified times of the store: a pin older than the time-out has expired.

    One request if there are none. Raises DamagedError or UnsupportedFormatError for a live pin that cannot be read,
    because its version is unknown.
    """
    if not _list_pins(storage, table_id):
        return Pins(frozenset(), ())
    # The clock is read before the list: a delay between the two makes pins look younger than they are, never older.
    before = storage.now() - timedelta(seconds=timeout_s)
    versions: set[int] = set()
    dead: list[str] = []
    for entry in _list_pins(storage, table_id):
        if entry.last_modified < before:
            dead.append(entry.name)
        elif (data := storage.get(entry.name)) is not None:
            versions.add(_decode_pin(data, entry.name, table_id))
    return Pins(frozenset(versions), tuple(dead))


def _list_pins(storage: Storage, table_id: str) -> list[Listed]:
    return [entry for entry in storage.list(pin_folder(table_id)) if is_pin_name(table_id, entry.name)]


class Pin:
    """One reader's pin: rewritten by a thread from the first :meth:`put` to the end of the ``with`` block."""

    def __init__(self, storage: Storage, table_id: str, timeout_s: float = TIMEOUT_S) -> None:
        self._storage = storage
        self._timeout_s = timeout_s
        self._table_id = table_id
        self._name = pin_name(table_id, clock.new_id())
        self._data = b""
        self._released = threading.Event()
        self._writing = threading.Lock()
        self._thread = threading.Thread(target=self._renew, name="lakebed-pin", daemon=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._released.set()
        # After a running renewal, which would write it again. A pin that cannot be deleted expires.
        with self._writing, suppress(StorageError):
            self._storage.delete([self._name])

    def put(self, version: int) -> None:
        """Pin that version instead of the previous one. Raises StorageError."""
        with self._writing:
            self._data = encode_document({"table": self._table_id, "version": version, "reader": this_writer()})
            self._storage.replace(self._name, self._data)
        if not self._thread.is_alive():
            self._thread.start()

    def hold(self, state: TableState, latest: Callable[[], TableState]) -> TableState:
        """Pin the version of that state, or of a later one if its files were retired before the pin existed.

        ``latest`` reads the log. Raises ContentionError if collections keep overtaking.
        """
        for _ in range(ROUNDS_MAX):
            self.put(state.version)
            newest = latest()
            if newest.retains(state.version):
                return state
            state = newest
        raise Code.PIN_CONTENDED(
            f"{ROUNDS_MAX} garbage collections in a row deleted files of the version before they saw the pin; try "
            "again, or raise the setting history_s"
        )

    def _renew(self) -> None:
        renewed = True
        while not self._released.wait(self._timeout_s / (RENEWALS if renewed else RENEWALS * RETRIES)):
            with self._writing:
                if self._released.is_set():
                    return
                try:
                    self._storage.replace(self._name, self._data)
                    renewed = True
                except Error:
                    renewed = False


def _decode_pin(data: bytes, name: str, table_id: str) -> int:
    document: Mapping[str, Any] = decode_document(data, name, "delete the object if no reader uses it")
    version: Any = document.get("version")
    if document.get("table") != table_id or not is_whole(version):
        raise Code.PIN_DAMAGED(f"{name} is not a pin of this table; delete the object if no reader uses it", name=name)
    return int(version)
