"""A store on S3, Google Cloud Storage, Azure, or in this process's memory, all through obstore.

* A create is one conditional request (``If-None-Match: *``), never multipart, by a client whose retries are off. An
  answer that cannot be trusted is UNCLEAR. A 409 is UNCLEAR too: S3 gives it where a delete races with the create and
  nothing was stored, although the client calls it "already exists". EXISTS is reported without a further read: the
  log looks whose it is anyway, and puts again if it then finds nothing.
* A replace-if-unchanged is the same with ``If-Match`` (on Google Cloud Storage, the generation). S3's entity tag is a
  digest of the bytes, so bytes that come back count as unchanged.
* Everything else may be repeated without harm (names of data files are fresh), so those clients retry by themselves.
* LastModifiedTimes are whole seconds. That is what ``Last-Modified`` can say; listings of some stores say more, and the
  sweep of orphans compares the two.
* Multipart uploads in parts of 16 MiB, four at a time (64 MiB of memory): S3 allows 10,000 parts, so 156 GiB a file.
  A failed upload is aborted; one whose process died is left to the bucket's lifecycle rules.

obstore is imported on first use: ``import lakebed`` stays light.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Literal

import xxhash

from lakebed.clock import random_token
from lakebed.errors import Code, Error, StorageError
from lakebed.storage.client_errors import explain, explained, is_conflict, is_missing_root, is_unsupported
from lakebed.storage.contract import (
    PROBE,
    Listed,
    PutOutcome,
    Stored,
    Version,
    Versioned,
    check_name,
    check_prefix,
    hidden,
)
from lakebed.storage.digests import DigestingReader
from lakebed.storage.object_size import check_get, check_put

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from obstore import GetResult, ObjectMeta, UpdateVersion

    from lakebed.storage.clients import Clients

PART_BYTES = 16 * 1024 * 1024
_PARTS_AT_ONCE = 4
_FETCH_CHUNK_BYTES = 4 * 1024 * 1024
_DELETE_BATCH = 1000  # the most S3 takes in one request
_LIST_CHUNK = 1000  # one page
_CLOCKS = ".clock"


class ObjectStorage:
    """Objects below a prefix of a bucket or container."""

    def __init__(self, url: str, prefix: str, clients: Clients, *, shared: bool = True) -> None:
        """``prefix`` is the path of the URL, "" or without slashes at its ends."""
        self.url = url
        self.shared = shared
        self.clients = clients
        self._below = f"{prefix}/" if prefix else ""

    def __repr__(self) -> str:
        return f"ObjectStorage({self.url!r})"

    def create(self, name: str, data: bytes) -> PutOutcome:
        """Put create-if-absent, in exactly one request."""
        return self._put_once("create", name, data, "create")

    def replace(self, name: str, data: bytes) -> None:
        """Put over whatever is there; object stores make that atomic."""
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
        """The whole object; None: not there."""
        with explained("read", self.object_url(name)):
            answer = self._answer(name)
            return None if answer is None else bytes(answer.bytes())

    def get_versioned(self, name: str) -> Versioned | None:
        """The whole object, with its entity tag."""
        with explained("read", self.object_url(name)):
            answer = self._answer(name)
            if answer is None:
                return None
            tag = answer.meta["e_tag"]
            if tag is None:
                raise self._unversioned("tells no entity tag of an object")
            return Versioned(bytes(answer.bytes()), Version(tag, answer.meta["version"]))

    def last_modified(self, name: str) -> datetime | None:
        """The object's Last-Modified; None: not there."""
        found = self._head(name)
        return None if found is None else self._whole(found["last_modified"])

    def now(self) -> datetime:
        """The last-modified time of an object put for this purpose: three requests."""
        name = f"{_CLOCKS}/{random_token()}"
        self.replace(name, b"")
        last_modified = self.last_modified(name)
        with suppress(StorageError):  # it weighs nothing, and is not worth failing for
            self.delete([name])
        if last_modified is None:
            raise Code.STORE_UNAVAILABLE(f"{self.object_url(name)} was put, but is missing", transient=True)
        return last_modified

    def send(self, name: str, path: Path) -> Stored:
        """Upload the local file, reading it once for the digests; the local file stays."""
        import obstore

        key, url = self._key(name), self.object_url(name)
        with explained(f"send {path} to", url):
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                reader = DigestingReader(descriptor)
                multipart = os.fstat(descriptor).st_size > PART_BYTES
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
        found = self._head(name)
        if found is None or found["size"] != digests.size_bytes:
            there = "is not there" if found is None else f"has {found['size']} bytes"
            raise Code.TRANSFER_INTERRUPTED(
                f"{url} {there} after {digests.size_bytes} bytes were sent", name=name, transient=True
            )
        return Stored(
            digests.size_bytes,
            digests.digest,
            digests.footer_bytes,
            digests.footer_digest,
            self._whole(found["last_modified"]),
        )

    @contextmanager
    def fetch(self, name: str, *, digest: str | None = None) -> Iterator[Path]:
        """A temporary copy, in a directory that only this user can read."""
        with tempfile.TemporaryDirectory(prefix="lakebed-") as directory:
            path = Path(directory, PurePosixPath(check_name(name)).name)
            found = self._download(name, path)
            if digest is not None and found != digest:
                raise Code.OBJECT_DAMAGED(
                    f"{self.object_url(name)} is damaged: its digest is {found}, {digest} was written; "
                    "restore the object",
                    name=name,
                    expected=digest,
                    found=found,
                )
            yield path

    def delete(self, names: Iterable[str]) -> None:
        """Remove objects, a thousand in a request where the store can."""
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

    def list(self, prefix: str) -> Iterator[Listed]:
        """Pages of a thousand, fetched as they are needed."""
        import obstore

        folder = check_prefix(prefix)
        url = f"{self.url}/{folder}" if folder else self.url
        with explained("list", url):
            pages = iter(obstore.list(self.clients.retrying, self._below + folder or None, chunk_size=_LIST_CHUNK))
        while True:
            with explained("list", url):
                page = next(pages, None)
            if page is None:
                return
            for found in page:
                name = found["path"][len(self._below) :]
                if name and not hidden(name):
                    yield Listed(name, found["size"], self._whole(found["last_modified"]))

    def delete_temporaries(self, prefix: str, before: datetime) -> int:
        """Remove clock and probe objects, which lie at the root; a bucket's rules remove uploads that broke off."""
        import obstore

        if check_prefix(prefix):
            return 0
        listed = []
        for folder in (_CLOCKS, PROBE):
            with explained("list", self.object_url(folder)):
                pages = obstore.list(self.clients.retrying, self._key(folder), chunk_size=_LIST_CHUNK)
                listed += [found for page in pages for found in page]
        old = [f["path"][len(self._below) :] for f in listed if self._whole(f["last_modified"]) < before]
        self.delete(old)
        return len(old)

    def object_url(self, name: str) -> str:
        """``s3://…``, ``gs://…``, ``az://…`` or ``memory://…``."""
        return f"{self.url}/{check_name(name)}"

    def _key(self, name: str) -> str:
        return self._below + check_name(name)

    def _put_once(self, action: str, name: str, data: bytes, mode: Literal["create"] | UpdateVersion) -> PutOutcome:
        """One conditional request, by the client that never repeats one."""
        import obstore
        from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

        key = self._key(name)
        check_put(self.object_url(name), data)
        try:
            obstore.put(self.clients.once, key, data, mode=mode, use_multipart=False)
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
        # The answer has its size in front, and its bytes are not asked for yet.
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
                raise Code.OBJECT_NOT_FOUND(f"no object {name} in {self.url}", name=name) from error
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
        """Whole seconds on a real store; memory keeps its microseconds, where one last-modified time is all there
        is.
        """
        last_modified = last_modified.astimezone(UTC)
        return last_modified.replace(microsecond=0) if self.shared else last_modified
