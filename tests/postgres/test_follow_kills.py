"""Followers that are killed at random moments while their source changes lose and double nothing."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from contextlib import closing

import psycopg
import pytest

import lakebed
from tests.followers import kill_at_random
from tests.postgres.cluster import PASSWORD
from tests.waiting import until

KILLS = int(os.environ.get("FOLLOW_KILLS", "60"))

FOLLOW = """
import sys, lakebed
from lakebed.upkeep.follow import run
from lakebed.upkeep.follow.change_sources import open_source
run.RECORD_S = 0.2
url, lake = sys.argv[1:]
options = run.FollowOptions("shop", "dead", every_s=0.02)
run.SourceFollower(lakebed.open(lake), open_source(url, "shop", ()), options, print).run()
"""


def transfer(connection, chance):
    """Move an amount between two accounts, note it, and sometimes add and delete a row of another table."""
    one, other, amount = chance.randrange(50), chance.randrange(50), chance.randrange(100)
    with connection.transaction():
        connection.execute("UPDATE accounts SET balance = balance - %s WHERE id = %s", (amount, one))
        connection.execute("UPDATE accounts SET balance = balance + %s WHERE id = %s", (amount, other))
        connection.execute("INSERT INTO transfers (amount) VALUES (%s)", (amount,))
        if chance.random() < 0.3:
            connection.execute("DELETE FROM transfers WHERE id = (SELECT min(id) FROM transfers)")


@pytest.mark.slow
def test_kills_at_random_moments_lose_and_double_nothing(cluster, tmp_path):
    cluster.sql("CREATE DATABASE killed")
    url, lake = cluster.url("killed"), str(tmp_path / "lake")
    lakebed.create(lake)
    chance = random.Random()
    stopping = threading.Event()
    with closing(psycopg.connect(url, password=PASSWORD, autocommit=True)) as shop:
        shop.execute("CREATE TABLE accounts (id int PRIMARY KEY, balance bigint)")
        shop.execute("CREATE TABLE transfers (id serial PRIMARY KEY, amount int)")
        shop.execute("INSERT INTO accounts SELECT i, 1000 FROM generate_series(0, 49) i")

        def write():
            while not stopping.is_set():
                transfer(shop, chance)
                time.sleep(0.002)

        writer = threading.Thread(target=write)
        writer.start()
        words = [sys.executable, "-c", FOLLOW, url, lake]
        try:
            kill_at_random(words, KILLS, 0.3, 3.0)
        finally:
            stopping.set()
            writer.join()
        last = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        here = lakebed.open(lake)
        try:
            until(lambda: {"accounts", "transfers"} <= set(here.tables()))
            for name in ("accounts", "transfers"):
                wanted = shop.execute(f"SELECT * FROM {name} ORDER BY id").fetchall()
                until(lambda: rows(here, name) == wanted)  # noqa: B023 - is called before the next turn
        finally:
            last.kill()
            last.wait()
        check_transfers(here, shop)
        until(lambda: not shop.execute("SELECT 1 FROM pg_replication_slots WHERE active").fetchall())
        shop.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
    cluster.sql("DROP DATABASE killed WITH (FORCE)")


def rows(lake, name):
    return [tuple(row.values()) for row in lake.table(name).scan().read_all().to_pylist()]


def check_transfers(lake, shop):
    """No change was committed twice: each transfer was inserted once in the history of the table."""
    table = lake.table("transfers")
    changes = table.changes(0).read_all().to_pylist()
    inserted = [change["id"] for change in changes if change["_change"] == "insert"]
    assert len(inserted) == len(set(inserted))
    assert not [change for change in changes if change["_change"].startswith("update")]
    commits = [key for key in table.state().requests if key.startswith("follow ")]
    print(f"{KILLS} kills, {len(commits)} commits, {len(inserted)} transfers")
