"""The documents of S3 about buckets: what clients ask of a listing, and the answers. Pure.

Errors: S3Error for parameters that S3 would refuse, and for those of operations that there are not. Source:
ListObjectsV2, ListObjects, ListBuckets and GetBucketLocation in the API reference of Amazon S3.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote

from lakebed.server.gateway.bucket import KEYS_MAX, Listing, ListRequest, beginning_of
from lakebed.server.gateway.preconditions import Representation
from lakebed.server.gateway.s3_errors import S3Error, text_of

_NAMESPACE = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
_HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'
_LIST = ("prefix", "delimiter", "max-keys", "encoding-type")
_LIST_1, _LIST_2 = (*_LIST, "marker"), (*_LIST, "list-type", "continuation-token", "start-after", "fetch-owner")
"""The parameters of ListObjects, which some tools still call, and of ListObjectsV2."""

_BEGINNING, _KEY = "b", "k"


def check_parameters(given: Mapping[str, str], known: Iterable[str] = ()) -> None:
    """Raise S3Error for a parameter other than these, those of a signature, and what clients say of themselves."""
    unknown = next((name for name in given if name not in known and not name.lower().startswith("x-")), None)
    if unknown is not None:
        raise S3Error("NotImplemented", f"{unknown[:100]!r} is no parameter here: this is a read-only view of tables")


def list_request(given: Mapping[str, str]) -> ListRequest:
    """Return what a request ListObjects or ListObjectsV2 asks for. Raises S3Error."""
    if given.get("list-type", "2") != "2":
        raise S3Error("NotImplemented", "list-type must be 2, or left out")
    check_parameters(given, _LIST_2 if is_version_2(given) else _LIST_1)
    if given.get("encoding-type", "url") != "url":
        raise S3Error("InvalidArgument", "encoding-type must be url")
    if given.get("fetch-owner", "false") not in ("true", "false"):
        raise S3Error("InvalidArgument", "fetch-owner must be true or false")
    number = given.get("max-keys", str(KEYS_MAX))
    if not number.isascii() or not number.isdigit() or len(number) > 10:
        raise S3Error("InvalidArgument", f"max-keys must be a number from 0 to 2147483647, not {number[:100]}")
    prefix, delimiter = given.get("prefix", ""), given.get("delimiter", "")
    after = given.get("start-after", given.get("marker", ""))
    # The marker of a page that ended with a beginning of keys does not say that it is one.
    is_beginning = "marker" in given and beginning_of(after, prefix, delimiter) == after
    if "continuation-token" in given:
        after, is_beginning = _opened(given["continuation-token"])
    return ListRequest(prefix, delimiter, after, min(int(number), KEYS_MAX), is_beginning)


def is_version_2(given: Mapping[str, str]) -> bool:
    """Return whether a listing is asked for by ListObjectsV2."""
    return "list-type" in given


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
    if "encoding-type" in given:
        top["EncodingType"] = "url"
    top["MaxKeys"] = str(asked.keys_max)
    top["IsTruncated"] = "true" if page.is_truncated else "false"
    if is_version_2(given):
        if "start-after" in given:
            top["StartAfter"] = coded(given["start-after"])
        if "continuation-token" in given:
            top["ContinuationToken"] = given["continuation-token"]
        top["KeyCount"] = str(len(page.objects) + len(page.beginnings))
        if page.is_truncated:
            kind = _BEGINNING if page.last_is_beginning else _KEY
            top["NextContinuationToken"] = base64.urlsafe_b64encode(f"{kind}{page.last}".encode()).decode()
    else:
        top["Marker"] = coded(asked.after)
        if page.is_truncated:
            top["NextMarker"] = coded(page.last)
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
