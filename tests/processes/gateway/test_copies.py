"""Copies are written once for all that need them, and no principal takes all writers."""

from __future__ import annotations

import asyncio
import threading

import pytest

from lakebed import RenameField
from lakebed.server.gateway.bucket import KeyHolder
from lakebed.server.gateway.copies import Copies
from lakebed.server.gateway.gateway import WRITERS, Gateway
from lakebed.server.gateway.version_objects import VersionObjects
from lakebed.server.security.access_keys import AccessKeys
from lakebed.server.security.stored import AccessList
from lakebed.server.service.service import Service
from lakebed.server.web.waiting import RequestLimits
from tests.waiting import until


class SlowCopies(Copies):
    """Copies that are written when they may be."""

    def __init__(self):
        super().__init__()
        self.begun, self.may_end = [], threading.Event()

    def write(self, view, one):
        self.begun.append((view.key.version, one.name))
        assert self.may_end.wait(60)
        return super().write(view, one)


@pytest.fixture
def parts(flights):
    """Objects of a version of the table that have to be written, of two partitions."""
    flights.alter(RenameField("delay", "late"))
    view = VersionObjects.of("flights", flights.at(version=flights.version), None, None)
    assert len(view.objects) == 2
    return [(view, one) for one in view.objects.values()]


@pytest.fixture
def gateway(lake):
    access = AccessList(lake.storage)
    keys = AccessKeys(lake.storage, access)
    yield Gateway(Service(lake, maintain=False), keys, RequestLimits(), SlowCopies())
    keys.close()
    access.close()


def holder(gateway, name):
    return KeyHolder(gateway._keys._access.principal_with(name, ["read"], None))


def test_an_object_is_written_once_for_all_requests(gateway, parts):
    ((view, one), _), slow = parts, gateway._copies
    slow.may_end.set()

    async def ask():
        holders = [holder(gateway, name) for name in ("ann", "bob", "ann")]
        return await asyncio.gather(*(gateway._content(each, view, one) for each in holders))

    found = asyncio.run(ask())
    assert len(slow.begun) == 1
    assert len({content.representation for content in found}) == 1


def test_a_principal_leaves_a_writer_to_the_others(gateway, flights, parts):
    flights.alter(RenameField("late", "later"))
    view = VersionObjects.of("flights", flights.at(version=flights.version), None, None)
    more = [(view, one) for one in view.objects.values()]
    slow = gateway._copies

    async def ask():
        ann, bob = holder(gateway, "ann"), holder(gateway, "bob")
        asked = [asyncio.ensure_future(gateway._content(ann, *part)) for part in (*parts, more[0])]
        await asyncio.to_thread(until, lambda: len(slow.begun) == WRITERS - 1)
        asked.append(asyncio.ensure_future(gateway._content(bob, *more[1])))
        await asyncio.to_thread(until, lambda: len(slow.begun) == WRITERS)
        assert (more[1][0].key.version, more[1][1].name) in slow.begun
        slow.may_end.set()
        return await asyncio.gather(*asked)

    assert len(asyncio.run(ask())) == 4
    assert len(slow.begun) == 4


def test_a_copy_that_fails_is_tried_again_by_the_next_request(gateway, flights, parts, lake):
    (view, one), _ = parts
    gateway._copies.may_end.set()
    hidden = lake.storage.folder / "tables" / flights.id / "data"
    hidden.rename(hidden.with_name("elsewhere"))

    async def ask():
        return await gateway._content(holder(gateway, "ann"), view, one)

    with pytest.raises(Exception, match=r"missing|no longer|not there"):
        asyncio.run(ask())
    hidden.with_name("elsewhere").rename(hidden)
    assert asyncio.run(ask()).representation.size_bytes > 0
