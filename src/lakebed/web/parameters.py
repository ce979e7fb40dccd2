"""Refuses parameters in the URL of a request to the API that its handler does not have: ``limt=10`` is no limit."""

from __future__ import annotations

from functools import cache
from typing import Any

from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler

from lakebed.errors import Code

_RESERVED = frozenset({"request", "data", "body"})
"""What Litestar gives to a handler under these names is no parameter."""


def check_parameters(connection: ASGIConnection[Any, Any, Any, Any]) -> None:
    """Raises UsageError, with the parameters that there are."""
    if not connection.scope["path"].startswith("/v1/") or not connection.scope["query_string"]:
        return
    known = [name for name in _parameters(connection.route_handler) if name not in connection.scope["path_params"]]
    unknown = [name for name in connection.query_params if name not in known]
    if unknown:
        raise Code.REQUEST_INVALID(
            f"unknown parameter {unknown[0]!r} in the URL; the parameters here: {', '.join(known) or 'none'}"
        )


@cache
def _parameters(handler: BaseRouteHandler) -> tuple[str, ...]:
    provided = {*_RESERVED, *handler.resolve_dependencies()}
    # A word that Python keeps for itself has a line behind it in the handler.
    return tuple(name.rstrip("_") for name in handler.parsed_fn_signature.parameters if name not in provided)
