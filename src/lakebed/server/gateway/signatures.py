"""Verifies signatures of requests: AWS Signature Version 4, in the header ``Authorization`` or presigned in the URL.

Core types: :class:`SignedRequest`, a request as it was sent; :func:`signer_of`, which returns the id of the key that
signed it. Pure: no I/O, and the time is an argument.

Rules:

* Every request is signed. What a signature covers is what the request does: its method, path, whole query and the
  signed headers, among which are ``host`` and each header ``x-amz-…`` that was sent.
* The path is decoded, and encoded again as S3 does it: clients differ in what they encode before they send it. An
  encoded slash is therefore no slash, and its signature does not match.
* A request with headers is accepted for 15 minutes before and after its time, a presigned one until it expires, within
  seven days. Both may be repeated, since nothing is written.
* The region of the scope may be any. Bodies are not read, so a signed digest of one must be that of no bytes.

Errors: :class:`~lakebed.server.gateway.s3_errors.S3Error`. Source: "Authenticating Requests (AWS Signature Version 4)"
in the API reference of Amazon S3.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import cached_property
from urllib.parse import parse_qsl, quote, unquote

from lakebed.server.gateway.s3_errors import S3Error

ALGORITHM = "AWS4-HMAC-SHA256"
SKEW = timedelta(minutes=15)
EXPIRES_MAX_S = 7 * 24 * 3600
PARAMETERS_MAX = 100
NO_BODY = hashlib.sha256(b"").hexdigest()
UNSIGNED = "UNSIGNED-PAYLOAD"

_STREAMING = "STREAMING-"
_HEADER = re.compile(
    rf"{ALGORITHM}\s+Credential=(?P<credential>[^,\s]+)\s*,\s*SignedHeaders=(?P<headers>[^,\s]+)\s*,\s*"
    r"Signature=(?P<signature>[0-9a-f]{64})"
)
_SIGNATURE = re.compile(r"[0-9a-f]{64}")
_PRESIGNED = ("X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Date", "X-Amz-Expires", "X-Amz-SignedHeaders")
_ONCE = ("authorization", "host", "x-amz-date", "x-amz-content-sha256", "range")
"""Headers that decide something: of two, a proxy in front and this service could take different ones."""


@dataclass(frozen=True)
class SignedRequest:
    """A request as it was sent: ``path`` and ``query`` encoded, names of ``headers`` in lower case."""

    method: str
    path: str
    query: str
    headers: Sequence[tuple[str, str]]

    @cached_property
    def decoded_path(self) -> str:
        """The path. Raises S3Error if it is not UTF-8."""
        try:
            return unquote(self.path, errors="strict")
        except UnicodeDecodeError:
            raise S3Error("InvalidURI", "the path is not UTF-8") from None

    @cached_property
    def parameters(self) -> Sequence[tuple[str, str]]:
        """The parameters of the query, in its order. Raises S3Error for too many, and for text that is not UTF-8."""
        try:
            return parse_qsl(self.query, keep_blank_values=True, errors="strict", max_num_fields=PARAMETERS_MAX)
        except ValueError:
            raise S3Error(
                "InvalidURI", f"the query is not UTF-8, or has more than {PARAMETERS_MAX} parameters"
            ) from None

    @cached_property
    def by_name(self) -> Mapping[str, str]:
        """The parameters. Raises S3Error for one that was sent twice."""
        found = dict(self.parameters)
        if len(found) < len(self.parameters):
            names = [name for name, _ in self.parameters]
            twice = next(name for name in names if names.count(name) > 1)
            raise S3Error("InvalidArgument", f"the parameter {twice} was sent twice")
        return found

    @cached_property
    def _by_header(self) -> Mapping[str, str]:
        found: dict[str, list[str]] = {}
        for name, value in self.headers:
            found.setdefault(name, []).append(" ".join(value.split()))
        return {name: ",".join(values) for name, values in found.items()}

    def header(self, name: str) -> str | None:
        """Return the values of a header as one; None if it was not sent."""
        return self._by_header.get(name)


@dataclass(frozen=True, slots=True)
class _Signature:
    """What a request says of its signature: key, scope, the headers that it covers, and the time at which it began."""

    key_id: str
    scope: tuple[str, ...]
    headers: tuple[str, ...]
    signature: str
    time: str
    payload: str

    @property
    def signed_at(self) -> datetime:
        return datetime.strptime(self.time, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)


def signer_of(request: SignedRequest, secret_of: Callable[[str], str], now: datetime) -> str:
    """Return the id of the key whose secret signed the request.

    ``secret_of`` raises S3Error for the id of a key that does not exist, or may not be used any more.
    """
    names = [name for name, _ in request.headers]
    if twice := next((name for name in _ONCE if names.count(name) > 1), None):
        raise S3Error("InvalidRequest", f"the header {twice} was sent twice")
    in_query = "X-Amz-Signature" in request.by_name or "X-Amz-Algorithm" in request.by_name
    authorization = request.header("authorization")
    if in_query and authorization is not None:
        raise S3Error("InvalidArgument", "sign either the URL or the header Authorization, not both")
    if "x-amz-security-token" in names or "X-Amz-Security-Token" in request.by_name:
        raise S3Error("InvalidToken", "access keys of Lakebed have no session token; leave it out")
    if in_query:
        found = _presigned(request, now)
    elif authorization is not None:
        found = _in_headers(request, authorization, now)
    elif "AWSAccessKeyId" in request.by_name:
        raise S3Error("InvalidRequest", f"only signatures by {ALGORITHM} are accepted (signature_version s3v4)")
    else:
        raise S3Error(
            "AccessDenied", "the request is not signed: create an access key with `lakebed access-key create`"
        )
    _check_headers(found, names)
    secret = secret_of(found.key_id)
    expected = signature_of(request, found, secret)
    if not hmac.compare_digest(expected, found.signature):
        raise S3Error(
            "SignatureDoesNotMatch",
            "the signature is not that of the request and the secret of its access key: check the secret, and that no "
            "proxy changes the path, the query or the header host",
        )
    return found.key_id


def signature_of(request: SignedRequest, signature: _Signature, secret: str) -> str:
    """Return the signature of a request by this secret, in hex."""
    lines = [f"{name}:{request.header(name) or ''}" for name in signature.headers]
    pairs = sorted((quote(n, safe="~"), quote(v, safe="~")) for n, v in request.parameters if n != "X-Amz-Signature")
    canonical = "\n".join(
        (
            request.method,
            quote(request.decoded_path, safe="/~"),
            "&".join(f"{name}={value}" for name, value in pairs),
            *lines,
            "",
            ";".join(signature.headers),
            signature.payload,
        )
    )
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    text = "\n".join((ALGORITHM, signature.time, "/".join(signature.scope), digest))
    key = f"AWS4{secret}".encode()
    for part in signature.scope:
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.digest(key, text.encode(), "sha256").hex()


def _in_headers(request: SignedRequest, authorization: str, now: datetime) -> _Signature:
    match = _HEADER.fullmatch(authorization)
    if match is None:
        if not authorization.startswith(ALGORITHM):
            raise S3Error("InvalidRequest", f"only signatures by {ALGORITHM} are accepted")
        raise S3Error(
            "AuthorizationHeaderMalformed", "send Credential=…, SignedHeaders=…, Signature=… after the algorithm"
        )
    payload = request.header("x-amz-content-sha256")
    if payload is None:
        raise S3Error("InvalidRequest", "the header x-amz-content-sha256 is missing")
    key_id, scope = _credential(match["credential"], "AuthorizationHeaderMalformed")
    time = request.header("x-amz-date") or _amz_date(request.header("date"))
    headers = tuple(match["headers"].split(";"))
    found = _Signature(key_id, scope, headers, match["signature"], time, payload)
    if abs(_time_of(found, "AccessDenied") - now) > SKEW:
        raise S3Error(
            "RequestTimeTooSkewed",
            f"the request says it is {time}, and here it is {now:%Y%m%dT%H%M%SZ}: more than 15 minutes apart; set the "
            "clock of the client",
        )
    if request.method in ("GET", "HEAD") and payload not in (NO_BODY, UNSIGNED) and not payload.startswith(_STREAMING):
        raise S3Error("XAmzContentSHA256Mismatch", "x-amz-content-sha256 is not that of a request without a body")
    return found


def _presigned(request: SignedRequest, now: datetime) -> _Signature:
    given = request.by_name
    code = "AuthorizationQueryParametersError"
    if missing := next((name for name in (*_PRESIGNED, "X-Amz-Signature") if name not in given), None):
        raise S3Error(code, f"the parameter {missing} is missing")
    if given["X-Amz-Algorithm"] != ALGORITHM:
        raise S3Error(code, f"X-Amz-Algorithm must be {ALGORITHM}")
    if not _SIGNATURE.fullmatch(given["X-Amz-Signature"]):
        raise S3Error("SignatureDoesNotMatch", "X-Amz-Signature must be 64 hex digits")
    expires = given["X-Amz-Expires"]
    if not expires.isascii() or not expires.isdigit() or len(expires) > 9 or not 1 <= int(expires) <= EXPIRES_MAX_S:
        raise S3Error(code, f"X-Amz-Expires must be between 1 and {EXPIRES_MAX_S} seconds, a week")
    key_id, scope = _credential(given["X-Amz-Credential"], code)
    headers = tuple(given["X-Amz-SignedHeaders"].split(";"))
    found = _Signature(key_id, scope, headers, given["X-Amz-Signature"], given["X-Amz-Date"], UNSIGNED)
    signed_at = _time_of(found, code)
    if signed_at > now + SKEW:
        raise S3Error("AccessDenied", f"the request is not valid before {found.time}")
    if now > signed_at + timedelta(seconds=int(expires)):
        raise S3Error("AccessDenied", f"the request has expired: it was signed at {found.time} for {expires} seconds")
    return found


def _credential(text: str, code: str) -> tuple[str, tuple[str, ...]]:
    key_id, *scope = text.split("/")
    if len(scope) != 4 or not key_id or scope[2:] != ["s3", "aws4_request"]:
        raise S3Error(code, "the credential must be KEY/YYYYMMDD/REGION/s3/aws4_request")
    return key_id, tuple(scope)


def _time_of(signature: _Signature, code: str) -> datetime:
    try:
        time = signature.signed_at
    except ValueError:
        raise S3Error(code, "the time of the request must be given as 20260131T120000Z") from None
    if signature.scope[0] != signature.time[:8]:
        raise S3Error(code, f"the date of the credential is {signature.scope[0]}, and that of the request another")
    return time


def _amz_date(date: str | None) -> str:
    """Return the time of the header Date, as x-amz-date has it."""
    try:
        return parsedate_to_datetime(date or "").astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")
    except (TypeError, ValueError, OverflowError):
        raise S3Error("AccessDenied", "the request has no valid header x-amz-date or date") from None


def _check_headers(signature: _Signature, sent: Sequence[str]) -> None:
    signed = frozenset(signature.headers)
    if len(signed) < len(signature.headers):
        # The value of each is part of what is hashed, as often as it is named.
        raise S3Error("InvalidRequest", "a header is signed twice")
    if "host" not in signed:
        raise S3Error("AccessDenied", "the header host must be signed")
    if unsigned := next((one for one in sent if one.startswith("x-amz-") and one not in signed), None):
        raise S3Error("AccessDenied", f"the header {unsigned} was sent and is not signed")
