"""Tests whether a store supports create-if-absent and replace-if-unchanged.

Some S3-compatible servers, gateways and proxies accept the condition and ignore it: both of two racing writers get
CREATED, and one commit is lost. So a store is tested before use: when an instance is created, and when a service
starts. The test also detects a cache in front of the store that returns old bytes or an old "not found".

Replace-if-unchanged is tested when a log is first truncated: a store without it is safe, and keeps its whole log.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from lakebed.clock import random_token
from lakebed.errors import Code, StorageError, UnsafeStoreError
from lakebed.storage.contract import PROBE, PutOutcome
from lakebed.storage.retries import put_until_clear

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebed.storage.contract import Storage


def check_conditional_puts(storage: Storage) -> None:
    """Read, create, create again with other bytes, read: under a new name in ``.probe/``.

    Raises:
        UnsafeStoreError: the second create won, the first bytes are gone, a read is stale, or the store refuses
            requests with a condition.
        StorageError: the store gives no clear answer.
    """
    name = f"{PROBE}/{random_token()}"
    try:
        _expect(storage.get(name) is None, storage, f"a read of {name}, which was never written, found something")
        try:
            first = _settled(storage, lambda: storage.create(name, b"first"))
        except StorageError as error:
            # The first read was answered, so the address and the credentials are valid.
            _expect(error.code != Code.STORE_REFUSED, storage, f"it refuses create-if-absent: {error.message}")
            raise
        # EXISTS with these bytes: an earlier unclear put of this probe. No other process uses the name.
        _expect(first is PutOutcome.CREATED or storage.get(name) == b"first", storage, "a fresh name was taken")
        second = _settled(storage, lambda: storage.create(name, b"second"))
        _expect(
            second is PutOutcome.EXISTS,
            storage,
            "it reported a second create-if-absent of one name as created, so two writers could both believe they won",
        )
        _expect(storage.get(name) == b"first", storage, "a refused create changed the object, or a read is stale")
    finally:
        with suppress(StorageError):
            storage.delete([name])


def keeps_replace_if(storage: Storage) -> bool:
    """Read, create, replace, replace the old version, replace after a delete: under a new name in ``.probe/``.

    False: the store does not support it, or ignores the condition, or a read is stale.

    Raises:
        StorageError: the store gives no clear answer.
    """
    name = f"{PROBE}/{random_token()}"
    try:
        if storage.get(name) is not None:
            return False
        _settled(storage, lambda: storage.create(name, b"first"))
        first = storage.get_versioned(name)
        if first is None or first.data != b"first":
            return False
        # EXISTS with these bytes: an earlier unclear put of this probe.
        _settled(storage, lambda: storage.replace_if(name, first.version, b"second"))
        if storage.get(name) != b"second":
            return False
        third = _settled(storage, lambda: storage.replace_if(name, first.version, b"third"))
        if third is not PutOutcome.EXISTS or storage.get(name) != b"second":
            return False
        storage.delete([name])
        fourth = _settled(storage, lambda: storage.replace_if(name, first.version, b"fourth"))
        return fourth is PutOutcome.EXISTS and storage.get(name) is None
    except UnsafeStoreError:
        return False
    finally:
        with suppress(StorageError):
            storage.delete([name])


def _settled(storage: Storage, put: Callable[[], PutOutcome]) -> PutOutcome:
    return put_until_clear(put, f"a probe of {storage.url}")


def _expect(kept: bool, storage: Storage, fault: str) -> None:  # noqa: FBT001 - an assertion's shape
    if not kept:
        raise Code.CREATE_NOT_EXCLUSIVE(
            f"{storage.url} is not safe for commits: {fault}. Use a store that honours If-None-Match (S3, GCS, Azure, "
            "recent MinIO or Ceph), without a caching proxy, or keep the log elsewhere",
            url=storage.url,
            transient=False,
        )
