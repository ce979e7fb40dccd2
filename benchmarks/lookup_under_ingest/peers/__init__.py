"""The systems that are compared: a module each, imported in the environment of that system alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import ClassVar

import pyarrow as pa

MODULES = {
    "lakebed": "lakebed_itself",
    "delta-rs": "delta_rs",
    "pyiceberg": "iceberg",
    "lancedb": "lance",
    "ducklake": "ducklake",
    "pypaimon": "paimon",
    "slatedb": "slate",
}


class NotOffered(Exception):
    """The peer has no such thing; the message says what it has instead."""


class Peer(ABC):
    """One table of one system in one folder, with the defaults of that system where nothing else is said."""

    packages: ClassVar[tuple[str, ...]]
    """Whose versions are shown."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @abstractmethod
    def create(self) -> None:
        """Make the table and hold it open, to write and to read."""

    def create_for_many(self) -> None:
        """Make the table so that several processes may write to it at once."""
        self.create()

    @abstractmethod
    def open(self) -> None:
        """Open the table that is there."""

    @abstractmethod
    def append(self, rows: pa.Table) -> None:
        """Add rows in one commit, which other processes see when this returns."""

    def refresh(self) -> None:  # noqa: B027 - most look by themselves
        """See what was committed since the table was opened; nothing to do where every read looks."""

    @abstractmethod
    def get(self, key: str) -> pa.Table:
        """All columns of the rows of a key."""

    @abstractmethod
    def range(self, min: str, max: str) -> pa.Table:
        """All columns of the rows of ``[min, max)``, in key order."""

    def upsert(self, rows: pa.Table) -> None:
        """Put rows in place of those with the same keys, or beside them where there are none."""
        raise NotOffered("no upsert")

    def delete(self, min: str, max: str) -> None:
        """Delete the rows of ``[min, max)`` in one commit."""
        raise NotOffered("no delete")

    def maintain(self) -> None:
        """Have the table put in order, as the system's users would to make its lookups fast again."""
        raise NotOffered("no maintenance from Python")

    @abstractmethod
    def count(self) -> int:
        """How many rows there are."""

    def close(self) -> None:  # noqa: B027 - most hold nothing
        """Let the table go."""


def peer_of(name: str, folder: Path) -> Peer:
    """The system of that name over a folder."""
    made: Peer = import_module(f"benchmarks.lookup_under_ingest.peers.{MODULES[name]}").PEER(folder)
    return made


def versions_of(peer: Peer) -> dict[str, str]:
    """The versions of the packages that make the peer."""
    found = {}
    for package in peer.packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = import_module(package).__version__
    return found
