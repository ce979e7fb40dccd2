"""Requests to ingest files: recorded from submission until an add carries them out, or until they are rejected. Pure.

The add that carries out a request closes it (:class:`~lakebed.model.state.transactions.add_files.AddFiles`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs
from msgspec.structs import replace

from lakebed.errors import Code
from lakebed.model.state.fields import StoredAsIs, Whole
from lakebed.model.state.table_state import IngestRequest
from lakebed.model.state.transactions.add_files import open_request, request_not_open
from lakebed.model.state.transactions.resolution import Description, Rejected, Repeated, TooOld
from lakebed.model.wording import count_text

if TYPE_CHECKING:
    from lakebed.model.state.reference_lists import ReferenceCounts
    from lakebed.model.state.table_state import TableState

OPEN_REQUESTS_MAX = 100_000
"""Maximum open requests. A caller that submits faster than requests are carried out gets an error before the state is
too large."""

REJECTED_MAX = 256
"""Number of rejected requests that the state keeps, the latest: some 100 KB of each checkpoint. The log has all of
them."""


class SubmitRequests(StoredAsIs, frozen=True, tag="submit_requests"):
    """Record requests. Those that are already on record, or were carried out, are left out at the commit.

    ``request_watermark`` is the one that the submitter read: its request contains only files that were not there
    before.
    """

    requests: tuple[IngestRequest, ...]
    request_watermark: Whole

    def resolve(self, state: TableState) -> SubmitRequests | Rejected | Repeated | TooOld:
        """Return the requests that are new."""
        names = [request.id for request in self.requests]
        if len(set(names)) != len(names) or not all(request.files for request in self.requests):
            return Rejected(Code.PROPOSAL_INVALID, "a request is there twice, or names no file")
        new = [r for r in self.requests if r.id not in state.open_requests and r.id not in state.requests]
        if not new:
            return Repeated(state.version)
        # The request may have been carried out, and its key dropped.
        oldest = min(request.base_version for request in new)
        if oldest < state.request_watermark:
            return TooOld(oldest, state.request_watermark)
        if self.request_watermark < state.request_watermark:
            # The record of files carried out before the new watermark is gone.
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
        """Return the state with the requests open; rejected requests with the same ids are removed."""
        requests = {request.id: structs.replace(request, submitted=state.version) for request in self.requests}
        known = [name for name in requests if name in state.open_requests or name in state.requests]
        if known or len(requests) != len(self.requests):
            name = min(known, default="in one transaction")
            raise Code.TRANSACTION_IMPOSSIBLE(f"entry {state.version} submits a request twice: {name}")
        rejected = tuple(request for request in state.rejected if request.id not in requests)
        return replace(state, open_requests=state.open_requests.updated(requests), rejected=rejected)

    def describe(self, _added: ReferenceCounts, _dropped: ReferenceCounts) -> Description:
        """Report the number of requests and files."""
        files = count_text(sum(len(request.files) for request in self.requests), "file")
        return Description(f"{count_text(len(self.requests), 'request')} for {files}")


class FailRequest(StoredAsIs, frozen=True, tag="fail_request"):
    """Record a failed attempt of an open request, which stays open."""

    request: str
    reason: str

    def resolve(self, state: TableState) -> FailRequest | Rejected:
        """Return self if the request is open."""
        return self if self.request in state.open_requests else request_not_open(self.request, state)

    def apply(self, state: TableState) -> TableState:
        """Return the state with one more failure of the request."""
        request = open_request(state, self.request)
        request = structs.replace(request, failures=request.failures + 1, reason=self.reason)
        return replace(state, open_requests=state.open_requests.updated({request.id: request}))

    def describe(self, _added: ReferenceCounts, _dropped: ReferenceCounts) -> Description:
        """Report the request and the reason."""
        return Description(f"{self.request}: {self.reason}")


class RejectRequest(StoredAsIs, frozen=True, tag="reject_request"):
    """Reject an open request. It is kept with the reason until it is submitted again."""

    request: str
    reason: str

    def resolve(self, state: TableState) -> RejectRequest | Rejected:
        """Return self if the request is open."""
        return self if self.request in state.open_requests else request_not_open(self.request, state)

    def apply(self, state: TableState) -> TableState:
        """Return the state with the request rejected."""
        request = structs.replace(open_request(state, self.request), rejected=state.version, reason=self.reason)
        still_open = state.open_requests.updated({}, [request.id])
        return replace(state, open_requests=still_open, rejected=(*state.rejected, request)[-REJECTED_MAX:])

    def describe(self, _added: ReferenceCounts, _dropped: ReferenceCounts) -> Description:
        """Report the request and the reason."""
        return Description(f"{self.request}: {self.reason}")
