"""Commits of one log through a service, which puts the proposals of many processes into one entry.

The callers of this process queue as they do for an entry of their own (:mod:`lakebed.log.queue`); the leader sends the
proposals of all that wait in one request, and hands the lead on before it waits for the answer, while fewer than
:data:`REQUESTS_MAX` are under way. Data files, and the log that is read, stay where they are: only proposals go to the
service.

An answer does not have the state. After a commit of files the log is not read either: a fleet of writers that read all
of each other's entries would spend its time on that. Reads know the version that they must not be below
(:attr:`ThroughService.committed`). After any other outcome the log is followed at once, because what comes next is
decided by the state.

Core types. :class:`CommitService`, the connections to one service; :class:`ThroughService`, one log.

Errors. A proposal has an error in place of an outcome if it was certainly not made: the service was not reached, is not
one of this instance, or refused the request. If an answer is cut off or not understood, the outcome is *unknown*.
"""

from __future__ import annotations

import ssl
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import urllib3
from msgspec import msgpack
from urllib3 import exceptions

from lakebed import clock
from lakebed.errors import Code, Error, UnknownOutcomeError
from lakebed.log.commit_messages import INSTANCE_HEADER, MSGPACK, REQUEST_BYTES_MAX, decode_answer, encode_request
from lakebed.log.committer import LocalCommitter
from lakebed.log.outcomes import Committed, Unknown
from lakebed.log.queue import Queue, Ticket
from lakebed.model.checks import check_text
from lakebed.model.documents import load
from lakebed.model.state.proposal_codec import encode_proposal
from lakebed.model.state.transactions import ProposeFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lakebed.log.outcomes import Outcome
    from lakebed.model.state.catalog import CatalogChange, CatalogProposal, CatalogState
    from lakebed.model.state.table_state import TableState
    from lakebed.model.state.transactions import Proposal, Transaction

REQUESTS_MAX = 2
"""Requests of one log under way: while one waits for its entry, the next is on its way to the entry after. With more,
each has fewer proposals, and the service more work for as many."""

GROUP_BYTES_MAX = REQUEST_BYTES_MAX // 2
"""Proposals of one request, unless one alone is larger."""

PREAMBLE_BYTES = 4096
"""What a request has beside one proposal, at most."""

CONNECT_S, ANSWER_S = 5.0, 90.0
"""Time limits. The service gives up a lost race after 15 s, and an unclear append after about ten; a full queue in
front of it takes as long again."""

IDLE_S = 3.0
"""A connection that was idle for longer may be closed by the service at the moment at which it is used again."""

_NOT_SENT = (
    exceptions.NewConnectionError,
    exceptions.ConnectTimeoutError,
    exceptions.LocationValueError,
    exceptions.ClosedPoolError,
)
"""The request was not begun."""


@dataclass(frozen=True, slots=True)
class _Encoded:
    """An encoded proposal; ``adds_files``: the state after it is not needed."""

    data: bytes
    adds_files: bool


