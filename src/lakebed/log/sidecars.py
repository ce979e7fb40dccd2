"""Sidecars: what would be too long for a line of an entry, in objects of their own that its header names.

They are put before the entry, so that whoever reads the entry finds them, and lie beside the data, wherever the
entries are kept. A name holds the version that the entry was to have, and the digest of the bytes. An entry names side
objects of its own version, or of one a little below: a race was lost since they were put, and nobody put them again.

A crash, a refusal or a lost race partitions sidecars that no entry names. They are known by their versions alone:
only NAMED_WITHIN entries may name one, an entry never changes, and so once all of these are there it is certain. No
clock is asked; whoever stands still for days between the sidecar and the entry loses the race, and nothing else.
Source: docs/decisions/0014.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from lakebed.errors import Code
from lakebed.log.entry import NAMED_WITHIN, Entry, SidecarReference, digest_of, naming
from lakebed.model.files import parse_sidecar_name, sidecar_folder, sidecar_name
from lakebed.storage.retries import put_until_clear

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from lakebed.log.checkpoint import CheckpointLocation
    from lakebed.state.reference_lists import Sidecar

_THREADS = 8
_DIGESTS = re.compile(r"[0-9a-f]{32}")

Done = TypeVar("Done")


class SidecarStore:
    """The sidecars of one log. Puts are for one committer at a time; reads are safe from many threads."""

    def __init__(self, location: CheckpointLocation, identity: str) -> None:
        self._storage = location.storage
        self._prefix = location.prefix
        self._identity = identity
        self._put: dict[str, int] = {}
        self._named: set[str] = set()

    def put(self, sidecars: Mapping[str, Sidecar], version: int) -> tuple[SidecarReference, ...]:
        """Put what entry ``version`` is to claim, by digest; returns what its header has to name.

        What was put for the group before and may be named by this entry is not put again. Raises StorageError:
        nothing may name them.
        """
        if not sidecars:
            return ()
        retained = {
            digest: put for digest, put in self._put.items() if digest in sidecars and 0 <= version - put < NAMED_WITHIN
        }
        names = {digest: sidecar_name(self._prefix, version, digest) for digest in sidecars if digest not in retained}
        _each(lambda digest: self._put_one(names[digest], sidecars[digest].data), names)
        self._put = retained | dict.fromkeys(names, version)
        return tuple(
            SidecarReference(self._put[digest], digest, sidecar.references, len(sidecar.data))
            for digest, sidecar in sidecars.items()
        )

    def read(self, entry: Entry) -> dict[str, bytes]:
        """What an entry names, by digest. Raises DamagedError if one is gone or was changed, StorageError."""
        named = {sidecar.digest: sidecar for sidecar in entry.sidecars}
        with naming(self._identity, entry.version):
            return _each(lambda digest: self._read_one(named[digest]), named)

    def sweep(self, log_start: int, head: int, read: Callable[[int], bytes]) -> int:
        """Delete what no entry above the log start names nor ever will, given the newest version; returns how many.

        ``read`` gives the bytes of an entry, their digest checked. Read are those that may name what is listed, once
        they are all there; about one that it has found named a process reads no more. Raises as ``read`` does, and
        StorageError.
        """
        listed = [found.name for found in self._storage.list(sidecar_folder(self._prefix))]
        self._named = {name for name in self._named.intersection(listed) if _outlives(self._prefix, name, log_start)}
        parsed = {name: parse_sidecar_name(self._prefix, name) for name in listed if name not in self._named}
        settled = {name: put for name, put in parsed.items() if put is not None and put[0] + NAMED_WITHIN <= head + 1}
        digests = {digest for _, digest in settled.values()}
        found: dict[int, set[str]] = {}
        for name, (first, digest) in settled.items():
            for version in range(max(first, log_start + 1), first + NAMED_WITHIN):
                if version not in found:
                    # Header and claim both name it. Only the claim is under a digest, so that either is enough.
                    found[version] = digests.intersection(_DIGESTS.findall(read(version).decode()))
                if digest in found[version]:
                    self._named.add(name)
                    break
        doomed = settled.keys() - self._named
        self._storage.delete(doomed)
        return len(doomed)

    def _put_one(self, name: str, data: bytes) -> None:
        # What exists under this name are these very bytes: it holds their digest.
        put_until_clear(lambda: self._storage.create(name, data), name)

    def _read_one(self, sidecar: SidecarReference) -> bytes:
        name = sidecar_name(self._prefix, sidecar.version, sidecar.digest)
        data = self._storage.get(name)
        if data is None:
            raise Code.SIDECAR_DAMAGED(f"its sidecar {name} is missing; restore the object from a copy", name=name)
        if len(data) != sidecar.size_bytes or digest_of(data) != sidecar.digest:
            raise Code.SIDECAR_DAMAGED(
                f"its sidecar {name} was changed after it was written; restore the object from a copy", name=name
            )
        return data


def _outlives(prefix: str, name: str, log_start: int) -> bool:
    """Whether an entry that is not truncated may name it."""
    put = parse_sidecar_name(prefix, name)
    return put is None or put[0] + NAMED_WITHIN > log_start + 1


def _each(work: Callable[[str], Done], digests: Collection[str]) -> dict[str, Done]:
    """What comes of each, several at a time."""
    if len(digests) < 2:
        return {digest: work(digest) for digest in digests}
    with ThreadPoolExecutor(_THREADS) as threads:
        return dict(zip(digests, threads.map(work, digests), strict=True))
