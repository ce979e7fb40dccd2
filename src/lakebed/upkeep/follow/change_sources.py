"""The sources that can be followed, by the scheme of their URLs.

Core types: :class:`SourceOptions`. Rule: a source is imported when it is opened, since it needs an extra package.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from lakebed.errors import Code

if TYPE_CHECKING:
    from lakebed.upkeep.follow.change_source import ChangeSource


def default_name(url: str) -> str:
    """Return the name of a follower that is given none: the path of the URL, in letters that a name may have."""
    path = urlsplit(url).path.strip("/")
    return re.sub(r"[^a-z0-9]+", "_", path.lower()).strip("_")[:48] or "follow"


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """How a source is read: ``publication`` is of PostgreSQL, the others are of Kafka.

    ``form`` says what messages are (``debezium`` or ``rows``), ``key`` which columns are the key of rows if the keys of
    messages do not name them, ``registry`` where schemas are, ``config`` the file with the settings of the client.
    """

    publication: str | None = None
    form: str | None = None
    key: tuple[str, ...] = ()
    registry: str | None = None
    config: str | None = None

    def check(self, source: str, *others: str) -> None:
        """Raise UsageError if one of these fields is set, which a source does not have."""
        for name in others:
            if getattr(self, name):
                option = {"form": "format", "config": "source-config"}.get(name, name)
                raise Code.ARGUMENTS_CONFLICT(f"--{option} is not an option of {source}: leave it out", option=option)


def open_source(
    url: str, name: str, tables: Sequence[tuple[str, str]], options: SourceOptions = SourceOptions()
) -> ChangeSource:
    """Return the source at a URL, not yet connected. Raises UsageError for another scheme, and for a password."""
    scheme = urlsplit(url).scheme
    if scheme in ("postgresql", "postgres"):
        options.check("PostgreSQL", "form", "key", "registry", "config")
        from lakebed.upkeep.follow.postgres_source import PostgresSource

        return PostgresSource(url, name, tables, options.publication)
    if scheme == "kafka":
        options.check("Kafka", "publication")
        from lakebed.upkeep.follow.kafka_source import KafkaSource

        return KafkaSource(url, name, tables, options)
    raise Code.URL_SCHEME_UNKNOWN(
        f"{url.partition('@')[2] or url}: not a source that can be followed; write postgresql://user@host/database or "
        "kafka://host:port/topic",
        scheme=scheme,
    )
