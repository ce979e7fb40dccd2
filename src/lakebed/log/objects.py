"""A log as objects of a store, one for each entry: needs nothing but the store that holds the data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakebed.files import entry_folder, entry_name, parse_entry_name, parse_side_name
from lakebed.storage import LocalStorage, check_conditional_puts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from lakebed.storage.contract import PutOutcome, Storage


@dataclass(frozen=True, slots=True)
class ObjectLog:
    """A :class:`~lakebed.log.backend.LogBackend` on a store with create-if-absent."""

    storage: Storage
    prefix: str

    def create(self, number: int, data: bytes) -> PutOutcome:
        """Put entry ``number`` if there is none."""
        return self.storage.create(entry_name(self.prefix, number), data)

    def get(self, number: int) -> bytes | None:
        """The bytes of an entry; None: there is none."""
        return self.storage.get(entry_name(self.prefix, number))

    def stamp(self, number: int) -> datetime | None:
        """When the entry was stored; None: there is none."""
        return self.storage.stamp(entry_name(self.prefix, number))

    def known_stamp(self, number: int) -> datetime | None:
        """On local disk a look costs no request; object stores do not say with a create when it was."""
        return self.stamp(number) if isinstance(self.storage, LocalStorage) else None

    def now(self) -> datetime:
        """The store's clock."""
        return self.storage.now()

    def numbers(self) -> Iterator[int]:
        """The numbers of all entries. Objects that are none are passed over."""
        for listed in self.storage.list(entry_folder(self.prefix)):
            number = parse_entry_name(self.prefix, listed.name)
            if number is not None:
                yield number

    def foreign(self) -> Iterator[str]:
        """Objects in the folder that are neither entries nor their side objects."""
        for listed in self.storage.list(entry_folder(self.prefix)):
            if parse_entry_name(self.prefix, listed.name) is None and parse_side_name(self.prefix, listed.name) is None:
                yield listed.name


@dataclass(frozen=True, slots=True)
class ObjectLogs:
    """A :class:`~lakebed.log.backend.LogPlace`: the logs below one root URL."""

    storage: Storage

    def open(self, prefix: str) -> ObjectLog:
        """The log of that prefix."""
        return ObjectLog(self.storage, prefix)

    def check(self) -> None:
        """Raise UnsafeStoreError if the store ignores create-if-absent."""
        check_conditional_puts(self.storage)
