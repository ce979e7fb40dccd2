"""Options of ``lakebed serve`` that bound requests."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from lakebed.cli.argument_types import WholeNumber

if TYPE_CHECKING:
    from lakebed.web.limits import RequestLimits

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class GivenLimits:
    """The limits that the command line gives."""

    sources: tuple[str, ...]
    request_s: float
    sql_memory_mib: int

    def in_force(self) -> RequestLimits:
        """The limits of requests."""
        from lakebed.web.limits import RequestLimits

        return RequestLimits(sources=self.sources, request_s=self.request_s, sql_memory_bytes=self.sql_memory_mib * MIB)


def request_limits(function: Callable[..., None]) -> Callable[..., None]:
    """The options, as one parameter ``limits``."""

    @click.option(
        "--allow-sources",
        "sources",
        metavar="PREFIX",
        multiple=True,
        help="Requests may name files to ingest, and places for results, whose URLs begin so; they are used with the "
        "service's credentials. May be repeated. Default: none.",
    )
    @click.option(
        "--request-timeout",
        "request_s",
        metavar="SECONDS",
        default=60.0,
        show_default=True,
        type=click.FloatRange(min=0, min_open=True),
        help="How long a request may take to arrive, and its answer to be sent.",
    )
    @click.option(
        "--sql-memory",
        "sql_memory_mib",
        metavar="MIB",
        default=1024,
        show_default=True,
        type=WholeNumber(min=1),
        help="What one statement in SQL may take. Four run at once.",
    )
    @functools.wraps(function)
    def with_limits(*args: Any, sources: tuple[str, ...], request_s: float, sql_memory_mib: int, **others: Any) -> None:
        function(*args, limits=GivenLimits(sources, request_s, sql_memory_mib), **others)

    return with_limits
