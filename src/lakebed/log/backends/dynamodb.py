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

Core types. :class:`DynamoLog`, :class:`DynamoLogs`; :mod:`~lakebed.log.backends.dynamodb` sends the requests.
Source: docs/decisions/0010 and 0031.

*Requests to a DynamoDB table: conditional puts, consistent reads, deletes, its clock, and its errors.*

Core type: :class:`DynamoTable`. Rules. A put returns created, exists or unclear, and is not repeated here, because only
the caller can compare its own bytes. Reads are strongly consistent and repeated within a bound, because they change
nothing. The server's clock is taken from the dates of its responses, which are truncated to seconds.

An answer counts only if it is whole, and one that DynamoDB gives to this request. The client takes anything with
status 200: a body that is cut, empty, or from a portal between reads as "no such item", which would be the end of a
log, and as a put that took effect. Such an answer is none: a read is repeated, a put is unclear.

Errors: StorageError with the remedy, by the code of the response. Source: decision 0031.
"""

from __future__ import annotations

import os
import re
import threading
import zlib
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    NoRegionError,
    PartialCredentialsError,
    ProfileNotFound,
)

from lakebed import clock
from lakebed.errors import Code, Error
from lakebed.log.backends.backend import Around, End, LogBackend, Rise, check_creates, decode_log_start
from lakebed.log.last_modified_times import from_us, to_us
from lakebed.model.documents import load
from lakebed.storage.contract import PROBE, PutOutcome, check_get, check_put
from lakebed.storage.digests import digest_bytes
from lakebed.storage.retries import ATTEMPTS_MAX, attempts, put_until_clear, read_until_answered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

BATCH_ITEMS = 25
"""As many as DynamoDB deletes in one request."""

WAIT_TABLE_S = 60.0
_SAID_CHARS_MAX = 200
ABSENT = "attribute_not_exists(#log)"
"""The condition of a put that creates."""

_PLACEHOLDER = re.compile(r"#(\w+)")
_LOST = "ConditionalCheckFailedException"
_CANCELLED = "TransactionCanceledException"
_FAILED = "ConditionalCheckFailed"
_REFUSED = {
    "ResourceNotFoundException": (
        Code.STORE_NOT_FOUND,
        "the table is not there: create the instance anew, or restore the table",
    ),
    "AccessDeniedException": (
        Code.STORE_PERMISSION,
        (
            "access denied: allow GetItem, BatchGetItem, PutItem, ConditionCheckItem, Query, Scan, BatchWriteItem, "
            "DescribeTable"
        ),
    ),
    "UnrecognizedClientException": (Code.STORE_CREDENTIALS, "the credentials are not known: correct the access key"),
    "InvalidSignatureException": (
        Code.STORE_CREDENTIALS,
        "the credentials are wrong, or the clock is: correct the secret key",
    ),
    "ExpiredTokenException": (Code.STORE_CREDENTIALS, "the credentials have expired: renew them"),
    "ValidationException": (Code.STORE_REFUSED, "the table has other keys than a log: use a table that Lakebed made"),
    "ItemCollectionSizeLimitExceededException": (
        Code.STORE_REFUSED,
        "the table has a local index: use a table that Lakebed made",
    ),
}
_REQUIRED = {
    "Query": {"Items", "Count"},
    "Scan": {"Items", "Count"},
    "BatchGetItem": {"Responses"},
    "BatchWriteItem": {"UnprocessedItems"},
    "DescribeTable": {"Table"},
    "CreateTable": {"TableDescription"},
}
"""What the answers to these operations have in any case; those to the others may be empty objects."""

_THROTTLED = {
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "ThrottlingException",
    "LimitExceededException",
}


class NoAnswerError(BotoCoreError):  # type: ignore[misc]
    """A response with status 200 that is not an answer of DynamoDB to the request."""

    fmt = "no answer of DynamoDB: {what}"


def check_answer(operation_model: Any, response_dict: Mapping[str, Any], **_: Any) -> None:
    """Raise NoAnswerError for a response that is cut, changed on the way, or not one to this operation.

    A handler of the client's event before a response is parsed; the names of its arguments are the client's.
    """
    if response_dict["status_code"] != 200:
        return
    headers, body = response_dict["headers"], response_dict["body"]
    length, crc = headers.get("content-length"), headers.get("x-amz-crc32")
    if length is not None and length.isdigit() and int(length) != len(body):
        raise NoAnswerError(what=f"{len(body)} of {length} bytes came")
    if crc is not None and crc.isdigit() and int(crc) != zlib.crc32(body):
        raise NoAnswerError(what="its checksum differs")
    try:
        answer = load(bytes(body))
    except ValueError:
        answer = None
    name = operation_model.name
    if not isinstance(answer, dict):
        raise NoAnswerError(what=f"{len(body)} bytes that are no JSON object")
    if answer.keys() - operation_model.output_shape.members.keys() or _REQUIRED.get(name, set()) - answer.keys():
        raise NoAnswerError(what=f"it is not one to {name}")


@dataclass(slots=True)
class _Clock:
    """The server's clock, by the dates of its responses. Safe to use from many threads: the last one counts."""

    seen: tuple[float, float] | None = None

    def note(self, headers: Mapping[str, str], at_s: float) -> None:
        """Read a response's date; it arrived at that monotonic time."""
        text = headers.get("date")
        if text is None:
            return
        date_s = parsedate_to_datetime(text).timestamp()
        # A date is truncated to its second: an earlier response plus the time since may be more accurate.
        reckoned_s = self.now_s(at_s)
        near = reckoned_s is not None and date_s <= reckoned_s < date_s + 1
        self.seen = (reckoned_s if near and reckoned_s is not None else date_s, at_s)

    def now_s(self, at_s: float) -> float | None:
        """Return the time by that clock, in seconds since 1970; None: no response was seen yet."""
        seen = self.seen
        return None if seen is None else seen[0] + (at_s - seen[1])


