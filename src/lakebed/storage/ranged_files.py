"""Parts of objects, for readers of large files: the door itself moves whole objects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebed.errors import Code
from lakebed.storage.client_errors import explained

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakebed.storage.object_store import ObjectStorage


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
            raise Code.OBJECT_NOT_FOUND(f"no object {name} in {storage.url}", name=name) from error
    found = [bytes(part) for part in read]
    if [len(part) for part in found] != list(lengths):
        raise OSError(f"{url} ended before the parts that were asked for")
    return found
