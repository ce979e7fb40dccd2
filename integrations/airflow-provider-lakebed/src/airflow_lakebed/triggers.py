"""Triggers that wait for work of a service: each looks at it every ``poll_s`` seconds, and no worker waits.

What a trigger waits for is in the service, under an id: a triggerer that restarts makes the trigger anew from its
arguments, and goes on. A service that does not answer is asked again for :data:`AWAY_MAX_S`. If the task is stopped by
a user, the work is cancelled; if a triggerer ends, it is not.

Core types: :class:`QueryTrigger`, :class:`RequestsTrigger`. The event is a dict: ``error`` if the work failed, and
otherwise what came of it.
"""

import abc
import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

import lakebed
from airflow_lakebed.hooks import LakebedHook

AWAY_MAX_S = 600.0
"""How long a service may be away in a row."""

UNDER_WAY = ("queued", "running", "lost")
"""The states of a query that has not ended: a lost one is taken over by another service."""


class ServiceTrigger(BaseTrigger, abc.ABC):
    """Waits until work of a service has ended. Operators that do not defer wait by the same two methods."""

    def __init__(self, *, lakebed_conn_id: str, poll_s: float) -> None:
        super().__init__()
        self.lakebed_conn_id, self.poll_s = lakebed_conn_id, poll_s
        self._away_since: float | None = None

    @abc.abstractmethod
    def look(self, lake: Any) -> dict[str, Any] | None:
        """Return the event if the work has ended."""

    @abc.abstractmethod
    def cancel(self, lake: Any) -> None:
        """Cancel the work, if it has not ended."""

    def looked(self, lake: Any) -> dict[str, Any] | None:
        """Return the event if the work has ended; None as well while the service does not answer."""
        try:
            event = self.look(lake)
        except lakebed.StorageError as error:
            now = time.monotonic()
            self._away_since = now if self._away_since is None else self._away_since
            if now - self._away_since > AWAY_MAX_S:
                return {"error": str(error)}
            self.log.warning("%s; looking again in %s s", error, self.poll_s)
            return None
        except lakebed.Error as error:
            return {"error": str(error)}
        self._away_since = None
        return event

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class and its arguments."""
        arguments = {name: value for name, value in vars(self).items() if name in self._arguments}
        return f"{type(self).__module__}.{type(self).__qualname__}", arguments

    _arguments: tuple[str, ...] = ("lakebed_conn_id", "poll_s")

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look until the work has ended."""
        hook = await self._hook()
        with hook.instance() as lake:
            while (event := await asyncio.to_thread(self.looked, lake)) is None:  # noqa: ASYNC110 - nothing wakes it
                await asyncio.sleep(self.poll_s)
        yield TriggerEvent(event)

    async def on_kill(self) -> None:
        """Cancel the work: a user has stopped the task."""
        hook = await self._hook()
        with hook.instance() as lake:
            await asyncio.to_thread(self.cancel, lake)

    async def _hook(self) -> LakebedHook:
        connection = await LakebedHook.aget_connection(self.lakebed_conn_id)
        return LakebedHook(self.lakebed_conn_id, connection=connection)


class QueryTrigger(ServiceTrigger):
    """Waits for a submitted query; its event has ``rows`` and ``files``."""

    _arguments = ("lakebed_conn_id", "poll_s", "query_id")

    def __init__(self, *, lakebed_conn_id: str, query_id: str, poll_s: float = 10.0) -> None:
        super().__init__(lakebed_conn_id=lakebed_conn_id, poll_s=poll_s)
        self.query_id = query_id

    def look(self, lake: Any) -> dict[str, Any] | None:
        """Return the event if the query has ended."""
        state = lake.submitted_query(self.query_id).state()
        if state.state in UNDER_WAY:
            return None
        if state.state == "completed":
            return {"rows": state.rows, "files": state.files}
        why = "" if state.error is None else f": {state.error.message}"
        return {"error": f"query {self.query_id} {state.state}{why}"}

    def cancel(self, lake: Any) -> None:
        """Cancel the query."""
        query = lake.submitted_query(self.query_id)
        if query.state().state in UNDER_WAY:
            query.cancel()


class RequestsTrigger(ServiceTrigger):
    """Waits until the files of some requests are ingested; its event has the ``version`` with all of their rows."""

    _arguments = ("lakebed_conn_id", "poll_s", "table", "requests")

    def __init__(self, *, lakebed_conn_id: str, table: str, requests: Sequence[str], poll_s: float = 10.0) -> None:
        super().__init__(lakebed_conn_id=lakebed_conn_id, poll_s=poll_s)
        self.table, self.requests = table, list(requests)

    def look(self, lake: Any) -> dict[str, Any] | None:
        """Return the event if none of the requests is open."""
        table = lake.table(self.table)
        listed = table.requests().to_pylist()
        if self._open(listed):
            return None
        versions = {one: table.outcome(one) for one in self.requests}
        if missing := [one for one, version in versions.items() if version is None]:
            reasons = {row["id"]: f"{row['url']}: {row['reason']}" for row in listed}
            why = reasons.get(missing[0], f"request {missing[0]}, which is not on record any more")
            return {"error": f"{len(missing)} of {len(versions)} files were not ingested; the first: {why}"}
        return {"version": max(versions.values())}

    def cancel(self, lake: Any) -> None:
        """Withdraw the requests that are open."""
        table = lake.table(self.table)
        if found := self._open(table.requests().to_pylist()):
            table.withdraw(*found)

    def _open(self, listed: list[dict[str, Any]]) -> list[str]:
        """Return the requests that are open; one that was rejected before may be listed as both."""
        return sorted({row["id"] for row in listed if row["state"] == "open"} & set(self.requests))
