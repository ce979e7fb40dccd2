"""Requests whose body does not come: they end with status 408, so that slow clients cannot hold a service."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
from litestar.enums import ScopeType
from litestar.exceptions import HTTPException

from lakebed import clock

if TYPE_CHECKING:
    from litestar.types import ASGIApp, HTTPReceiveMessage, Receive, Scope, Send


class BodyDeadline:
    """An application whose requests have to be there, whole, within some seconds."""

    def __init__(self, app: ASGIApp, time_s: float) -> None:
        self._app = app
        self._time_s = time_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the application."""
        if scope["type"] != ScopeType.HTTP:
            await self._app(scope, receive, send)
            return
        ends_at = clock.monotonic_s() + self._time_s
        whole = False

        async def receive_in_time() -> HTTPReceiveMessage:
            nonlocal whole
            if whole:
                return await receive()  # type: ignore[return-value]
            try:
                with anyio.fail_after(max(0.0, ends_at - clock.monotonic_s())):
                    message = await receive()
            except TimeoutError:
                raise HTTPException(
                    detail=f"the body of the request did not arrive within {self._time_s:g} s", status_code=408
                ) from None
            whole = message["type"] != "http.request" or not message.get("more_body", False)
            return message  # type: ignore[return-value]

        await self._app(scope, receive_in_time, send)
