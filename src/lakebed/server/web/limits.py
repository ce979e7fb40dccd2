"""Limits of requests, as values. Source: docs/service.md."""

from __future__ import annotations

from dataclasses import dataclass

from lakebed.server.service.query_work import QueryLimits


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """The limits of one request, and of all of them together."""

    request_bytes: int = 256 * 1024 * 1024
    """The body of a request."""
    request_s: float = 60.0
    """For the body of a request to arrive; for an answer, from its begin to its end."""
    answer_rows: int = 10_000_000
    answer_bytes: int = 16 * 1024 * 1024 * 1024
    sql_memory_bytes: int = 1024 * 1024 * 1024
    """What the process of one SQL statement may take."""
    sql_statements: int = 4
    """Statements that run at once; others wait."""
    answer_memory_bytes: int = 1024 * 1024 * 1024
    """What all open answers may hold; others wait. Those of statements are bounded by their number."""
    wait_s: float = 10.0
    """How long a request waits for room."""
    query_s: float = 6 * 3600.0
    """A submitted statement."""
    query_kept_s: float = 86_400.0
    """How long a submitted query and its rows are kept."""
    query_threads: int = 2
    """Submitted queries that run at once."""
    threads: int = 32
    """Requests that work at once; others wait."""
    sources: tuple[str, ...] = ()
    """Places that may be read for ingest, and written for results, with the service's credentials."""

    def of_queries(self) -> QueryLimits:
        """Return the limits of submitted queries."""
        return QueryLimits(self.query_threads, self.query_kept_s, self.sql_memory_bytes, self.query_s)
