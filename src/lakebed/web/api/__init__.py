"""The API for programs, below ``/v1``, and what probes and collectors ask for."""

from lakebed.web.api import commits, health, metrics, tables

ROUTES = (*commits.ROUTES, *health.ROUTES, *metrics.ROUTES, *tables.ROUTES)
