"""Tables and their rows."""

from __future__ import annotations

from litestar import get

from lakebed.security.principal import Principal
from lakebed.service.service import Service


@get("/v1/tables", sync_to_thread=True, tags=["tables"])
def list_tables(service: Service, principal: Principal) -> dict[str, list[str]]:
    """The names of the tables that the principal may read, sorted."""
    return {"tables": principal.visible(service.instance.tables())}


ROUTES = (list_tables,)
