"""Publishes the tables with the setting ``publish`` for other engines: each latest version, as soon as it is known.

A table is a subscriber of itself (:mod:`lakebed.server.service.subscriptions`). Its position is the version in its
metadata, so nothing else is stored, and a publisher that is behind goes to the newest version in one step. Services
that publish the same table at the same time are publishers as any (:mod:`lakebed.upkeep.publish.run`).

A table may also be pushed to catalogs of others (:mod:`lakebed.upkeep.publish.catalogs`), each a subscriber. It knows
the number of the publication that it pushed, since a version may be published again, with other rows or in another
format. That is kept in memory alone: a service that starts pushes each table once, which changes nothing if it is
there.

Core types: :class:`Publications`. Errors: those of publications; they are tried again, and shown in the status.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import structs

from lakebed import clock
from lakebed.errors import NotFoundError
from lakebed.model.settings import Publish
from lakebed.server.service.plan import Retry
from lakebed.server.service.status import CatalogStatus
from lakebed.server.service.subscriptions import DeliveryLimits, Subscriber, Subscription, Subscriptions
from lakebed.upkeep.publish.catalogs import Target, push
from lakebed.upkeep.publish.run import current, publish

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from lakebed.read.inspect.hooks import Delivered
    from lakebed.table.instance import Instance

Period = Callable[[str], float | None]
"""Returns the least time between two publications of a table, by its id, in seconds; None: it is paused."""

RETRY = Retry(wait_s=1.0, wait_max_s=300.0)

LIST_S = 1.0
"""The tables to publish are known from memory, so they are listed often."""

LOOK_S = 60.0
"""How often a catalog looks for a publication of the same version, which another process made: one request."""


class Publications:
    """The published tables of an instance. ``find`` returns the ids of the tables with the setting, from memory.

    ``targets`` are the catalogs that tables are pushed to.
    """

    def __init__(
        self,
        instance: Instance,
        find: Callable[[], Iterable[str]],
        report: Callable[[str], None],
        targets: Iterable[Target] = (),
        *,
        period: Period = lambda _: 0.0,
    ) -> None:
        self.subscriptions = Subscriptions(self._subscribers, report, DeliveryLimits(list_s=LIST_S))
        self._instance = instance
        self._find = find
        self._targets = tuple(targets)
        self._period = period
        self._known: dict[str, list[Subscriber]] = {}

    def status(self) -> dict[str, Subscription]:
        """Return how far each published table is, by its id; from memory."""
        return {one.table: one for one in self.subscriptions.all() if one.id == one.table}

    def catalogs(self, table: str) -> tuple[CatalogStatus, ...]:
        """Return how far the catalogs of others are that a table, by its id, is pushed to; from memory."""
        pushed = [one for one in self._known.get(table, ()) if isinstance(one, CatalogSubscriber)]
        errors = {one.id: one.error for one in self.subscriptions.all()} if pushed else {}
        return tuple([CatalogStatus(str(one.target), one.pushed, errors.get(one.id)) for one in pushed])

    def _subscribers(self) -> Iterable[Subscriber]:
        self._known = {one: self._known.get(one) or self._made(one) for one in self._find()}
        return [one for of_table in self._known.values() for one in of_table]

    def _made(self, table: str) -> list[Subscriber]:
        pushed = [CatalogSubscriber(self._instance, table, target, self.status) for target in self._targets]
        return [TableSubscriber(self._instance, table, self._period), *pushed]


class TableSubscriber:
    """A published table as a :class:`~lakebed.server.service.subscriptions.Subscriber`.

    It does what the operation :class:`~lakebed.model.operations.Publication` does in a call.
    """

    def __init__(self, instance: Instance, table: str, period: Period) -> None:
        self.id = self.table = table
        self.title = f"the publication of table {table}"
        self.retry = RETRY
        self.ended = False
        self._instance = instance
        self._period = period
        self._next_s = 0.0

    def read(self, known: Delivered) -> Delivered | None:
        """Return the position with the version that is published; None if the table was dropped."""
        try:
            found = current(self._instance.named(self.table))
        except NotFoundError:
            return None
        version = 0 if found is None else found.version
        return known if version == known.version else structs.replace(known, version=version)

    def write(self, delivered: Delivered) -> bool:  # noqa: ARG002 - a publication is its own record
        """Return that nothing else is to be stored."""
        return True

    def deliver(self, delivered: Delivered, stopping: Callable[[], bool]) -> Iterator[tuple[int, str]]:
        """Publish the latest version, unless it is too early, the service ends, or the table has lost the setting."""
        period_s, now_s = self._period(self.table), clock.monotonic_s()
        if period_s is None or now_s < self._next_s:
            return
        table = self._instance.named(self.table)
        is_behind = table.state().version != delivered.version
        if is_behind and table.settings_in_force().publish is not Publish.NONE and not stopping():
            version = publish(table).version
            self._next_s = now_s + period_s
            yield version, ""


class CatalogSubscriber:
    """A published table in a catalog of others, as a subscriber."""

    def __init__(
        self,
        instance: Instance,
        table: str,
        target: Target,
        status: Callable[[], Mapping[str, Subscription]],
        *,
        look_s: float = LOOK_S,
    ) -> None:
        self.id = f"{table} {target}"
        self.table = table
        self.title = f"catalog {target}, for table {table},"
        self.retry = RETRY
        self.ended = False
        self.target = target
        self.pushed = 0
        self._instance = instance
        self._status = status
        self._number = self._version = 0
        self._look_s, self._next_s = look_s, 0.0

    def read(self, known: Delivered) -> Delivered | None:
        """Return the known position; None if the table was dropped, which its table in the catalog outlives."""
        try:
            self._instance.named(self.table)
        except NotFoundError:
            return None
        return known

    def write(self, delivered: Delivered) -> bool:  # noqa: ARG002 - the catalog is its own record
        """Return that nothing else is to be stored."""
        return True

    def deliver(self, delivered: Delivered, stopping: Callable[[], bool]) -> Iterator[tuple[int, str]]:  # noqa: ARG002 - of no version
        """Push the latest publication, unless the service ends. Without a new version that costs no request, but one in
        :data:`LOOK_S`.
        """
        yield from ()
        published, now_s = self._status().get(self.table), clock.monotonic_s()
        version = 0 if published is None else published.version
        if version == self._version and now_s < self._next_s:
            return
        table = self._instance.named(self.table)
        found = current(table)
        if found is not None and found.number != self._number:
            if stopping():
                return
            push(found, table.name, self.target)
            self._number, self.pushed = found.number, found.version
        self._version, self._next_s = version, now_s + self._look_s
