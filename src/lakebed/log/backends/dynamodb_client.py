"""Requests to a DynamoDB table: conditional puts, consistent reads, deletes, its clock, and its errors.

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
from functools import lru_cache
from typing import TYPE_CHECKING, Any

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
from lakebed.model.documents import load
from lakebed.storage.contract import PutOutcome
from lakebed.storage.retries import ATTEMPTS_MAX, attempts, read_until_answered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

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
