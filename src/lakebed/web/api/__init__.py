"""The API for programs, below ``/v1``, and what probes and collectors ask for."""

from lakebed.web.api import commits, document, health, job_runs, metrics, queries, reads, submissions, tables, writes

ROUTES = (
    *commits.ROUTES,
    *document.ROUTES,
    *health.ROUTES,
    *job_runs.ROUTES,
    *metrics.ROUTES,
    *queries.ROUTES,
    *reads.ROUTES,
    *submissions.ROUTES,
    *tables.ROUTES,
    *writes.ROUTES,
)
