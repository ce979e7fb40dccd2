"""The sources that can be followed, by the scheme of their URLs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from lakebed.errors import Code

if TYPE_CHECKING:
    from lakebed.upkeep.follow.change_source import ChangeSource


def default_name(url: str) -> str:
    """Return the name of a follower that is given none: the path of the URL, in letters that a name may have."""
    path = urlsplit(url).path.strip("/")
    return re.sub(r"[^a-z0-9]+", "_", path.lower()).strip("_")[:48] or "follow"


def open_source(url: str, name: str, tables: Sequence[tuple[str, str]], publication: str | None) -> ChangeSource:
    """Return the source at a URL, not yet connected. Raises UsageError for another scheme, and for a password."""
    if urlsplit(url).scheme in ("postgresql", "postgres"):
        from lakebed.upkeep.follow.postgres_source import PostgresSource

        return PostgresSource(url, name, tables, publication)
    raise Code.URL_SCHEME_UNKNOWN(
        f"{url.partition('@')[2] or url}: not a source that can be followed; write postgresql://user@host/database",
        scheme=urlsplit(url).scheme,
    )
