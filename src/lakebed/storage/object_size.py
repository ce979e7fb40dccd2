"""Objects that are put and read as bytes, whole: how large they may be.

JSON of a log, a manifest, a pin or a request says nothing of its size before it is read, and whoever can write to a
store can put gigabytes under its name. So none is put that is larger than OBJECT_BYTES_MAX, by any store or log, and
none that is larger is read. Pure.
"""

from __future__ import annotations

from lakebed.errors import Code, Error

OBJECT_BYTES_MAX = 128 * 1024 * 1024
"""The largest that are put as bytes: a log entry is one line of up to 16 MiB; a sidecar, of 2,000,000 references,
some 50 MB; the manifest of a checkpoint, of a million partitions with boundaries of 20 bytes, some 60 MB."""


def check_put(name: str, data: bytes) -> None:
    """Raise StorageError for bytes that nobody could read back."""
    if len(data) > OBJECT_BYTES_MAX:
        raise Code.OBJECT_TOO_LARGE(
            f"cannot put {name}: it takes {len(data)} bytes, and at most {OBJECT_BYTES_MAX} can be read back",
            name=name,
            size_bytes=len(data),
            transient=False,
        )


def check_get(name: str, size_bytes: int) -> None:
    """Raise DamagedError for an object of a size that none is put with."""
    if size_bytes > OBJECT_BYTES_MAX:
        raise too_large(name, f"{size_bytes} bytes")


def too_large(name: str, has: str = f"more than {OBJECT_BYTES_MAX} bytes") -> Error:
    """The error for one, of whose size no more may be known."""
    return Code.OBJECT_DAMAGED(
        f"{name} has {has}, and nothing that Lakebed puts there has more than {OBJECT_BYTES_MAX}: it is not what was "
        "written; restore the object from a copy",
        name=name,
    )
