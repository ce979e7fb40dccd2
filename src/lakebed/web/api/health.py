"""``/health/live`` and ``/health/ready``."""

from __future__ import annotations

from litestar import get

from lakebed.web.provided import TheService


@get("/health/live", sync_to_thread=False, tags=["health"])
def live() -> dict[str, str]:
    """Answers while the process works."""
    return {"status": "live"}


@get("/health/ready", sync_to_thread=True, tags=["health"])
def ready(service: TheService) -> dict[str, str]:
    """Answers with 200 if the service can read its instance, with 503 if it cannot."""
    service.instance.tables()
    return {"status": "ready"}


ROUTES = (live, ready)
