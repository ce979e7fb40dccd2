"""A log as items of a DynamoDB table: one table for the entries of all logs, of any number of instances.

    log (S, partition key), version (N, sort key), data (B), stored_us (N), digest (S), parts (S)

``log`` is ``<instance id>/<prefix>``. A conditional put decides a race: a create puts an item with
``attribute_not_exists``, in one transaction with a check that the item before has the digest that the writer knows.
Every read is strongly consistent. The log start of a log is ``log_start`` (B) of item 0 of ``<log>/log-start``, raised
by a conditional put over the bytes that were read.

*Large entries.* An item holds at most 400 KB. A longer entry is put as parts first, items of ``<log>/parts/<digest>``,
and its own item names that digest. Parts of an entry that lost its race, or of a writer that died, stay; nothing reads
them.

*Time.* DynamoDB keeps no time of an item, but each response carries its clock in whole seconds. ``stored_us`` is that
clock, as it was at the last response plus the monotonic time since then, and never less than that of an entry which
this process has seen. It is off by about a second; no writer's wall clock is used.

Core types. :class:`DynamoLog`, :class:`DynamoLogs`; :mod:`~lakebed.log.backends.dynamodb_client` sends the requests.
Source: docs/decisions/0010 and 0031.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from lakebed.errors import Code
from lakebed.log.backends.backend import Around, End, LogBackend, check_creates
from lakebed.log.backends.dynamodb_client import ABSENT, DynamoTable
from lakebed.log.backends.log_start import Rise, decode_log_start
from lakebed.log.last_modified_times import from_us, to_us
from lakebed.storage.contract import PROBE, PutOutcome, check_get, check_put
from lakebed.storage.digests import digest_bytes
from lakebed.storage.retries import put_until_clear

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime

PART_BYTES = 350 * 1024
"""An item of 400 KB counts its names and other attributes as well."""

_SMALL = ("log", "version", "digest", "log_start")
"""The attributes of entries and log starts that are small."""

_TABLE = re.compile(r"[A-Za-z0-9_.-]{3,255}", re.ASCII)
_CREDENTIALS = {"access_key_id": "aws_access_key_id", "secret_access_key": "aws_secret_access_key"} | dict.fromkeys(
    ("session_token", "token"), "aws_session_token"
)


def connect_dynamodb(url: str, instance: str, storage_options: Mapping[str, str] | None = None) -> DynamoLogs:
    """Return the logs of an instance in the table at ``dynamodb://TABLE``, optionally with
    ``?region=…&endpoint_url=…``.

    Credentials come from the storage options (``aws_access_key_id`` …) or from boto3's usual chain. Nothing is read or
    written yet. Raises UsageError if the URL cannot mean a table, or holds credentials.
    """
    parts = urlsplit(url)
    query = parse_qs(parts.query, keep_blank_values=True)
    if "@" in parts.netloc:
        raise Code.URL_HAS_CREDENTIALS("dynamodb:// URLs must not contain credentials: give them as storage options")
    if not _TABLE.fullmatch(parts.netloc) or parts.path.strip("/") or parts.fragment:
        raise Code.URL_INVALID(f"{url!r} is not dynamodb://TABLE: 3 to 255 of A-Z a-z 0-9 _ . -")
    if set(query) - {"region", "endpoint_url"} or any(len(values) > 1 for values in query.values()):
        raise Code.URL_INVALID(f"{url!r}: a dynamodb:// URL takes region= and endpoint_url= only, once each")
    if "@" in urlsplit(query.get("endpoint_url", [""])[0]).netloc:
        raise Code.URL_HAS_CREDENTIALS("the endpoint of a dynamodb:// URL must not contain credentials")
    given = {name.removeprefix("aws_"): text for name, text in (storage_options or {}).items()}
    options = {_CREDENTIALS[name]: text for name, text in given.items() if name in _CREDENTIALS}
    region = query["region"][0] if "region" in query else given.get("region")
    location = {"region_name": region, "endpoint_url": query.get("endpoint_url", [None])[0]}
    named = {name: text for name, text in (location | options).items() if text}
    return DynamoLogs(DynamoTable(parts.netloc, url, tuple(sorted(named.items()))), instance)


@dataclass(slots=True)
class _Newest:
    """The newest entry that this process created, with its last-modified time, and the latest time that it has seen."""

    version: int | None = None
    stored_us: int = 0
    seen_us: int = 0


@dataclass(frozen=True, slots=True)
class DynamoLog(LogBackend):
    """The items of one log."""

    table: DynamoTable
    name: str
    _newest: _Newest = field(default_factory=_Newest, repr=False, compare=False)

    def create(self, version: int, data: bytes, previous: str = "") -> PutOutcome:
        """Put entry ``version`` if there is none, only behind the entry of that digest."""
        check_put(self._title(version), data)
        action = f"write entry {version} of {self.name} to"
        item: dict[str, Any] = {"log": {"S": self.name}, "version": {"N": str(version)}}
        if len(data) <= PART_BYTES:
            item["data"] = {"B": data}
        else:
            item["parts"] = {"S": self._put_parts(action, data)}
        stored_us = max(to_us(self.table.now(anew=False)), self._newest.seen_us)
        item |= {"stored_us": {"N": str(stored_us)}, "digest": {"S": digest_bytes(data)}}
        if previous:
            outcome = self.table.put_after(action, item, (self.name, version - 1), previous)
        else:
            outcome = self.table.put(action, item, ABSENT, {})
        if outcome is PutOutcome.CREATED:
            self._newest.version = version
            self._newest.stored_us = self._newest.seen_us = stored_us
        return outcome

    def get(self, version: int) -> bytes | None:
        """Return the bytes of an entry; None: there is none."""
        item = self.table.item(self.name, version)
        if item is None:
            return None
        self._newest.seen_us = max(self._newest.seen_us, int(item["stored_us"]["N"]))
        if "parts" not in item:
            return bytes(item["data"]["B"])
        data = bytearray()
        for part in self.table.query(f"{self.name}/parts/{item['parts']['S']}"):
            data += bytes(part["data"]["B"])
            check_get(self._title(version), len(data))
        if digest_bytes(bytes(data)) != item["parts"]["S"]:
            raise Code.ENTRY_DAMAGED(f"{self._title(version)} lacks a part; restore the table")
        return bytes(data)

    def last_modified(self, version: int) -> datetime | None:
        """Return when the entry was stored; None: there is none."""
        item = self.table.item(self.name, version, ("stored_us",))
        return from_us(int(item["stored_us"]["N"])) if item else None

    def known_last_modified(self, version: int) -> datetime | None:
        """Return the time of the newest entry of this process; None: request it."""
        return from_us(self._newest.stored_us) if self._newest.version == version else None

    def now(self) -> datetime:
        """Return DynamoDB's clock."""
        return self.table.now()

    def versions(self) -> Iterator[int]:
        """Return the numbers of all entries, ascending."""
        for item in self.table.query(self.name, ("version",)):
            yield int(item["version"]["N"])

    def log_start(self) -> int:
        """Return the version up to which entries may be deleted; 0: it was never raised."""
        return decode_log_start(self._log_start_data(), self.name)

    def end(self, version: int) -> End:
        """Return the log start and what is around an entry, in one request."""
        start, last, next_one = (f"{self.name}/log-start", 0), (self.name, version), (self.name, version + 2)
        items = self.table.items([start, next_one, *([last] if version else [])], _SMALL)
        found = items.get(start)
        log_start = decode_log_start(None if found is None else bytes(found["log_start"]["B"]), self.name)
        digest = items[last]["digest"]["S"] if last in items else "" if version else None
        return End(log_start, Around(digest, version + 2 if next_one in items else 0))

    def advance_log_start(self, expected: int, to: int) -> bool:
        """Raise the log start if it is the expected one: a read and a conditional put."""
        rise, found = Rise(self.name, expected, to), self._log_start_data()
        same = (ABSENT, {}) if found is None else ("#log_start = :found", {":found": {"B": found}})

        def put(data: bytes) -> PutOutcome:
            item = {"log": {"S": f"{self.name}/log-start"}, "version": {"N": "0"}, "log_start": {"B": data}}
            return self.table.put(f"raise the log start of {self.name} in", item, *same)

        return rise.carry_out(found, put, self.log_start)

    def remove(self, versions: Iterable[int]) -> None:
        """Delete the items of entries, and their parts."""
        doomed = set(versions)
        if not doomed:
            return
        keys: list[tuple[str, int]] = []
        for item in self.table.query(self.name, ("version", "parts"), between=(min(doomed), max(doomed))):
            version = int(item["version"]["N"])
            if version not in doomed:
                continue
            keys.append((self.name, version))
            if "parts" in item:
                parts = f"{self.name}/parts/{item['parts']['S']}"
                keys += [(parts, int(part["version"]["N"])) for part in self.table.query(parts, ("version",))]
        self.table.delete(keys)
        if self._newest.version in doomed:
            self._newest.version = None

    def _title(self, version: int) -> str:
        return f"entry {version} of {self.name} in {self.table.url}"

    def _log_start_data(self) -> bytes | None:
        item = self.table.item(f"{self.name}/log-start", 0)
        return None if item is None else bytes(item["log_start"]["B"])

    def _put_parts(self, action: str, data: bytes) -> str:
        """Put the parts of a large entry; returns the digest that they lie under. To put them again changes nothing."""
        digest = digest_bytes(data)
        log = {"S": f"{self.name}/parts/{digest}"}
        for index, start in enumerate(range(0, len(data), PART_BYTES)):
            item = {"log": log, "version": {"N": str(index)}, "data": {"B": data[start : start + PART_BYTES]}}
            put = partial(self.table.put, action, item, None, {})
            put_until_clear(put, f"part {index} of an entry of {self.name}")
        return digest


