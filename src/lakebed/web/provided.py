"""What handlers declare as parameters: what the application provides to them, and the parts of paths."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import anyio
from litestar import Request
from litestar.di import NamedDependency
from litestar.enums import RequestEncodingType
from litestar.params import Body, FromPath

from lakebed.security.principal import Principal
from lakebed.service.query_runs import SubmittedQueries
from lakebed.service.room import Room
from lakebed.service.service import Service
from lakebed.web.access import OpenTables, RequestedTable
from lakebed.web.limits import RequestLimits
from lakebed.web.row_answers import OpenAnswers
from lakebed.web.threads import Lookups

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
