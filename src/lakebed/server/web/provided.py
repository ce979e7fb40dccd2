"""What handlers declare as parameters: what the application provides to them, and the parts of paths."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import anyio
from litestar import Request
from litestar.di import NamedDependency
from litestar.enums import RequestEncodingType
from litestar.params import Body, FromPath

from lakebed.server.security.principal import Principal
from lakebed.server.service.query_runs import SubmittedQueries
from lakebed.server.service.room import Room
from lakebed.server.service.service import Service
from lakebed.server.web.access import OpenTables, RequestedTable
from lakebed.server.web.limits import RequestLimits
from lakebed.server.web.row_answers import OpenAnswers
from lakebed.server.web.threads import Lookups

AnyRequest: TypeAlias = Request[Any, Any, Any]
TheService = NamedDependency[Service]
ThePrincipal = NamedDependency[Principal]
TheTables = NamedDependency[OpenTables]
TheTable = NamedDependency[RequestedTable]
TheLookups = NamedDependency[Lookups]
TheLimits = NamedDependency[RequestLimits]
TheStatements = NamedDependency[Room]
"""Statements that run at once."""
TheAnswers = NamedDependency[OpenAnswers]
TheWriters = NamedDependency[anyio.CapacityLimiter]
"""The threads of writes, which may sleep while a table has too many runs."""
TheQueries = NamedDependency[SubmittedQueries]
PathText = FromPath[str]
FormBody = Annotated[dict[str, str], Body(media_type=RequestEncodingType.URL_ENCODED)]


def requested_table(tables: TheTables, principal: ThePrincipal, table: PathText) -> RequestedTable:
    """Return the table that a path with ``{table:str}`` names."""
    return RequestedTable(tables, principal, table)
