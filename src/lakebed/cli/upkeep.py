"""Options of the commands that maintain many tables: ``lakebed serve`` and ``lakebed maintain --all``.

Errors: UsageError for a period that is none. Source: docs/service.md.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from lakebed.cli import options
from lakebed.cli.argument_types import WholeNumber
from lakebed.errors import Code
from lakebed.model.foreign_errors import optional_imports
from lakebed.model.operations import OPERATIONS

if TYPE_CHECKING:
    from lakebed.server.service.plan import ServiceLimits
    from lakebed.server.service.service import Service
    from lakebed.table.instance import Instance

_MEMORY = "Memory that tasks in worker processes may use together; default: 80% of the machine's."

memory = click.option("--memory", "memory_bytes", metavar="BYTES", type=WholeNumber(min=1), help=_MEMORY)


def _period(text: str) -> tuple[str, float]:
    name, _, seconds = text.partition("=")
    if name in OPERATIONS:
        with suppress(ValueError):
            return name, float(seconds)
    raise click.BadParameter(f"{text!r} is not OPERATION=SECONDS; operations: {', '.join(OPERATIONS)}")


_LOG = logging.getLogger("lakebed.service")


@dataclass(frozen=True, slots=True)
class Upkeep:
    """The options of a service's maintenance."""

    maintains: bool
    launcher: str | None
    memory_bytes: int | None
    limits: ServiceLimits
    idle_s: float

    def service(self, instance: Instance, *, hook_commands: bool = False) -> Service:
        """Return the service, not started. It logs failures, each with its time."""
        with optional_imports():
            from lakebed.server.service.service import Service

        return Service(
            instance,
            launcher=self.launcher,
            memory_bytes=self.memory_bytes,
            idle_s=self.idle_s,
            limits=self.limits,
            maintain=self.maintains,
            hook_commands=hook_commands,
            report=_LOG.warning,
        )


def upkeep(function: Callable[..., None]) -> Callable[..., None]:
    """Return the options of a service's maintenance, as one parameter ``upkeep``."""

    @click.option("--no-maintenance", is_flag=True, help="Answer requests only, without maintenance.")
    @options.launcher
    @memory
    @click.option(
        "--at-once",
        default=2,
        show_default=True,
        type=WholeNumber(1, 1000),
        help="Concurrent operations that add rows, and as many that compact, split or collect garbage.",
    )
    @click.option(
        "--follow",
        "follow_s",
        metavar="SECONDS",
        default=1.0,
        show_default=True,
        type=click.FloatRange(0.01, 86_400),
        help="How often to check a table for new versions; an idle table is checked up to 60 times less often.",
    )
    @click.option(
        "--period",
        "periods",
        metavar="OPERATION=SECONDS",
        multiple=True,
        type=_period,
        help="The shortest time between two runs of an operation on one table. May be repeated.",
    )
    @click.option(
        "--idle",
        "idle_s",
        metavar="SECONDS",
        default=300.0,
        show_default=True,
        type=click.FloatRange(min=0),
        help="Stop Spark and worker processes after this time without work.",
    )
    @functools.wraps(function)
    def with_upkeep(
        *args: Any,
        no_maintenance: bool,
        launcher: str | None,
        memory_bytes: int | None,
        at_once: int,
        follow_s: float,
        periods: Sequence[tuple[str, float]],
        idle_s: float,
        **others: Any,
    ) -> None:
        limits = _limits(at_once, follow_s, dict(periods))
        given = Upkeep(not no_maintenance, launcher, memory_bytes, limits, idle_s)
        function(*args, upkeep=given, **others)

    return with_upkeep


def _limits(at_once: int, follow_s: float, periods: dict[str, float]) -> ServiceLimits:
    from lakebed.server.service.plan import ServiceLimits, default_periods

    for operation, seconds in periods.items():
        if not 0 <= seconds <= 10**9:
            raise Code.ARGUMENT_INVALID(f"--period {operation}={seconds}: must lie between 0 and 1000000000 seconds")
    every = default_periods() | periods
    return ServiceLimits(at_once=at_once, follow_s=follow_s, follow_max_s=60 * follow_s, periods=every)
