"""The API for programs, below ``/v1``, and what probes and collectors ask for."""

from lakebed.web.api import (
    commits,
    inspections,
    job_runs,
    queries,
    reads,
    service_status,
    submissions,
    table_versions,
    tables,
    writes,
)

ROUTES = (
    *commits.ROUTES,
    *inspections.ROUTES,
    *job_runs.ROUTES,
    *queries.ROUTES,
    *reads.ROUTES,
    *service_status.ROUTES,
    *submissions.ROUTES,
    *table_versions.ROUTES,
    *tables.ROUTES,
    *writes.ROUTES,
)
