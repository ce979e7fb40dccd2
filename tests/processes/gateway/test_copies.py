"""Copies are written once for all that need them, and no principal takes all writers."""

from __future__ import annotations

import asyncio
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from lakebed import RenameField, Schema
from lakebed.files.parquet.open_files import copies_folder
from lakebed.model.keys import EncodedRange
from lakebed.server.gateway.bucket import KeyHolder
from lakebed.server.gateway.copies import Copies
from lakebed.server.gateway.gateway import WRITERS, Gateway
from lakebed.server.gateway.s3_errors import S3Error
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


class WatchedCopies(Copies):
    """Copies whose sizes are seen while they grow; one waits for ``may_go_on`` at a size."""

    def __init__(self, capacity_bytes, waits_at=10**9):
        super().__init__(capacity_bytes, group_bytes=4_000)
        self.sizes, self.may_go_on, self._waits_at = [], threading.Event(), waits_at

    def _make_room(self, view, name, size_bytes):
        self.sizes.append(size_bytes)
        super()._make_room(view, name, size_bytes)
        assert size_bytes < self._waits_at or self.may_go_on.wait(60)


@pytest.fixture
def large(lake):
    """A table of 40 kB of random text, and how much of it a share may have to write."""
    table = lake.create_table("large", Schema({"k": "int64"}, values={"v": "string"}))
    chance = random.Random(1)
    table.write(pa.table({"k": range(1000), "v": [f"{chance.getrandbits(160):x}" for _ in range(1000)]}))
    return table


def shared(table, first):
    """The rows from a key on, whose size is not known before they are written."""
    key = table.schema.codec.encode_key((first,))
    view = VersionObjects.of(table.name, table.at(version=table.version), None, (EncodedRange(key),))
    return view, next(iter(view.objects.values()))


def test_a_copy_that_becomes_too_large_is_given_up_while_it_is_written(large):
    copies, whole = WatchedCopies(10_000), WatchedCopies(10**6)
    assert whole.write(*shared(large, 1)).size_bytes > 30_000
    there = set(copies_folder().iterdir())
    with pytest.raises(S3Error, match="raise --s3-cache") as refused:
        copies.write(*shared(large, 1))
    assert refused.value.code == "InvalidRequest"
    assert max(copies.sizes) < 10_000 + 4_000
    assert set(copies_folder().iterdir()) == there
    seen = len(copies.sizes)
    with pytest.raises(S3Error, match="raise --s3-cache"):
        copies.write(*shared(large, 1))
    assert len(copies.sizes) == seen, "it is known now"


def test_copies_that_grow_at_once_have_the_limit_together(large):
    copies = WatchedCopies(30_000, waits_at=18_000)
    copies.write(*shared(large, 800))
    with ThreadPoolExecutor() as pool:
        first = pool.submit(copies.write, *shared(large, 200))
        until(lambda: max(copies.sizes) >= 18_000)
        with pytest.raises(S3Error, match="try again") as refused:
            copies.write(*shared(large, 400))
        assert refused.value.code == "SlowDown"
        # What was there has made room.
        assert copies.known(*shared(large, 800)) is None
        copies.may_go_on.set()
        assert first.result().size_bytes > 18_000
    assert copies.write(*shared(large, 400)).size_bytes > 12_000


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