class CommitService:
    """The service at a URL, for the logs of one instance. Safe to use from many threads."""

    def __init__(self, url: str, instance: str, token: str | None = None) -> None:
        self.url = check_service_url(url)
        self.instance = instance
        self.token = token
        self._headers = {"Content-Type": MSGPACK, "Accept": MSGPACK}
        if token is not None:
            check_text("token", token)
            self._headers["Authorization"] = f"Bearer {token}"
        self._pool = urllib3.PoolManager(
            maxsize=16, timeout=urllib3.Timeout(connect=CONNECT_S, read=ANSWER_S), retries=False
        )
        self._using = threading.Lock()
        self._used_s = 0.0

    def __repr__(self) -> str:
        return f"<commits through {self.url}>"

    def commit(self, log: str, proposals: Sequence[bytes]) -> tuple[int, list[Outcome | Error]]:
        """Send encoded proposals for a log; return the version that the service has read, and the outcomes.

        ``log`` is its part of the URL: ``catalog``, or ``tables/`` and the id of the table.

        Raises StorageError, UsageError, AccessError or ContentionError if none was made; UnknownOutcomeError if one
        may have been.
        """
        self._drop_idle()
        url = f"{self.url}/v1/{log}/commits"
        body = encode_request(self.instance, proposals)
        try:
            answer = self._pool.request("POST", url, body=body, headers=self._headers, redirect=False)
        except exceptions.HTTPError as error:
            if not isinstance(error, _NOT_SENT) and not _in_handshake(error):
                raise self._unclear(_reason(error)) from error
            raise Code.COMMIT_SERVICE_UNREACHABLE(
                f"the service at {self.url}, through which commits go, cannot be reached: {_reason(error)}; nothing "
                "was committed. Start it, or correct commit_via",
                url=self.url,
                transient=True,
            ) from error
        if answer.status != 200:
            raise self._refusal(answer)
        if answer.headers.get(INSTANCE_HEADER) is None:
            raise self._mismatch("what answers there is no service of Lakebed")
        try:
            version, outcomes = decode_answer(answer.data)
        except ValueError as error:
            raise self._unclear(str(error)) from error
        if len(outcomes) != len(proposals):
            raise self._unclear(f"{len(outcomes)} outcomes came for {len(proposals)} proposals")
        return version, outcomes

    def of_table(self, table_id: str) -> Callable[[LocalCommitter[TableState, Proposal, Transaction]], ThroughService]:
        """Return what makes the committer of one table."""
        return lambda local: ThroughService(self, f"tables/{table_id}", local, encode_proposal)

    def of_catalog(self, local: LocalCommitter[CatalogState, CatalogProposal, CatalogChange]) -> ThroughService:
        """Return the committer of the catalog."""
        return ThroughService(self, "catalog", local, msgpack.encode)

    def _drop_idle(self) -> None:
        with self._using:
            now_s = clock.monotonic_s()
            if now_s - self._used_s > IDLE_S:
                self._pool.clear()
            self._used_s = now_s

    def _refusal(self, answer: Any) -> Error:
        """Return the error for an answer with another status."""
        try:
            error = load(answer.data)["error"]
            code, message = Code(error["code"]), str(error["message"])
        except (ValueError, KeyError, TypeError):
            if answer.status >= 500:
                # From a proxy, which may have forwarded the request.
                return self._unclear(f"status {answer.status}")
            return self._mismatch(f"what answers there is no service of Lakebed, or an older one: {answer.status}")
        if answer.status >= 500 and answer.status != 503:
            return self._unclear(message)
        if answer.status == 503:
            return code(f"{message} (the service at {self.url})", url=self.url, transient=True)
        return code(f"{message} (the service at {self.url})", url=self.url)

    def _mismatch(self, what: str) -> Error:
        text = f"commit_via = {self.url}: {what}; nothing was committed. Give the URL of `lakebed serve`"
        return Code.COMMIT_SERVICE_MISMATCH(text, url=self.url)

    def _unclear(self, what: str) -> Error:
        return Code.COMMIT_UNKNOWN(f"the service at {self.url} gave no clear answer: {what}", url=self.url)


