"""Requests to ingest files: on record from their submission until an add carries them out, or they are rejected. Pure.

The add that carries a request out closes it (:class:`~lakebed.state.transactions.add_files.AddFiles`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct, structs

from lakebed.errors import Code
from lakebed.model.wording import count_text
from lakebed.state.fields import StoredAsIs, Whole
from lakebed.state.transactions.add_files import open_request, request_not_open
from lakebed.state.transactions.resolution import Description, Rejected, Repeated, TooOld

if TYPE_CHECKING:
    from lakebed.state.reference_lists import ReferenceCounts
    from lakebed.state.table_state import TableState

OPEN_REQUESTS_MAX = 100_000
"""A caller that submits faster than requests are carried out should notice before the state is full of them."""

REJECTED_MAX = 256
"""Rejected requests that are remembered, the newest: some 100 KB of each checkpoint. The log has all of them."""


class Source(Struct, frozen=True, array_like=True):
    """A user's file as it was found. ``version`` is last-modified time and ETag: the same URL with other bytes is
    another file.
    """

    url: str
    size_bytes: Whole
    version: str


class Request(Struct, frozen=True):
    """Files that a user asked to ingest, all or none, and that are not ingested yet. ``id`` is a request key.

    ``base_version`` is that of its first proposal, ``submitted`` the version that it is on record from (0 before),
    ``failures`` how often it failed, ``rejected`` the version at which it was rejected (0: it was not), and ``reason``
    why, or why it failed last.
    """

    id: str
    files: Annotated[tuple[Source, ...], Meta(min_length=1)]
    base_version: Whole
    submitted: Whole
    failures: Whole
    rejected: Whole
    reason: str

    @classmethod
    def new(cls, id: str, files: tuple[Source, ...], base_version: int) -> Request:
        """One that is not on record yet."""
        return cls(id, files, base_version, 0, 0, 0, "")

    @property
    def size_bytes(self) -> int:
        """Of all of its files."""
        return sum(file.size_bytes for file in self.files)


class SubmitRequests(StoredAsIs, frozen=True, tag="submit_requests"):
    """Put requests on record. Those that are there already, or were carried out, are left out when it is committed.

    ``request_watermark`` is the one that the submitter knew: it asks only for files that were not there before.
    """

    requests: tuple[Request, ...]
    request_watermark: Whole

    def resolve(self, state: TableState) -> SubmitRequests | Rejected | Repeated | TooOld:
        """The requests that are new."""
        names = [request.id for request in self.requests]
        if len(set(names)) != len(names) or not all(request.files for request in self.requests):
            return Rejected(Code.PROPOSAL_INVALID, "a request is there twice, or names no file")
        new = [r for r in self.requests if r.id not in state.open_requests and r.id not in state.requests]
        if not new:
            return Repeated(state.version)
        # It may have been carried out before, and its key dropped.
        oldest = min(request.base_version for request in new)
        if oldest < state.request_watermark:
            return TooOld(oldest, state.request_watermark)
        if self.request_watermark < state.request_watermark:
            # Whether files that were there before the new watermark were carried out is not on record any more.
            return Rejected(
                Code.PROPOSAL_OUTDATED,
                f"the request watermark rose from {self.request_watermark} to {state.request_watermark} meanwhile; "
                "submit again",
                {"request_watermark": state.request_watermark},
            )
        if len(state.open_requests) + len(new) > OPEN_REQUESTS_MAX:
            text = f"{len(state.open_requests)} requests are open, at most {OPEN_REQUESTS_MAX}; submit it later"
            return Rejected(Code.LIMIT_REACHED, text, {"requests_open": len(state.open_requests)})
        return SubmitRequests(tuple(new), self.request_watermark)

    def apply(self, state: TableState) -> TableState:
        """The requests are open; a rejected one of the same id is not remembered any more."""
        requests = {request.id: structs.replace(request, submitted=state.version) for request in self.requests}
        known = [name for name in requests if name in state.open_requests or name in state.requests]
        if known or len(requests) != len(self.requests):
            name = min(known, default="in one transaction")
            raise Code.TRANSACTION_IMPOSSIBLE(f"entry {state.version} submits a request twice: {name}")
        rejected = tuple(request for request in state.rejected if request.id not in requests)
        return replace(state, open_requests=state.open_requests.updated(requests), rejected=rejected)

    def describe(self, _added: ReferenceCounts, _dropped: ReferenceCounts) -> Description:
        """The number of requests and files."""
        files = count_text(sum(len(request.files) for request in self.requests), "file")
        return Description(f"{count_text(len(self.requests), 'request')} for {files}")


class FailRequest(StoredAsIs, frozen=True, tag="fail_request"):
    """A try of an open request failed; it stays open."""

    request: str
    reason: str

    def resolve(self, state: TableState) -> FailRequest | Rejected:
        """Itself, if the request is open."""
        return self if self.request in state.open_requests else request_not_open(self.request, state)

    def apply(self, state: TableState) -> TableState:
        """The request has one more failure."""
        request = open_request(state, self.request)
        request = structs.replace(request, failures=request.failures + 1, reason=self.reason)
        return replace(state, open_requests=state.open_requests.updated({request.id: request}))

    def describe(self, _added: ReferenceCounts, _dropped: ReferenceCounts) -> Description:
        """The request and the reason."""
        return Description(f"{self.request}: {self.reason}")


class RejectRequest(StoredAsIs, frozen=True, tag="reject_request"):
    """Give an open request up. It may be submitted anew, and is remembered with the reason until then."""

    request: str
    reason: str

    def resolve(self, state: TableState) -> RejectRequest | Rejected:
        """Itself, if the request is open."""
        return self if self.request in state.open_requests else request_not_open(self.request, state)

    def apply(self, state: TableState) -> TableState:
        """The request is not open any more, and remembered as rejected."""
        request = structs.replace(open_request(state, self.request), rejected=state.version, reason=self.reason)
        left = state.open_requests.updated({}, [request.id])
        return replace(state, open_requests=left, rejected=(*state.rejected, request)[-REJECTED_MAX:])

    def describe(self, _added: ReferenceCounts, _dropped: ReferenceCounts) -> Description:
        """The request and the reason."""
        return Description(f"{self.request}: {self.reason}")
