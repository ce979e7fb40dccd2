"""The same root for DataFusion's own reader.

DataFusion reads data files through its own object store, with range requests, not through the door (which moves whole
objects). It must see the same bucket with the same credentials.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from lakebed.errors import NotFoundError, UsageError
from lakebed.storage.failures import explained
from lakebed.storage.local import LocalStorage
from lakebed.storage.remote import ObjectStorage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from datafusion import SessionContext

    from lakebed.storage.contract import Storage


def register_store(context: SessionContext, storage: Storage) -> bool:
    """Let the session read the storage's objects by their URLs; False: it cannot, fetch them instead.

    Raises:
        UsageError: as for :func:`datafusion_store`.
    """
    found = datafusion_store(storage)
    if found is None:
        return False
    scheme, separator, host = found[0].partition("://")
    context.register_object_store(scheme + separator, found[1], host or None)
    return True


def datafusion_store(storage: Storage) -> tuple[str, Any] | None:
    """(scheme and host, store), as in ``("s3://bucket", …)``; :func:`register_store` tells a session of them.

    None: DataFusion cannot read there by itself (``memory://``); fetch the objects instead. Credentials that expire
    are taken as they are now: call again, and register again, for a session that outlives them.

    Raises:
        UsageError: the storage is of a kind that this cannot look into, or its credentials are of a kind that
            DataFusion cannot be given.
    """
    from datafusion import object_store

    if isinstance(storage, LocalStorage):
        return "file://", object_store.LocalFileSystem()
    if not isinstance(storage, ObjectStorage):
        raise UsageError(f"no DataFusion store for a {type(storage).__name__}: pass the storage it wraps")
    scheme, _, rest = storage.url.partition("://")
    bucket = rest.partition("/")[0]
    host = f"{scheme}://{bucket}"
    if scheme == "memory":
        return None
    client: Any = storage.clients.retrying
    config: dict[str, str] = dict(client.config)
    if scheme == "s3":
        return host, object_store.AmazonS3(**_s3_arguments(storage, bucket, config))
    if scheme == "gs":
        return host, object_store.GoogleCloud(bucket, service_account_path=config.get("service_account"))
    allow_http = storage.clients.client_options.get("allow_http") == "true"
    return host, object_store.MicrosoftAzure(
        bucket,
        account=config.get("account_name"),
        access_key=config.get("account_key"),
        bearer_token=config.get("token"),
        client_id=config.get("client_id"),
        client_secret=config.get("client_secret"),
        tenant_id=config.get("tenant_id"),
        allow_http=allow_http,
    )


def read_ranges(storage: ObjectStorage, name: str, places: Sequence[tuple[int, int]]) -> list[bytes]:
    """Parts of an object, each an (offset, length), in requests side by side; one for parts that lie close together.

    Raises:
        NotFoundError: there is no such object.
        StorageError: the store failed.
        OSError: the object ended before a part did.
    """
    import obstore

    url = storage.object_url(name)
    key = url.removeprefix(storage.url).lstrip("/")
    prefix = storage.url.partition("://")[2].partition("/")[2]
    with explained("read", url):
        try:
            path = f"{prefix}/{key}" if prefix else key
            starts, lengths = zip(*places, strict=True)
            read = obstore.get_ranges(storage.clients.retrying, path, starts=starts, lengths=lengths)
        except FileNotFoundError as error:
            raise NotFoundError(f"no object {name} in {storage.url}", name=name) from error
    found = [bytes(part) for part in read]
    if [len(part) for part in found] != list(lengths):
        raise OSError(f"{url} ended before the parts that were asked for")
    return found


def _s3_arguments(storage: ObjectStorage, bucket: str, config: dict[str, str]) -> dict[str, Any]:
    secrets = {key: config.get(key) for key in ("access_key_id", "secret_access_key", "session_token")}
    if storage.clients.credentials is not None:
        found = storage.clients.credentials()
        if inspect.isawaitable(found):
            raise UsageError("DataFusion needs credentials at once, not from an asynchronous provider")
        secrets = {
            "access_key_id": found["access_key_id"],
            "secret_access_key": found["secret_access_key"],
            "session_token": found.get("token"),
        }
    return {
        "bucket_name": bucket,
        "region": config.get("region"),
        "endpoint": config.get("endpoint"),
        "allow_http": storage.clients.client_options.get("allow_http") == "true",
        **secrets,
    }
