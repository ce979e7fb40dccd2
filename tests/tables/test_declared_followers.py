"""Followers that services run, as objects of the instance; tests/postgres and tests/kafka have those that run."""

from __future__ import annotations

from datetime import timedelta

from msgspec import structs

import lakebed
from lakebed import Service
from lakebed.clock import now
from lakebed.errors import Code
from lakebed.model.files import follower_name
from lakebed.server.service.declared_followers import DeclaredFollowers
from lakebed.server.service.status import FollowerState
from lakebed.storage.retries import create_until_clear
from lakebed.upkeep.follow.declared_follower import (
    DamagedFollower,
    DeclaredFollower,
    declare_follower,
    declared_followers,
    drop_declared,
    known_followers,
    pause_follower,
    read_declared,
)
from lakebed.upkeep.follow.follow_record import FollowRecord, write_record
from tests.raising import raises

SHOP = DeclaredFollower(name="shop", url="postgresql://h/d", tables=(("public.orders", "orders"),), paused=True)
ELSEWHERE = "another host:1:2:3:4"


def test_a_declaration_is_read_as_it_was_written_and_its_name_is_taken(memory_lake):
    declare_follower(memory_lake.storage, SHOP)
    found = read_declared(memory_lake.storage, "shop")
    assert structs.replace(found, token="") == SHOP
    with raises(Code.FOLLOWER_EXISTS):
        declare_follower(memory_lake.storage, SHOP)
    assert drop_declared(memory_lake.storage, "shop")
    assert not drop_declared(memory_lake.storage, "shop")
    assert read_declared(memory_lake.storage, "shop") is None


def test_each_change_is_another_declaration(memory_lake):
    """So that a service begins again with one that was parked, though nothing else changed."""
    storage = memory_lake.storage
    declare_follower(storage, SHOP)
    tokens = {read_declared(storage, "shop").token}
    for paused in (False, False, True):
        pause_follower(storage, "shop", paused=paused)
        assert read_declared(storage, "shop").paused is paused
        tokens.add(read_declared(storage, "shop").token)
    assert len(tokens) == 4
    with raises(Code.SOURCE_NOT_FOUND):
        pause_follower(storage, "other", paused=True)


def test_a_damaged_declaration_is_the_error_of_its_follower_alone(lake):
    storage = lake.storage
    create_until_clear(storage, follower_name("damaged"), b"{")
    declare_follower(storage, SHOP)
    write_record(storage, FollowRecord(name="command", url="postgresql://h/e", source="s"))
    damaged, sound = declared_followers(storage)
    assert isinstance(damaged, DamagedFollower)
    assert "`lakebed follow drop damaged`" in damaged.error
    assert sound.name == "shop"
    known = {record.name: (record.error, declared) for record, declared in known_followers(storage)}
    assert known == {"command": (None, None), "damaged": (damaged.error, None), "shop": (None, sound)}
    said = []
    followers = DeclaredFollowers(lake, said.append, runs=True)
    followers.look("")
    assert {one.name: one.state for one in followers.status()} == {
        "damaged": FollowerState.DAMAGED,
        "shop": FollowerState.PAUSED,
    }
    assert len([line for line in said if "does not run" in line]) == 1


def test_a_follower_that_another_process_runs_is_left_to_it(lake, tmp_path):
    """Its lag grows with the age of its record, when that is old."""
    declare_follower(lake.storage, structs.replace(SHOP, paused=False))
    record = FollowRecord(name="shop", url=SHOP.url, source="s", holder=ELSEWHERE, lag_s=2.0)
    write_record(lake.storage, structs.replace(record, at=now().isoformat()))
    followers = DeclaredFollowers(lake, lambda _: None, runs=True)
    followers.look(str(tmp_path))
    (found,) = followers.status()
    assert (found.state, found.lag_s) == (FollowerState.ELSEWHERE, 2.0)
    write_record(lake.storage, structs.replace(record, at=(now() - timedelta(seconds=100)).isoformat()))
    pause_follower(lake.storage, "shop", paused=True)
    followers.look(str(tmp_path))
    (found,) = followers.status()
    assert found.state is FollowerState.PAUSED
    assert found.lag_s > 100


def test_a_service_of_an_instance_in_memory_runs_none(memory_lake):
    with raises(Code.INSTANCE_IN_MEMORY):
        Service(memory_lake, followers=True)
    assert Service(memory_lake).status().followers == ()


def test_a_service_without_the_option_reads_nothing(lake):
    declare_follower(lake.storage, SHOP)
    with Service(lakebed.open(lake.storage.url), maintain=False) as service:
        assert service.status().followers == ()
