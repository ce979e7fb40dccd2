"""Tables that follow a real PostgreSQL have its rows, after changes of every kind and whatever ends the follower."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

import lakebed
from lakebed.cli import main
from lakebed.errors import Code, StorageError
from lakebed.testing.faults import Meanwhile
from lakebed.upkeep.follow.change_sources import open_source
from lakebed.upkeep.follow.follow_record import read_record
from lakebed.upkeep.follow.run import FollowOptions, SourceFollower
from tests import pages
from tests.followers import EndedError, Ending
from tests.raising import raises
from tests.tables.cli.shapes import differences, documented
from tests.tables.retention.cases import through

BIG = 3_000
"""Characters of a value that is stored apart, so that an update leaves it out."""


class Shop:
    """What follows a database; each follower is a new one, as in another process."""

    def __init__(self, cluster, connection, lake):
        self.url, self.lake = cluster.url(connection.info.dbname), lake

    def follower(self, *tables, kind=SourceFollower, **options):
        options = FollowOptions("shop", "dead", every_s=0.05, **options)
        return kind(self.lake, open_source(self.url, "shop", tables), options)

    def caught_up(self, *tables, **options):
        return self.follower(*tables, **options).run(until_caught_up=True)

    def ended(self):
        """Commit all changes, and end."""
        with pytest.raises(EndedError):
            self.follower(kind=Ending).run(until_caught_up=True)


@pytest.fixture
def follow(cluster, shop, memory_lake):
    return Shop(cluster, shop, memory_lake)


def rows_there(shop, table="items"):
    cursor = shop.execute(f"SELECT * FROM {table} ORDER BY id")
    names = [column.name for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor]


def rows_here(lake, table="items"):
    return lake.table(table).scan().read_all().to_pylist()


def make_items(shop):
    shop.execute("CREATE TABLE items (id int PRIMARY KEY, big text, n numeric(12, 3), tags text[], at timestamptz)")
    shop.execute("ALTER TABLE items ALTER big SET STORAGE EXTERNAL")


def change(shop, chance):
    """A transaction of random changes."""
    with shop.transaction():
        for _ in range(chance.randrange(1, 6)):
            one, other = chance.randrange(12), chance.randrange(12)
            big = None if chance.random() < 0.2 else chance.choice("abcé") * chance.choice((3, BIG))
            row = (one, big, chance.randrange(10**6) / 1000, [None, "x y", '"'][: chance.randrange(4)])
            match chance.randrange(8):
                case 0 | 1 | 2:
                    shop.execute(
                        "INSERT INTO items VALUES (%s, %s, %s, %s, now()) ON CONFLICT (id) DO UPDATE SET n = -1", row
                    )
                case 3:
                    shop.execute("UPDATE items SET n = n + 1, tags = %s WHERE id = %s", (row[3], one))
                case 4:
                    shop.execute("UPDATE items SET big = %s WHERE id = %s", (big, one))
                case 5:
                    shop.execute(
                        "UPDATE items SET id = %s WHERE id = %s AND NOT EXISTS (SELECT FROM items WHERE id = %s)",
                        (other, one, other),
                    )
                case 6:
                    shop.execute("DELETE FROM items WHERE id = %s", (one,))
                case _ if chance.random() < 0.1:
                    shop.execute("TRUNCATE items")
                case _:
                    with suppress(ZeroDivisionError), shop.transaction():
                        shop.execute("DELETE FROM items")
                        1 / 0  # noqa: B018 - rolls it back


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
def test_a_table_has_the_rows_of_its_source_after_any_changes(shop, follow, memory_lake, identity):
    """Half of the followers end after a commit that they could not record, as if killed."""
    chance = random.Random(identity)
    make_items(shop)
    shop.execute(f"ALTER TABLE items REPLICA IDENTITY {identity}")
    shop.execute("INSERT INTO items VALUES (1, repeat('s', 3000), 1.5, '{a,NULL}', now())")
    assert follow.caught_up().snapshot_rows == 1
    for turn in range(8):
        for _ in range(10):
            change(shop, chance)
        if turn % 2:
            follow.ended()
        else:
            follow.caught_up()
        assert rows_here(memory_lake) == rows_there(shop)
    commits = [key for key in memory_lake.table("items").state().requests if key.startswith("follow ")]
    ends = sorted(int(one.rpartition("@")[2]) for one in commits)
    assert len(set(ends)) == len(commits)


def test_what_was_committed_is_not_committed_again(shop, follow, memory_lake):
    make_items(shop)
    follow.caught_up()
    shop.execute("INSERT INTO items (id) VALUES (1)")
    follow.ended()
    version = memory_lake.table("items").state().version
    assert follow.caught_up().changes == 0
    assert memory_lake.table("items").state().version == version


def test_each_of_many_tables_gets_its_changes_once(cluster, shop, follow, memory_lake):
    """A crash between the commits of two tables: the second gets them from the slot, the first has them."""
    for name in ("a", "b"):
        shop.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, v int)")
    follow.caught_up()
    with shop.transaction():
        shop.execute("INSERT INTO a VALUES (1, 1)")
        shop.execute("INSERT INTO b VALUES (1, 1)")

    def refuse():
        raise EndedError

    log = f"tables/{memory_lake.table('b').id}/log/*"
    crashing = through(memory_lake, Meanwhile(memory_lake.storage, "create", log, refuse, again=True))
    with pytest.raises(EndedError):
        Shop(cluster, shop, crashing).caught_up()
    assert (len(rows_here(memory_lake, "a")), len(rows_here(memory_lake, "b"))) == (1, 0)
    version = memory_lake.table("a").state().version
    assert follow.caught_up().changes == 1
    assert rows_here(memory_lake, "b") == [{"id": 1, "v": 1}]
    assert memory_lake.table("a").state().version == version


def test_a_transaction_is_one_version(shop, follow, memory_lake):
    make_items(shop)
    follow.caught_up()
    before = memory_lake.table("items").state().version
    with shop.transaction():
        for number in range(200):
            shop.execute("INSERT INTO items (id, big) VALUES (%s, %s)", (number, "x" * BIG))
        shop.execute("DELETE FROM items WHERE id % 2 = 0")
    assert follow.caught_up(memory_bytes_max=50_000).changes == 300
    assert memory_lake.table("items").state().version == before + 1
    assert rows_here(memory_lake) == rows_there(shop)


def test_new_and_wider_columns_are_followed_and_dropped_ones_are_null(shop, follow, memory_lake):
    shop.execute("CREATE TABLE items (id int PRIMARY KEY, v int, gone text)")
    shop.execute("INSERT INTO items VALUES (1, 1, 'a')")
    follow.caught_up()
    shop.execute("INSERT INTO items VALUES (2, 2, 'b')")
    shop.execute("ALTER TABLE items ADD COLUMN more timestamp, ALTER COLUMN v TYPE bigint, DROP COLUMN gone")
    shop.execute("INSERT INTO items VALUES (3, 3000000000, '2026-01-31 12:00')")
    follow.caught_up()
    assert [{**row, "gone": None} for row in rows_there(shop)] == [
        {**row, "gone": None} for row in rows_here(memory_lake)
    ]
    assert [row["gone"] for row in rows_here(memory_lake)] == ["a", "b", None]


def test_a_type_that_a_field_cannot_become_stops_the_follower_and_its_remedy_works(shop, follow, memory_lake):
    shop.execute("CREATE TABLE items (id int PRIMARY KEY, v int)")
    shop.execute("INSERT INTO items VALUES (1, 1)")
    follow.caught_up()
    shop.execute("ALTER TABLE items ALTER COLUMN v TYPE text")
    with raises(Code.SOURCE_CHANGE_UNSUPPORTED):
        follow.caught_up()
    assert "cannot become" in (read_record(memory_lake.storage, "shop").error or "")
    follow.caught_up(("public.items", "items2"))
    assert rows_here(memory_lake, "items2") == [{"id": 1, "v": "1"}]


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("CREATE TABLE items (id int, v int)", "has no primary key"),
        ("CREATE TABLE items (id int PRIMARY KEY); ALTER TABLE items REPLICA IDENTITY NOTHING", "IDENTITY NOTHING"),
    ],
)
def test_a_table_whose_rows_have_no_key_is_refused(shop, follow, memory_lake, statement, said):
    for one in statement.split(";"):
        shop.execute(one)
    with raises(Code.SOURCE_CHANGE_UNSUPPORTED) as refused:
        follow.caught_up()
    assert said in str(refused.value)
    assert memory_lake.tables() == []


def test_a_value_that_no_field_holds_is_a_dead_letter(shop, follow, memory_lake):
    make_items(shop)
    shop.execute("INSERT INTO items (id, n) VALUES (1, 1), (2, 'NaN')")
    assert follow.caught_up().dead_letters == 1
    shop.execute("INSERT INTO items (id, at) VALUES (3, 'infinity'), (4, now())")
    report = follow.caught_up()
    assert report.dead_letters == 1
    assert [row["id"] for row in rows_here(memory_lake)] == [1, 4]
    letters = memory_lake.table("dead").scan().read_all().to_pylist()
    assert [(one["target"], one["key"]) for one in letters] == [("items", b'{"id":"2"}'), ("items", b'{"id":"3"}')]
    assert "infinity" in letters[1]["reason"]
    assert read_record(memory_lake.storage, "shop").dead_letters == 2


@pytest.mark.parametrize("lost", ["dropped", "moved"])
def test_a_slot_that_lost_changes_stops_the_follower_and_a_new_snapshot_mends_it(shop, follow, memory_lake, lost):
    make_items(shop)
    shop.execute("INSERT INTO items (id) VALUES (1), (2)")
    follow.caught_up()
    shop.execute("DELETE FROM items WHERE id = 1")
    if lost == "dropped":
        shop.execute("SELECT pg_drop_replication_slot('lakebed_shop')")
    else:
        shop.execute("SELECT pg_replication_slot_advance('lakebed_shop', pg_current_wal_lsn())")
    with raises(Code.SOURCE_POSITION_LOST):
        follow.caught_up()
    with raises(Code.SOURCE_POSITION_LOST):
        follow.caught_up()
    follow.caught_up(resnapshot=True)
    assert rows_here(memory_lake) == rows_there(shop)
    shop.execute("INSERT INTO items (id) VALUES (3)")
    follow.caught_up()
    assert rows_here(memory_lake) == rows_there(shop)


def test_a_second_follower_of_a_slot_is_refused(shop, follow):
    make_items(shop)
    first, second = (open_source(follow.url, "shop", ()) for _ in range(2))
    options = FollowOptions("shop", "dead")
    first.open(SourceFollower(follow.lake, first, options))
    try:
        with raises(Code.SOURCE_BUSY):
            second.open(SourceFollower(follow.lake, second, options))
    finally:
        first.close()
        second.close()


def test_a_table_with_other_rows_is_not_taken(shop, follow, memory_lake):
    make_items(shop)
    other = memory_lake.create_table("items", lakebed.Schema({"id": "int32"}), merge=lakebed.Latest())
    other.write([{"id": 5}])
    with raises(Code.SOURCE_CHANGE_UNSUPPORTED):
        follow.caught_up()
    assert rows_here(memory_lake) == [{"id": 5}]


def test_a_table_that_is_added_later_gets_its_snapshot_beside_the_others(shop, follow, memory_lake):
    make_items(shop)
    follow.caught_up(("items", "items"))
    shop.execute("CREATE TABLE late (id int PRIMARY KEY)")
    shop.execute("INSERT INTO late VALUES (1)")
    shop.execute("INSERT INTO items (id) VALUES (1)")
    report = follow.caught_up(("items", "items"), ("late", "late"))
    assert (report.snapshot_rows, report.changes) == (1, 1)
    shop.execute("INSERT INTO late VALUES (2)")
    follow.caught_up(("items", "items"), ("late", "late"))
    assert rows_here(memory_lake, "late") == [{"id": 1}, {"id": 2}]


def test_the_slot_moves_on_while_other_tables_change(shop, follow):
    make_items(shop)
    shop.execute("CREATE TABLE other (id serial PRIMARY KEY)")
    follow.caught_up(("items", "items"))
    at = "SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = 'lakebed_shop'"
    before = shop.execute(at).fetchone()
    shop.execute("INSERT INTO other SELECT FROM generate_series(1, 1000)")
    follow.caught_up(("items", "items"))
    assert shop.execute(f"SELECT ({at}) > %s::pg_lsn", before).fetchone() == (True,)


def test_a_server_that_is_not_there_is_said_to_be_so(memory_lake):
    options = FollowOptions("shop", "dead")
    source = open_source("postgresql://none@127.0.0.1:1/nothing", "shop", ())
    with pytest.raises(StorageError, match="Connection refused"):
        source.open(SourceFollower(memory_lake, source, options))


def test_partitions_of_a_table_are_followed_as_one(shop, follow, memory_lake):
    shop.execute("CREATE TABLE items (id int PRIMARY KEY, v int) PARTITION BY RANGE (id)")
    shop.execute("CREATE TABLE low PARTITION OF items FOR VALUES FROM (0) TO (10)")
    shop.execute("CREATE TABLE high PARTITION OF items FOR VALUES FROM (10) TO (20)")
    shop.execute("INSERT INTO items VALUES (1, 1), (11, 1)")
    follow.caught_up()
    shop.execute("INSERT INTO items VALUES (12, 1)")
    shop.execute("UPDATE items SET id = 13 WHERE id = 1")
    follow.caught_up()
    assert memory_lake.tables() == ["items"]
    assert rows_here(memory_lake) == rows_there(shop)


def test_the_tutorial_prints_what_stands_on_its_page(cluster, shop, tmp_path):
    """Every block of the shell, as printed, with what is printed after it."""
    programs = f"{cluster.bin}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "SHOP": cluster.url(shop.info.dbname), "PATH": programs}
    environment.pop("LAKEBED_INSTANCE", None)
    found = pages.blocks("docs/follow.md")
    begin = next(at for at, block in enumerate(found) if block.language == "sh")
    printed = None
    for block in found[begin:]:
        if block.language == "sh":
            ran = subprocess.run(
                ["sh", "-ec", block.text], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
            )
            assert ran.returncode == 0, f"line {block.line}: {ran.stdout}{ran.stderr}"
            printed = ran.stdout
        elif block.language == "text":
            assert printed.endswith(block.text), f"line {block.line}: {printed}"
    assert shop.execute("SELECT count(*) FROM pg_replication_slots").fetchone() == (0,)


def test_the_command_prints_the_documented_report(shop, follow, tmp_path, capsys):
    make_items(shop)
    lakebed.create(str(tmp_path / "lake"))
    words = ["--instance", str(tmp_path / "lake"), "--json"]
    assert main([*words, "follow", follow.url, "--name", "shop", "--until-caught-up"]) == 0
    assert not differences(json.loads(capsys.readouterr().out), documented()["follow run"], "follow run")
    assert main([*words, "status"]) == 0
    status = json.loads(capsys.readouterr().out)
    assert not differences(status, documented()["status"], "status")
    assert [one["name"] for one in status["followers"]] == ["shop"]