@dataclass(frozen=True, slots=True)
class DynamoTable:
    """One table; safe to use from many threads, and from forked processes."""

    name: str
    url: str
    options: tuple[tuple[str, str], ...] = field(repr=False)
    _clock: _Clock = field(default_factory=_Clock, repr=False, compare=False)

    def now(self, *, anew: bool = True) -> datetime:
        """Return DynamoDB's clock: from a new response, or with ``anew`` false from an earlier one."""
        if anew or self._clock.seen is None:
            self.item("clock", 0)
        found = self._clock.now_s(clock.monotonic_s())
        if found is None:
            raise Code.STORE_REFUSED(
                f"{self.url} returns no Date header, so its clock cannot be read", url=self.url, transient=False
            )
        return datetime.fromtimestamp(found, UTC)

    def item(self, log: str, version: int, only: Sequence[str] = ()) -> dict[str, Any] | None:
        """Return one item, or None; a consistent read. ``only`` names attributes that every such item has."""
        key = _key(log, version)
        given: dict[str, Any] = {"TableName": self.name, "Key": key, "ConsistentRead": True}
        given |= {"ProjectionExpression": ", ".join(only)} if only else {}

        def read_once() -> dict[str, Any] | None:
            answer = self._call("read the log in", "get_item", **given)
            found: dict[str, Any] | None = answer.get("Item")
            if found is not None and not (found.keys() >= set(only) if only else key.items() <= found.items()):
                error = NoAnswerError(what="it has another item than the one that was asked for")
                raise self._failure("read the log in", error) from error
            return found

        return read_until_answered(read_once)

    def items(self, keys: Sequence[tuple[str, int]], only: Sequence[str]) -> dict[tuple[str, int], dict[str, Any]]:
        """Return those of some items that exist, in one request; a consistent read. ``only`` names attributes."""
        request = {
            "Keys": [_key(*one) for one in keys],
            "ConsistentRead": True,
            "ProjectionExpression": ", ".join(f"#{name}" for name in only),
            "ExpressionAttributeNames": {f"#{name}": name for name in only},
        }

        def read_once() -> list[dict[str, Any]]:
            answer = self._call("read the log in", "batch_get_item", RequestItems={self.name: request})
            found: list[dict[str, Any]] | None = answer["Responses"].get(self.name)
            whole = found is not None and all({"log", "version"} <= one.keys() for one in found)
            if answer.get("UnprocessedKeys") or found is None or not whole:
                error = NoAnswerError(what="some items were not read")
                raise self._failure("read the log in", error) from error
            return found

        found = read_until_answered(read_once)
        return {(one["log"]["S"], int(one["version"]["N"])): one for one in found}

    def query(
        self, log: str, only: Sequence[str] = (), *, between: tuple[int, int] | None = None
    ) -> Iterator[dict[str, Any]]:
        """Return the items of a log, ascending by version."""
        names = {"#log": "log"} | {f"#{name}": name for name in only}
        values = {":log": {"S": log}}
        condition = "#log = :log"
        if between is not None:
            names["#version"] = "version"
            values |= {":low": {"N": str(between[0])}, ":high": {"N": str(between[1])}}
            condition += " AND #version BETWEEN :low AND :high"
        given: dict[str, Any] = {"ProjectionExpression": ", ".join(f"#{name}" for name in only)} if only else {}
        return self.pages(
            "query",
            KeyConditionExpression=condition,
            ExpressionAttributeNames=names,
            ExpressionAttributeValues=values,
            **given,
        )

    def put(self, action: str, item: Mapping[str, Any], condition: str | None, values: Mapping[str, Any]) -> PutOutcome:
        """Put an item on a condition, in one request. Raises StorageError if it was refused; nothing is stored then."""
        given: dict[str, Any] = {}
        if condition is not None:
            names = {f"#{name}": name for name in _PLACEHOLDER.findall(condition)}
            given = {"ConditionExpression": condition, "ExpressionAttributeNames": names}
            if values:
                given["ExpressionAttributeValues"] = dict(values)
        return self._put_once(action, lambda: self._send("put_item", Item=dict(item), **given))

    def put_after(self, action: str, item: Mapping[str, Any], before: tuple[str, int], digest: str) -> PutOutcome:
        """Put an item that does not exist, in one request, if the item ``before`` has the digest; UNLINKED if not.

        Raises as :meth:`put`.
        """
        check = {
            "TableName": self.name,
            "Key": _key(*before),
            "ConditionExpression": "#digest = :digest",
            "ExpressionAttributeNames": {"#digest": "digest"},
            "ExpressionAttributeValues": {":digest": {"S": digest}},
        }
        put = {"TableName": self.name, "Item": dict(item), "ConditionExpression": ABSENT}
        put["ExpressionAttributeNames"] = {"#log": "log"}
        actions = [{"ConditionCheck": check}, {"Put": put}]
        return self._put_once(action, lambda: self._request("transact_write_items", TransactItems=actions))

    def _put_once(self, action: str, send: Callable[[], object]) -> PutOutcome:
        try:
            send()
        except ClientError as error:
            if _code(error) == _CANCELLED:
                return _outcome_of(error)
            if _code(error) == _LOST:
                return PutOutcome.EXISTS
            if _code(error) not in _REFUSED and _code(error) not in _THROTTLED:
                return PutOutcome.UNCLEAR
            raise self._failure(action, error) from error
        except BotoCoreError as error:
            if not isinstance(error, _UNSENT):
                return PutOutcome.UNCLEAR
            raise self._failure(action, error) from error
        return PutOutcome.CREATED

    def delete(self, keys: Sequence[tuple[str, int]]) -> None:
        """Delete items; missing ones are ignored."""
        for start in range(0, len(keys), BATCH_ITEMS):
            requests = [
                {"DeleteRequest": {"Key": {"log": {"S": log}, "version": {"N": str(version)}}}}
                for log, version in keys[start : start + BATCH_ITEMS]
            ]
            for _ in attempts(ATTEMPTS_MAX):
                answer = self._call("delete entries from", "batch_write_item", RequestItems={self.name: requests})
                requests = answer.get("UnprocessedItems", {}).get(self.name, [])
                if not requests:
                    break
            else:
                raise Code.STORE_UNAVAILABLE(
                    f"{self.url} did not carry out all deletes; try again later", url=self.url, transient=True
                )

    def pages(self, operation: str, **given: Any) -> Iterator[dict[str, Any]]:
        """Return the items of a ``query`` or ``scan``, page by page; consistent reads."""
        start: dict[str, Any] = {}
        while True:
            answer = self._read(operation, ConsistentRead=True, **start, **given)
            yield from answer["Items"]
            if not answer.get("LastEvaluatedKey"):
                return
            start = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}

    def _read(self, operation: str, **given: Any) -> dict[str, Any]:
        """Read, with bounded retries, because reads change nothing."""
        return read_until_answered(lambda: self._call("read the log in", operation, TableName=self.name, **given))

    def _call(self, action: str, operation: str, **given: Any) -> dict[str, Any]:
        try:
            return self._request(operation, **given)
        except (ClientError, BotoCoreError) as error:
            raise self._failure(action, error) from error

    def _send(self, operation: str, **given: Any) -> dict[str, Any]:
        return self._request(operation, TableName=self.name, **given)

    def _request(self, operation: str, **given: Any) -> dict[str, Any]:
        client = _client(os.getpid(), self.options)
        answer: dict[str, Any] = getattr(client, operation)(**given)
        self._clock.note(answer["ResponseMetadata"]["HTTPHeaders"], clock.monotonic_s())
        return answer

    def make(self) -> None:
        """Make the table if it is not there. Raises StorageError."""
        try:
            self._send("describe_table")
        except ClientError as error:
            if _code(error) != "ResourceNotFoundException":
                raise self._failure("check", error) from error
        except BotoCoreError as error:
            raise self._failure("check", error) from error
        else:
            return
        keys = {"log": ("HASH", "S"), "version": ("RANGE", "N")}
        try:
            self._send(
                "create_table",
                KeySchema=[{"AttributeName": name, "KeyType": kind} for name, (kind, _) in keys.items()],
                AttributeDefinitions=[{"AttributeName": n, "AttributeType": kind} for n, (_, kind) in keys.items()],
                BillingMode="PAY_PER_REQUEST",
            )
        except ClientError as error:
            if _code(error) != "ResourceInUseException":  # another process made it meanwhile
                raise self._failure("create", error) from error
        give_up_s = clock.monotonic_s() + WAIT_TABLE_S
        while self._call("check", "describe_table", TableName=self.name)["Table"]["TableStatus"] != "ACTIVE":
            if clock.monotonic_s() > give_up_s:
                raise Code.STORE_UNAVAILABLE(f"{self.url} was created and is not ready yet: try again", transient=True)
            clock.sleep(0.5)

    def _failure(self, action: str, error: Exception) -> Error:
        """Return the error with its subject, location and remedy."""
        said = " ".join(str(error).split())[:_SAID_CHARS_MAX]
        refused = _REFUSED.get(_code(error))
        if refused is None and isinstance(error, _MISCONFIGURED):
            refused = Code.STORE_REFUSED, "correct the configuration"
        code, remedy = refused or (Code.STORE_UNAVAILABLE, "try again later")
        return code(f"cannot {action} {self.url}: {remedy} ({said})", url=self.url, transient=refused is None)


