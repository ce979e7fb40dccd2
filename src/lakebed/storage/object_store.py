"""A store on S3, Google Cloud Storage, Azure, or in this process's memory, through obstore.

* A create is one conditional request (``If-None-Match: *``), never multipart, by a client that does not retry. An
  unreliable answer is UNCLEAR. So is a 409, which the client calls "already exists": S3 gives it to a create that races
  with a delete, and has stored nothing. EXISTS is reported without a further read: the log reads the object anyway, and
  puts again if there is none.
* A replace-if-unchanged is such a request with ``If-Match`` (on Google Cloud Storage, the generation). S3's entity tag
  is a digest of the bytes, so equal bytes count as unchanged.
* All other requests are idempotent (names of data files are new), and their client retries.
* Last-modified times are whole seconds, the resolution of ``Last-Modified``. Listings of some stores have a finer one,
  and the deletion of orphans compares the two.
* Multipart uploads have parts of 16 MiB, four at a time (64 MiB of memory): S3 allows 10,000 parts, so 156 GiB a file.
  A failed upload is aborted; the bucket's lifecycle rules remove one whose process died.

obstore is imported on first use: ``import lakebed`` stays light.
"""

from __future__ import annotations

import os
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Literal

import xxhash

from lakebed.clock import random_token
from lakebed.errors import Code, Error, StorageError
from lakebed.storage import telemetry
from lakebed.storage.client_errors import SENT, explain, explained, is_conflict, is_missing_root, is_unsupported
from lakebed.storage.clients import listed_objects
from lakebed.storage.contract import (
    PROBE,
    Listed,
    Locality,
    PutOutcome,
    Stored,
    Version,
    Versioned,
    check_digest,
    check_get,
    check_name,
    check_prefix,
    check_put,
    hidden,
)
from lakebed.storage.digests import DigestingReader
from lakebed.storage.disk_space import scratch_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from obstore import GetResult, ObjectMeta, UpdateVersion

    from lakebed.storage.clients import Clients
    from lakebed.storage.disk_cache import DiskCache

PART_BYTES = 16 * 1024 * 1024
_PARTS_AT_ONCE = 4
_GAP_BYTES = 1024 * 1024
"""Ranges of an object with at most such a gap between them are read by one request: obstore's default."""
_FETCH_CHUNK_BYTES = 4 * 1024 * 1024
_DELETE_BATCH = 1000  # the most that S3 accepts in one request
_CLOCKS = ".clock"


