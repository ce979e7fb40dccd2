"""The compared systems: a module each, imported only in the environment of that system."""

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
    """The peer lacks this feature; the message describes its alternative."""


class Peer(ABC):
    """One table of one system in one folder, with the defaults of that system unless stated otherwise."""

    packages: ClassVar[tuple[str, ...]]
    """The packages whose versions are shown."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @abstractmethod
    def create(self) -> None:
        """Create the table and hold it open, for writing and reading."""

    def create_for_many(self) -> None:
        """Create the table so that several processes may write to it at once."""
        self.create()

    @abstractmethod
    def open(self) -> None:
        """Open the existing table."""

    @abstractmethod
    def append(self, rows: pa.Table) -> None:
        """Add rows in one commit, which is visible to other processes on return."""

    def refresh(self) -> None:  # noqa: B027 - most look by themselves
        """Make commits since the opening of the table visible; does nothing if every read looks for them."""

    @abstractmethod
    def get(self, key: str) -> pa.Table:
        """Return all columns of the rows of a key."""

    @abstractmethod
    def range(self, min: str, max: str) -> pa.Table:
        """Return all columns of the rows of ``[min, max)``, in key order."""

    def upsert(self, rows: pa.Table) -> None:
        """Replace the rows with the same keys; add rows whose keys are new."""
        raise NotOffered("no upsert")

    def delete(self, min: str, max: str) -> None:
        """Delete the rows of ``[min, max)`` in one commit."""
        raise NotOffered("no delete")

    def maintain(self) -> None:
        """Run the system's maintenance, as its users would to make lookups fast again."""
        raise NotOffered("no maintenance from Python")

    @abstractmethod
    def count(self) -> int:
        """Return the number of rows."""

    def close(self) -> None:  # noqa: B027 - most hold nothing
        """Close the table."""


def peer_of(name: str, folder: Path) -> Peer:
    """Return the system of that name over a folder."""
    made: Peer = import_module(f"benchmarks.lookup_under_ingest.peers.{MODULES[name]}").PEER(folder)
    return made


def versions_of(peer: Peer) -> dict[str, str]:
    """Return the versions of the packages of the peer."""
    found = {}
    for package in peer.packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = import_module(package).__version__
    return found