_MISCONFIGURED = (NoCredentialsError, NoRegionError, PartialCredentialsError, ProfileNotFound)
_UNSENT = (*_MISCONFIGURED, EndpointConnectionError, ConnectTimeoutError)
"""What fails before a request is sent."""

_making = threading.Lock()


@lru_cache(maxsize=64)
def _client_of(process: int, options: tuple[tuple[str, str], ...]) -> Any:  # noqa: ARG001 - a forked child has its own
    # No layer below a put retries silently: the caller settles an unclear outcome.
    once = {"mode": "standard", "total_max_attempts": 1}
    config = Config(retries=once, connect_timeout=5, read_timeout=20, max_pool_connections=32)
    client = boto3.session.Session().client("dynamodb", config=config, **dict(options))
    client.meta.events.register("before-parse.dynamodb.*", check_answer)
    return client


def _client(process: int, options: tuple[tuple[str, str], ...]) -> Any:
    with _making:
        try:
            return _client_of(process, options)
        except ValueError as error:
            raise Code.STORE_REFUSED(f"cannot connect to DynamoDB: {error}", transient=False) from error


def _key(log: str, version: int) -> dict[str, dict[str, str]]:
    return {"log": {"S": log}, "version": {"N": str(version)}}


def _outcome_of(cancelled: ClientError) -> PutOutcome:
    """Return the outcome of a transaction of a check and a put that was cancelled."""
    reasons = [reason.get("Code") for reason in cancelled.response.get("CancellationReasons", [])]
    if reasons[1:2] == [_FAILED]:
        return PutOutcome.EXISTS
    # A conflict with another transaction or a throttled item: nothing is stored, and the same put may succeed.
    return PutOutcome.UNLINKED if reasons[:1] == [_FAILED] else PutOutcome.UNCLEAR


def _code(error: Exception) -> str:
    return str(error.response["Error"]["Code"]) if isinstance(error, ClientError) else ""


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