class ObjectStorage:
    """Objects below a prefix of a bucket or container."""

    folder = None

    def __init__(
        self,
        url: str,
        prefix: str,
        clients: Clients,
        *,
        locality: Locality = Locality.REMOTE,
        cache: DiskCache | None = None,
    ) -> None:
        """``prefix`` is the path of the URL, "" or without slashes at its ends."""
        self.url = url
        self.locality = locality
        self.cache = cache
        self.clients = clients
        self._below = f"{prefix}/" if prefix else ""

    def __repr__(self) -> str:
        return f"ObjectStorage({self.url!r})"

    def create(self, name: str, data: bytes) -> PutOutcome:
        """Put create-if-absent, in exactly one request."""
        return self._put_once("create", name, data, "create")

    def replace(self, name: str, data: bytes) -> None:
        """Put, also over an existing object; object stores do this atomically."""
        import obstore

        check_put(self.object_url(name), data)
        with explained("replace", self.object_url(name)):
            obstore.put(self.clients.retrying, self._key(name), data, use_multipart=False)

    def replace_if(self, name: str, version: Version, data: bytes) -> PutOutcome:
        """Put over that version (``If-Match`` or a generation), in exactly one request."""
        mode: UpdateVersion = {"e_tag": version.tag}
        if version.generation is not None:
            mode["version"] = version.generation
        return self._put_once("replace", name, data, mode)

    def get(self, name: str) -> bytes | None:
        """Return the whole object; None if it does not exist."""
        with explained("read", self.object_url(name)):
            answer = self._answer(name)
            return None if answer is None else bytes(answer.bytes())

    def get_versioned(self, name: str) -> Versioned | None:
        """Return the whole object, with its entity tag."""
        with explained("read", self.object_url(name)):
            answer = self._answer(name)
            if answer is None:
                return None
            tag = answer.meta["e_tag"]
            if tag is None:
                raise self._unversioned("reports no entity tags")
            return Versioned(bytes(answer.bytes()), Version(tag, answer.meta["version"]))

    def read_ranges(self, name: str, byte_ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Read parts of an object, each an (offset, length), in parallel; parts that are close together share a
        request.

        Raises NotFoundError if there is no such object, StorageError if the store failed, OSError if the object is too
        short.
        """
        import obstore

        starts, lengths = zip(*byte_ranges, strict=True)
        with explained("read", self.object_url(name), _coalesced(byte_ranges)):
            try:
                read = obstore.get_ranges(self.clients.retrying, self._key(name), starts=starts, lengths=lengths)
            except FileNotFoundError as error:
                if is_missing_root(error):
                    raise
                raise self._missing(name) from error
        contents = [bytes(part) for part in read]
        if [len(part) for part in contents] != list(lengths):
            raise OSError(f"{self.object_url(name)} ended before the byte ranges {list(byte_ranges)}")
        return contents

    def last_modified(self, name: str) -> datetime | None:
        """Return the object's Last-Modified; None if it does not exist."""
        meta = self._head(name)
        return None if meta is None else self._whole(meta["last_modified"])

    def now(self) -> datetime:
        """Return the last-modified time of an object put for this purpose: three requests."""
        name = f"{_CLOCKS}/{random_token()}"
        self.replace(name, b"")
        last_modified = self.last_modified(name)
        with suppress(StorageError):  # an empty object, which delete_temporaries removes later
            self.delete([name])
        if last_modified is None:
            raise Code.STORE_UNAVAILABLE(f"{self.object_url(name)} was put, but is missing", transient=True)
        return last_modified

    def send(self, name: str, path: Path) -> Stored:
        """Upload the local file, reading it once for the digests; the local file stays."""
        import obstore

        key, url = self._key(name), self.object_url(name)
        size_bytes = path.stat().st_size
        multipart = size_bytes > PART_BYTES
        # An upload in parts is begun and completed by a request each.
        requests = 2 + -(-size_bytes // PART_BYTES) if multipart else 1
        with explained(f"send {path} to", url, requests):
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                reader = DigestingReader(descriptor)
                source: Any = reader.chunks() if multipart else b"".join(reader.chunks())
                obstore.put(
                    self.clients.retrying,
                    key,
                    source,
                    use_multipart=multipart,
                    chunk_size=PART_BYTES,
                    max_concurrency=_PARTS_AT_ONCE,
                )
            finally:
                os.close(descriptor)
        digests = reader.result()
        meta = self._head(name)
        if meta is None or meta["size"] != digests.size_bytes:
            sent = "does not exist" if meta is None else f"has {meta['size']} bytes"
            raise Code.TRANSFER_INTERRUPTED(
                f"{url} {sent} after {digests.size_bytes} bytes were sent", name=name, transient=True
            )
        return Stored(
            digests.size_bytes,
            digests.digest,
            digests.footer_bytes,
            digests.footer_digest,
            self._whole(meta["last_modified"]),
        )

    @contextmanager
    def fetch(self, name: str, *, digest: str | None = None) -> Iterator[Path]:
        """A temporary copy, in a directory that only this user can read."""
        with scratch_folder("fetch") as folder:
            path = folder / PurePosixPath(check_name(name)).name
            check_digest(self.object_url(name), name, digest, self._download(name, path))
            yield path

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects, a thousand a request if the store supports it."""
        import obstore

        keys = [self._key(name) for name in names]
        for start in range(0, len(keys), _DELETE_BATCH):
            batch = keys[start : start + _DELETE_BATCH]
            with explained(f"delete {len(batch)} objects below", self.url):
                try:
                    obstore.delete(self.clients.retrying, batch)
                except FileNotFoundError as error:
                    if is_missing_root(error):
                        raise
                    for key in batch:
                        with suppress(FileNotFoundError):
                            obstore.delete(self.clients.retrying, key)

    def list(self, prefix: str, after: str = "") -> Iterator[Listed]:
        """List in pages of a thousand, fetched as they are read."""
        listed = self._listed(check_prefix(prefix), self._key(after) if after else None)
        return (entry for entry in listed if entry.name > after and not hidden(entry.name))

    def temporaries(self, prefix: str) -> Iterator[Listed]:
        """Return none: a store does not list incomplete uploads."""
        check_prefix(prefix)
        return iter(())

    def delete_temporaries(self, prefix: str, before: datetime) -> int:
        """Delete clock and probe objects, which lie at the root; the bucket's rules remove interrupted uploads."""
        if check_prefix(prefix):
            return 0
        old = [
            entry.name for folder in (_CLOCKS, PROBE) for entry in self._listed(folder) if entry.last_modified < before
        ]
        self.delete(old)
        return len(old)

    def object_url(self, name: str) -> str:
        """Return ``s3://…``, ``gs://…``, ``az://…`` or ``memory://…``."""
        return f"{self.url}/{check_name(name)}"

    def _key(self, name: str) -> str:
        return self._below + check_name(name)

    def _listed(self, folder: str, offset: str | None = None) -> Iterator[Listed]:
        url = f"{self.url}/{folder}" if folder else self.url
        for meta in listed_objects(self.clients, self._below + folder, url, offset):
            if name := meta["path"][len(self._below) :]:
                yield Listed(name, meta["size"], self._whole(meta["last_modified"]))

    def _missing(self, name: str) -> Error:
        return Code.OBJECT_NOT_FOUND(f"no object {name} in {self.url}", name=name)

    def _put_once(self, action: str, name: str, data: bytes, mode: Literal["create"] | UpdateVersion) -> PutOutcome:
        """Send one conditional request, by the client that does not retry."""
        import obstore
        from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

        key = self._key(name)
        check_put(self.object_url(name), data)
        SENT.add(action)
        try:
            with telemetry.span("storage_request", operation=action, outcome="error") as span:
                obstore.put(self.clients.once, key, data, mode=mode, use_multipart=False)
                span.labels["outcome"] = "ok"
        except (AlreadyExistsError, PreconditionError) as error:
            return PutOutcome.UNCLEAR if is_conflict(error) else PutOutcome.EXISTS
        except (BaseError, OSError, NotImplementedError) as error:
            if mode != "create" and isinstance(error, FileNotFoundError) and not is_missing_root(error):
                return PutOutcome.EXISTS
            if mode != "create" and is_unsupported(error):
                raise self._unversioned("cannot put an object over one version of it and no other") from error
            failure = explain(error, action, self.object_url(name))
            if failure.transient:
                return PutOutcome.UNCLEAR
            raise failure from error
        return PutOutcome.CREATED

    def _unversioned(self, fault: str) -> Error:
        return Code.TRUNCATION_UNSUPPORTED(
            f"{self.url} {fault}, so the log in it cannot be truncated: keep it whole, or use a store that honours "
            "If-Match (S3, GCS, Azure, recent MinIO or Ceph)",
            url=self.url,
            transient=False,
        )

    def _answer(self, name: str) -> GetResult | None:
        import obstore

        try:
            answer = obstore.get(self.clients.retrying, self._key(name))
        except FileNotFoundError as error:
            if is_missing_root(error):
                raise
            return None
        # The answer begins with the size; the body is not read yet.
        check_get(self.object_url(name), answer.meta["size"])
        return answer

    def _head(self, name: str) -> ObjectMeta | None:
        import obstore

        with explained("stat", self.object_url(name)):
            try:
                return obstore.head(self.clients.retrying, self._key(name))
            except FileNotFoundError as error:
                if is_missing_root(error):
                    raise
                return None

    def _download(self, name: str, path: Path) -> str:
        """Write the object to the path; returns its digest."""
        import obstore

        whole, size_bytes = xxhash.xxh3_128(), 0
        with explained("fetch", self.object_url(name)):
            try:
                answer = obstore.get(self.clients.retrying, self._key(name))
            except FileNotFoundError as error:
                if is_missing_root(error):
                    raise
                raise self._missing(name) from error
            with closing(path.open("wb")) as file:
                for chunk in answer.stream(min_chunk_size=_FETCH_CHUNK_BYTES):
                    whole.update(chunk)
                    size_bytes += file.write(chunk)
        if size_bytes != answer.meta["size"]:
            raise Code.TRANSFER_INTERRUPTED(
                f"{self.object_url(name)} ended after {size_bytes} of {answer.meta['size']} bytes",
                name=name,
                transient=True,
            )
        return whole.hexdigest()

    def _whole(self, last_modified: datetime) -> datetime:
        """Round to whole seconds on a real store. Memory has a single clock, so it keeps microseconds."""
        last_modified = last_modified.astimezone(UTC)
        return last_modified.replace(microsecond=0) if self.locality.shared else last_modified


def _coalesced(byte_ranges: Sequence[tuple[int, int]]) -> int:
    """Return how many requests read the ranges, each an (offset, length)."""
    requests, end = 0, None
    for offset, length in sorted(byte_ranges):
        if end is None or offset > end + _GAP_BYTES:
            requests, end = requests + 1, offset + length
        end = max(end, offset + length)
    return requests
