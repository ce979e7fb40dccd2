"""The documents of S3 about buckets: what clients ask of a listing, and the answers. Pure.

Errors: S3Error for parameters that S3 would refuse, and for those of operations that there are not. Source:
ListObjectsV2, ListBuckets and GetBucketLocation in the API reference of Amazon S3.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote

from lakebed.server.gateway.bucket import KEYS_MAX, Listing, ListRequest
from lakebed.server.gateway.preconditions import Representation
from lakebed.server.gateway.s3_errors import S3Error, text_of

_NAMESPACE = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
_HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'
_LIST = frozenset(
    ("list-type", "prefix", "delimiter", "max-keys", "continuation-token", "start-after", "encoding-type",
     "fetch-owner")
)  # fmt: skip
_BEGINNING, _KEY = "b", "k"


def check_parameters(given: Mapping[str, str], known: Iterable[str] = ()) -> None:
    """Raise S3Error for a parameter other than these, those of a signature, and what clients say of themselves."""
    unknown = next((name for name in given if name not in known and not name.lower().startswith("x-")), None)
    if unknown is not None:
        raise S3Error("NotImplemented", f"{unknown[:100]!r} is no parameter here: this is a read-only view of tables")


def list_request(given: Mapping[str, str]) -> ListRequest:
    """Return what a request ListObjectsV2 asks for. Raises S3Error."""
    if given.get("list-type") != "2":
        raise S3Error("NotImplemented", "only ListObjectsV2 is here (list-type=2); set the client to it")
    check_parameters(given, _LIST)
    if given.get("encoding-type", "url") != "url":
        raise S3Error("InvalidArgument", "encoding-type must be url")
    if given.get("fetch-owner", "false") not in ("true", "false"):
        raise S3Error("InvalidArgument", "fetch-owner must be true or false")
    number = given.get("max-keys", str(KEYS_MAX))
    if not number.isascii() or not number.isdigit() or len(number) > 10:
        raise S3Error("InvalidArgument", f"max-keys must be a number from 0 to 2147483647, not {number[:100]}")
    after, is_beginning = given.get("start-after", ""), False
    if "continuation-token" in given:
        after, is_beginning = _opened(given["continuation-token"])
    return ListRequest(
        given.get("prefix", ""), given.get("delimiter", ""), after, min(int(number), KEYS_MAX), is_beginning
    )


@dataclass(frozen=True, slots=True)
class ListedObject:
    """A key of a page, and its object."""

    key: str
    representation: Representation


def list_answer(
    bucket: str, given: Mapping[str, str], asked: ListRequest, page: Listing, listed: Iterable[ListedObject]
) -> bytes:
    """Return the document of a page."""
    coded = (lambda text: quote(text, safe="/")) if "encoding-type" in given else (lambda text: text)
    top = {"Name": bucket, "Prefix": coded(asked.prefix)}
    if asked.delimiter:
        top["Delimiter"] = coded(asked.delimiter)
    if "start-after" in given:
        top["StartAfter"] = coded(given["start-after"])
    if "continuation-token" in given:
        top["ContinuationToken"] = given["continuation-token"]
    if "encoding-type" in given:
        top["EncodingType"] = "url"
    top["MaxKeys"] = str(asked.keys_max)
    top["KeyCount"] = str(len(page.objects) + len(page.beginnings))
    top["IsTruncated"] = "true" if page.is_truncated else "false"
    if page.is_truncated:
        kind = _BEGINNING if page.last_is_beginning else _KEY
        top["NextContinuationToken"] = base64.urlsafe_b64encode(f"{kind}{page.last}".encode()).decode()
    contents = [
        "<Contents>"
        + _elements(
            {
                "Key": coded(one.key),
                "LastModified": _time(one.representation.last_modified),
                "ETag": f'"{one.representation.tag}"',
                "Size": str(one.representation.size_bytes),
                "StorageClass": "STANDARD",
            }
        )
        + "</Contents>"
        for one in listed
    ]
    beginnings = [f"<CommonPrefixes>{_elements({'Prefix': coded(one)})}</CommonPrefixes>" for one in page.beginnings]
    inner = "".join((_elements(top), *contents, *beginnings))
    return f"{_HEAD}<ListBucketResult {_NAMESPACE}>{inner}</ListBucketResult>".encode()


def buckets_answer(bucket: str, created: datetime, principal: str) -> bytes:
    """Return the document of the only bucket, for its reader."""
    owner = _elements({"ID": principal, "DisplayName": principal})
    one = _elements({"Name": bucket, "CreationDate": _time(created)})
    inner = f"<Owner>{owner}</Owner><Buckets><Bucket>{one}</Bucket></Buckets>"
    return f"{_HEAD}<ListAllMyBucketsResult {_NAMESPACE}>{inner}</ListAllMyBucketsResult>".encode()


def location_answer() -> bytes:
    """Return the document of the bucket's region: none, which stands for us-east-1."""
    return f"{_HEAD}<LocationConstraint {_NAMESPACE}/>".encode()


def _opened(token: str) -> tuple[str, bool]:
    """Return the last key, or beginning of keys, of the page before."""
    try:
        text = base64.b64decode(token.encode(), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        text = ""
    if text[:1] not in (_BEGINNING, _KEY):
        raise S3Error("InvalidArgument", "the continuation token is none of this gateway; list again")
    return text[1:], text[0] == _BEGINNING


def _elements(values: Mapping[str, str]) -> str:
    return "".join(f"<{name}>{text_of(value)}</{name}>" for name, value in values.items())


def _time(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
