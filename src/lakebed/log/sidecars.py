"""Sidecars: lists that are too long for a line of an entry, in separate objects that the entry's header names.

They are put before the entry, so that every reader of the entry finds them, and are beside the data, wherever the log
is. The name of a sidecar has the intended version of the entry, and the digest of the bytes. An entry names sidecars of
its own version or of a slightly lower one: after a lost race, a writer reuses the sidecars that it has put.

A crash, a rejection or a lost race leaves sidecars that no entry names. Only NAMED_WITHIN entries may name a sidecar,
and entries never change, so once all of these exist it is certain that none names it. This needs no clock: a writer
that stops for days between the sidecar and the entry loses the race, and its sidecar.
Source: docs/decisions/0014.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lakebed.errors import Code
from lakebed.log.checkpoint import in_parallel
from lakebed.log.entry import NAMED_WITHIN, Entry, SidecarReference, digest_of, naming
from lakebed.model.files import parse_sidecar_name, sidecar_folder, sidecar_name
from lakebed.storage.retries import create_until_clear

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lakebed.log.checkpoint import CheckpointLocation
    from lakebed.model.state.reference_lists import Sidecar

_DIGESTS = re.compile(r"[0-9a-f]{32}")


class SidecarStore:
    """The sidecars of one log. Puts are for one committer at a time; reads are safe from many threads."""

    def __init__(self, location: CheckpointLocation, identity: str) -> None:
        self._storage = location.storage
        self._prefix = location.prefix
        self._identity = identity
        self._put: dict[str, int] = {}
        self._named: set[str] = set()

    def put(self, sidecars: Mapping[str, Sidecar], version: int) -> tuple[SidecarReference, ...]:
        """Put the sidecars of entry ``version``, by digest; return the references for its header.

        A sidecar that an earlier attempt has put, and that this entry may name, is not put again. Raises StorageError;
        then no entry may name them.
        """
        if not sidecars:
            return ()
        retained = {
            digest: put for digest, put in self._put.items() if digest in sidecars and 0 <= version - put < NAMED_WITHIN
        }
        names = {digest: sidecar_name(self._prefix, version, digest) for digest in sidecars if digest not in retained}
        # The name contains the digest, so an object that exists has these bytes.
        in_parallel(lambda one: create_until_clear(self._storage, one[1], sidecars[one[0]].data), list(names.items()))
        self._put = retained | dict.fromkeys(names, version)
        return tuple(
            SidecarReference(self._put[digest], digest, sidecar.references, len(sidecar.data))
            for digest, sidecar in sidecars.items()
        )

    def read(self, entry: Entry) -> dict[str, bytes]:
        """Return the sidecars of an entry, by digest.

        Raises DamagedError if one is missing or was changed, StorageError.
        """
        with naming(self._identity, entry.version):
            found = in_parallel(self._read_one, entry.sidecars)
        return {sidecar.digest: data for sidecar, data in zip(entry.sidecars, found, strict=True)}

    def delete_unnamed(self, log_start: int, head: int, read: Callable[[int], bytes]) -> int:
        """Delete the sidecars that no entry above the log start names or may yet name; return how many.

        ``head`` is the latest version. ``read`` returns the verified bytes of an entry; it is called for the entries
        that may name a listed sidecar, if all of them exist. A sidecar that was found to be named is not looked for
        again by this process. Raises as ``read``, and StorageError.
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
                    found[version] = digests.intersection(_DIGESTS.findall(read(version).decode()))
                if digest in found[version]:
                    self._named.add(name)
                    break
        # In the order of the listing: a set has another in each process, and a simulation could not be replayed.
        doomed = [name for name in settled if name not in self._named]
        self._storage.delete(doomed)
        return len(doomed)

    def _read_one(self, sidecar: SidecarReference) -> bytes:
        name, key = sidecar_name(self._prefix, sidecar.version, sidecar.digest), f"sidecar/{sidecar.digest}"
        cache = self._storage.cache
        if cache is not None and (kept := cache.get(key)) is not None:
            return kept
        data = self._storage.get(name)
        if data is None:
            raise Code.SIDECAR_DAMAGED(f"its sidecar {name} is missing; restore the object from a copy", name=name)
        if len(data) != sidecar.size_bytes or digest_of(data) != sidecar.digest:
            raise Code.SIDECAR_DAMAGED(
                f"its sidecar {name} was changed after it was written; restore the object from a copy", name=name
            )
        if cache is not None:
            cache.keep(key, data)
        return data


def _outlives(prefix: str, name: str, log_start: int) -> bool:
    """Return whether an entry above the log start may name the sidecar."""
    put = parse_sidecar_name(prefix, name)
    return put is None or put[0] + NAMED_WITHIN > log_start + 1
