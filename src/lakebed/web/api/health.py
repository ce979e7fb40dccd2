"""``/health/live`` and ``/health/ready``."""

from __future__ import annotations

from typing import Any

from litestar import Response, get

from lakebed.errors import Error
from lakebed.model.json_values import plain
from lakebed.web.error_answers import document_of, status_of
from lakebed.web.provided import TheService


@get("/health/live", sync_to_thread=False, tags=["health"])
def live() -> dict[str, str]:
    """Answers while the process works."""
    return {"status": "live"}


@get("/health/ready", sync_to_thread=True, tags=["health"])
def ready(service: TheService) -> Response[dict[str, Any]]:
    """Answers with 200 if the service can read its instance; if not with 503, why, and since when."""
    try:
        service.instance.tables()
    except Error as error:
        known = service.status().error
        since = None if known is None else plain(known.at)
        return Response({**document_of(error), "since": since}, status_code=status_of(error))
    return Response({"status": "ready"})


ROUTES = (live, ready)