@dataclass(frozen=True, slots=True)
class DynamoLogs:
    """A :class:`~lakebed.log.backends.backend.LogLocation`: an instance's logs in a table that others may share."""

    table: DynamoTable
    instance: str

    def open(self, prefix: str) -> DynamoLog:
        """Return the log of that prefix."""
        return DynamoLog(self.table, f"{self.instance}/{prefix}")

    def prefixes(self) -> Iterator[str]:
        """Return the prefixes of all logs of the instance: a scan of the whole table."""
        own = f"{self.instance}/"
        values = {":own": {"S": own}, ":one": {"N": "1"}}
        names = {"#log": "log", "#version": "version"}
        condition = "begins_with(#log, :own) AND #version >= :one AND attribute_exists(stored_us)"
        seen = set()
        for item in self.table.pages(
            "scan",
            FilterExpression=condition,
            ProjectionExpression="#log",
            ExpressionAttributeNames=names,
            ExpressionAttributeValues=values,
        ):
            prefix = item["log"]["S"].removeprefix(own)
            if prefix not in seen and not prefix.startswith(f"{PROBE}/"):
                seen.add(prefix)
                yield prefix

    def check(self) -> None:
        """Create the table if it does not exist, and test it.

        Raises:
            UnsafeStoreError: two racing entries would both be stored.
            StorageError: it cannot be reached or written.
        """
        self.table.make()
        check_creates(self.open, self.table.url, "it does not keep attribute_not_exists")
