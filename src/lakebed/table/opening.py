"""Creates and opens instances: the object that marks one, and the location of its logs.

``instance.json`` marks the root and gives the format version; it is never rewritten.

*In other processes.* Instances, tables and snapshots are pickled as :class:`OpenArguments`: the URL of the instance,
the storage options and the commit service, for a table also its id, and for a snapshot its version. Storage options and
tokens are in plain text, so a pickle is a secret. An instance that was opened without options has none in its pickle
either: each process then uses the credentials of its own environment. A process opens each address once, however many
handles it receives. A snapshot is read again at its version. A pickle pins nothing: if the version is no longer
retained, unpickling raises NotRetainedError, as :meth:`Table.at` does.

Errors: UsageError for URLs, NotFoundError, ExistsError; UnsafeStoreError for a store that is not safe for instances.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from lakebed import clock
from lakebed.errors import Code, Error, ExistsError, NotFoundError
from lakebed.log.locations import check_trusted, connect_logs, remember
from lakebed.model.checks import check_flag, check_text, is_id, is_text
from lakebed.model.documents import decode_document, encode_document
from lakebed.model.files import INSTANCE_NAME, checkpoint_name
from lakebed.model.foreign_errors import optional_imports
from lakebed.storage import check_conditional_puts, connect
from lakebed.storage.local import user_path
from lakebed.storage.retries import is_stored
from lakebed.table.ahead import Guess, GuessedInstance, remembered_catalog
from lakebed.table.instance import Instance

if TYPE_CHECKING:
    from concurrent.futures import Future

    from lakebed.log.through_service import CommitService
    from lakebed.read.snapshot.snapshot import Snapshot
    from lakebed.storage.contract import Storage
    from lakebed.table.table import Table


def _instance(
    storage: Storage,
    document: Mapping[str, Any],
    storage_options: Mapping[str, str] | None,
    commits: CommitService | None = None,
) -> Instance:
    address = OpenArguments(
        storage.url,
        document.get("log_url"),
        None if commits is None else commits.url,
        tuple((storage_options or {}).items()),
        None if commits is None else commits.token,
    )
    return Instance(storage, document, storage_options, commits=commits, address=address)


def create(
    url: str,
    *,
    storage_options: Mapping[str, str] | None = None,
    log_url: str | None = None,
    among_others: bool = False,
    exist_ok: bool = False,
) -> Instance:
    """Create a new instance at ``url`` (a path, ``file://``, ``s3://``, ``gs://``, ``az://`` or ``memory://``).

    ``log_url`` puts the logs elsewhere: on a faster class of storage, or in a database (``postgresql://…``,
    ``dynamodb://TABLE``). ``storage_options`` are credentials and the like; without them the provider's usual chain is
    used. They are never stored. ``log_url`` is stored, so a password in it is refused.

    A folder that holds other files is refused unless ``among_others`` is true, because it is usually the wrong one.
    With ``exist_ok``, an existing instance is opened, as by :func:`open`.

    Raises:
        UsageError: a URL is invalid, or contains a password; or there are other files.
        ExistsError: there is an instance already, without ``exist_ok``.
        UnsafeStoreError: the store ignores create-if-absent.
        StorageError: the store cannot be reached or written.
    """
    check_flag("exist_ok", exist_ok)
    try:
        return _created(connect(url, storage_options), storage_options, log_url, among_others=among_others)
    except ExistsError:
        if not exist_ok:
            raise
    return open(url, storage_options=storage_options, log_url=log_url)


def _created(
    storage: Storage, storage_options: Mapping[str, str] | None, log_url: str | None, *, among_others: bool
) -> Instance:
    from lakebed.storage.disk_space import keep_reserve

    instance = clock.new_id()
    logs = connect_logs(log_url, storage, instance, storage_options=storage_options)
    if storage.get(INSTANCE_NAME) is not None:
        raise _exists(storage)
    if not among_others:
        _check_empty(storage)
    check_conditional_puts(storage)
    if log_url is not None:
        logs.check()
    document = {"instance": instance, "log_url": log_url}
    if not is_stored(storage, INSTANCE_NAME, encode_document(document)):
        raise _exists(storage)
    keep_reserve(storage)
    if log_url is not None and storage.locality.shared:
        remember(storage.url, log_url)
    return _instance(storage, document, storage_options)


def _exists(storage: Storage) -> Error:
    url = storage.url
    return Code.INSTANCE_EXISTS(f"there is an instance at {url} already; open it, or choose another URL", url=url)


def _check_empty(storage: Storage) -> None:
    found = next(iter(storage.list("")), None)
    if found is not None:
        raise Code.FOLDER_NOT_EMPTY(
            f"{storage.url} holds other files, such as {found.name}: choose an empty folder, or create the "
            "instance beside them with among_others=True (--among-others)",
            url=storage.url,
        )


def open(  # noqa: PLR0913 - where it is, and how it is reached
    url: str,
    *,
    storage_options: Mapping[str, str] | None = None,
    log_url: str | None = None,
    trust_log_url: bool = False,
    commit_via: str | None = None,
    token: str | None = None,
) -> Instance:
    """Open the instance at ``url``.

    An instance whose log is in a database or another bucket has that URL in its ``instance.json``. The first time a
    user opens one that another user created, ``log_url`` must give the expected log, or ``trust_log_url`` must accept
    the one that is named, because opening the instance connects to it. The decision is stored in the user's
    configuration.

    With ``commit_via``, the URL of a service (``lakebed serve``), data files are sent to the store, and commits through
    that service, which combines those of many processes into one entry; ``token`` authenticates this process
    (docs/commit-via.md).

    With a cache on local disk (the option ``cache_dir``) that knows the instance, nothing is requested yet: the first
    use of the handle, or of a table from it, raises these errors (:mod:`lakebed.table.ahead`).

    Raises:
        NotFoundError: there is no instance.
        UsageError: the log is at a URL that the user has not agreed to, or not at ``log_url``; or ``commit_via`` is not
            the URL of a service.
        UnsupportedFormatError: a newer Lakebed wrote it.
    """
    check_flag("trust_log_url", trust_log_url)
    if log_url is not None:
        check_text("log_url", log_url)
    storage = connect(url, storage_options)

    def instance_of(data: bytes | None) -> Instance:
        if data is None:
            remedy = f"make one with lakebed.create or `lakebed init`{_other_place(str(url))}"
            raise Code.INSTANCE_NOT_FOUND(f"no instance at {storage.url}; {remedy}", url=url)
        document = _checked_document(storage, data)
        check_trusted(storage.url, document.get("log_url"), log_url, trusted=trust_log_url)
        return _instance(storage, document, storage_options, _commit_service(commit_via, document["instance"], token))

    def found() -> Instance:
        data, catalog = _first_objects(storage)
        instance = instance_of(data)
        # A failure is raised by the first use of the catalog, which reads it again.
        if catalog is not None and catalog.exception() is None:
            instance.take_catalog_ahead(catalog.result())
        if data is not None and storage.cache is not None:
            storage.cache.put(_remembered_key(storage), data)
        return instance

    data = None if storage.cache is None else storage.cache.get(_remembered_key(storage))
    if data is not None:
        # If it cannot be opened, it was not this one either, or is not any more.
        with suppress(Error):
            guess = instance_of(data)
            if remembered_catalog(guess) is not None:
                return GuessedInstance(Guess(guess, lambda: guess if storage.get(INSTANCE_NAME) == data else found()))
    return found()


def _remembered_key(storage: Storage) -> str:
    return f"instance/{storage.url}"


def _checked_document(storage: Storage, data: bytes) -> Mapping[str, Any]:
    """Return the document that marks an instance. Raises DamagedError, UnsupportedFormatError."""
    document = decode_document(data, f"{INSTANCE_NAME} at {storage.url}")
    if not is_id(document.get("instance")):
        raise Code.INSTANCE_DAMAGED(
            f"{INSTANCE_NAME} at {storage.url} does not say which instance it is", url=storage.url
        )
    if document.get("log_url") is not None and not is_text(document["log_url"]):
        raise Code.INSTANCE_DAMAGED(
            f"{INSTANCE_NAME} at {storage.url} has a log_url that is not a text", url=storage.url
        )
    return document


def _commit_service(url: str | None, instance: str, token: str | None) -> CommitService | None:
    if url is None:
        if token is not None:
            raise Code.ARGUMENTS_CONFLICT("token without commit_via: it is for the service that commits go through")
        return None
    with optional_imports():
        from lakebed.log.through_service import CommitService
    return CommitService(url, instance, token)


def _first_objects(storage: Storage) -> tuple[bytes | None, Future[bytes | None] | None]:
    """Return the object that marks the instance and, on a remote store, the checkpoint of the catalog.

    The catalog is read next in any case. Requested at the same time, it costs no further round trip.
    """
    if storage.locality.near:
        return storage.get(INSTANCE_NAME), None
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1, "lakebed-open") as aside:
        catalog = aside.submit(storage.get, checkpoint_name("catalog"))
        return storage.get(INSTANCE_NAME), catalog


def _other_place(url: str) -> str:
    """Return the end of a message about a missing instance: what may have been meant instead."""
    if found := re.match(r"(s3|gs|az|file|memory):/(?=[^/])", url):
        return f"; did you mean {found[1]}://{url[found.end() :]}?"
    if "://" not in url and user_path(url).is_file():
        return f"; {url} is a file: `lakebed write TABLE {Path(url).name}` adds its rows to a table of an instance"
    return ""


@dataclass(frozen=True, slots=True)
class OpenArguments:
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
                found = _opened[key] = _opened_again(self)
            return found

    def table(self, table_id: str) -> Table:
        """Return the table with an id. Raises NotFoundError if it was dropped."""
        return self.instance().named(table_id)

    def snapshot(self, table_id: str, version: int) -> Snapshot:
        """Return a table at a version. Raises NotRetainedError if the version is gone."""
        return self.table(table_id).at(version=version)


_opened: WeakValueDictionary[tuple[int, OpenArguments], Instance] = WeakValueDictionary()
_opening = threading.Lock()


def _opened_again(address: OpenArguments) -> Instance:
    try:
        return open(
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