class ThroughService:
    """A :class:`~lakebed.log.committer.Committer` through a service.

    ``encode`` returns None for a proposal that no service takes; the ``local`` committer commits it.
    """

    def __init__(
        self,
        service: CommitService,
        log: str,
        local: LocalCommitter[Any, Any, Any],
        encode: Callable[[Any], bytes | None],
    ) -> None:
        self.committed = 0
        self._service = service
        self._log = log
        self._local = local
        self._tail = local.tail
        self._encode = encode
        self._queue = Queue[_Encoded]()
        self._slots = threading.BoundedSemaphore(REQUESTS_MAX)
        self._noting = threading.Lock()

    def commit(self, proposal: Any) -> Outcome:
        """Propose one change; return its outcome. Raises the error of a proposal that was not made."""
        data = self._encode(proposal)
        if data is None or len(data) > REQUEST_BYTES_MAX - PREAMBLE_BYTES:
            return self._local.commit(proposal)
        return self._queue.commit(_Encoded(data, isinstance(proposal, ProposeFiles)), self._lead)

    def _lead(self, ticket: Ticket[_Encoded]) -> None:
        """Send a request for all waiting callers. While the answer is awaited, the next leader sends the next one."""
        held = False
        group: Sequence[Ticket[_Encoded]] = ()
        try:
            try:
                held = self._slots.acquire()
                if clock.monotonic_s() - self._tail.proven_s > self._tail.limits.fresh_s:
                    self._tail.follow()
                group = self._queue.take(ticket)
            finally:
                self._queue.hand_on(ticket, group)
            for part in _parts(group):
                self._send(part)
        finally:
            if held:
                self._slots.release()
            # However this ended, every caller is woken.
            for one in group:
                one.outcome = one.outcome or self._unknown()
            self._queue.wake(one for one in group if one is not ticket)

    def _send(self, group: Sequence[Ticket[_Encoded]]) -> None:
        """Send one request, and set the outcomes."""
        # Before it is sent: after an interrupt its outcome is not known.
        for ticket in group:
            ticket.outcome = self._unknown()
        try:
            version, outcomes = self._service.commit(self._log, [ticket.proposal.data for ticket in group])
        except UnknownOutcomeError:
            return
        except Error as error:
            for ticket in group:
                ticket.outcome = error
            return
        rest = []
        for ticket, outcome in zip(group, outcomes, strict=True):
            if isinstance(outcome, Committed):
                self._note(outcome.version)
            if isinstance(outcome, Committed) and ticket.proposal.adds_files:
                ticket.outcome = outcome
            else:
                rest.append((ticket, outcome))
        # Their callers read the state. If it cannot be read, the outcomes remain unknown.
        with suppress(Error):
            if rest and self._tail.head.version < version:
                self._tail.follow()
            for ticket, outcome in rest:
                ticket.outcome = outcome

    def _note(self, version: int) -> None:
        with self._noting:
            self.committed = max(self.committed, version)

    def _unknown(self) -> Unknown:
        return Unknown(self._tail.head.version + 1, f"the service at {self._service.url}")


def check_service_url(url: str) -> str:
    """Return the URL without a slash at its end. Raises UsageError if it cannot be that of a service."""
    check_text("commit_via", url)
    parts = urlsplit(url)
    if parts.username or parts.password:
        # Without the value, which contains a secret.
        raise Code.URL_HAS_CREDENTIALS("commit_via has a user or a password in its URL; give the token as `token`")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise Code.URL_INVALID(f"commit_via = {url!r} is not the URL of a service, such as http://lake.example:8017")
    return url.rstrip("/")


def _parts(group: Sequence[Ticket[_Encoded]]) -> Iterator[list[Ticket[_Encoded]]]:
    """Return the group in requests of at most :data:`GROUP_BYTES_MAX`."""
    part: list[Ticket[_Encoded]] = []
    size_bytes = 0
    for ticket in group:
        size_bytes += len(ticket.proposal.data)
        if part and size_bytes > GROUP_BYTES_MAX:
            yield part
            part, size_bytes = [], len(ticket.proposal.data)
        part.append(ticket)
    yield part


def _in_handshake(error: exceptions.HTTPError) -> bool:
    """Return whether TLS failed before anything was sent: by a certificate, or because the server has no TLS."""
    inner = error.args[0] if isinstance(error, exceptions.SSLError) and error.args else None
    no_tls = isinstance(inner, ssl.SSLError) and inner.reason == "WRONG_VERSION_NUMBER"
    return no_tls or isinstance(inner, ssl.SSLCertVerificationError)


def _reason(error: BaseException) -> str:
    """Return the message of a failed request, without addresses of Python objects."""
    inner = error.__cause__ or error.__context__
    return f"{type(error).__name__}: {inner}" if isinstance(inner, OSError) else type(error).__name__
