"""Which files and folders requests may name: those below a place that the operator of the service allows.

A URL and a place are compared by the names of their paths, never as text: ``/in/allowed`` does not allow
``/in/allowed-too``. Schemes and hosts are equal in any case, and paths of this machine are compared after their links.
Errors: AccessError.
"""

from __future__ import annotations

import os
from pathlib import PurePosixPath
from urllib.parse import unquote

from lakebed.errors import Code, Error
from lakebed.storage.external import kind_of, open_external

Place = tuple[str, str, tuple[str, ...]]
"""The kind of store, the bucket or host, and the names of the path."""


def check_source(url: str, allowed: tuple[str, ...]) -> None:
    """Raise AccessError unless the URL is one of the places that this service allows, or below one."""
    if not _climbs(url) and any(_lies_in(_place_of(url), _place_of(place)) for place in allowed):
        return
    allows = f"what lies in {', '.join(allowed)}" if allowed else "no URLs"
    raise Code.SOURCE_NOT_ALLOWED(
        f"{url[:500]!r} may not be used: this service allows {allows}; its operator can allow more with "
        "--allow-sources",
        url=url[:500],
    )


def _climbs(url: str) -> bool:
    """Return whether a reader that decodes the URL, even more than once, could find a way out of a folder in it."""
    decoded = url
    while (again := unquote(decoded)) != decoded:
        decoded = again
    return any(part in ("..", ".") for part in decoded.replace("\\", "/").split("/"))


def _place_of(url: str) -> Place | None:
    """Return the place of a URL, read as the readers of files do; None if it is malformed."""
    kind = kind_of(url).lower()
    if kind == "file":
        try:
            _, path = open_external(url)
        except Error:
            return None
        return kind, "", PurePosixPath(os.path.realpath(path)).parts
    host, _, path = url.partition("://")[2].partition("/")
    return kind, host.lower(), tuple(path.split("/"))


def _lies_in(place: Place | None, folder: Place | None) -> bool:
    if place is None or folder is None or place[:2] != folder[:2]:
        return False
    names = folder[2][:-1] if folder[2][-1:] == ("",) else folder[2]
    return place[2][: len(names)] == names
