"""The API for programs, below ``/v1``, and what probes and collectors ask for."""

from lakebed.web.api import (
    commits,
    document,
    health,
    inspections,
    job_runs,
    metrics,
    queries,
    reads,
    submissions,
    table_versions,
    tables,
    writes,
)

ROUTES = (
    *commits.ROUTES,
    *document.ROUTES,
    *health.ROUTES,
    *inspections.ROUTES,
    *job_runs.ROUTES,
    *metrics.ROUTES,
    *queries.ROUTES,
    *reads.ROUTES,
    *submissions.ROUTES,
    *table_versions.ROUTES,
    *tables.ROUTES,
    *writes.ROUTES,
)
