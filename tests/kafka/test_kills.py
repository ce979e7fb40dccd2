"""Followers of Kafka that are killed at random moments while messages are sent lose and double nothing."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time

import pytest

import lakebed
from tests.debezium import JsonWriter, Table
from tests.followers import kill_at_random
from tests.waiting import until

KILLS = int(os.environ.get("FOLLOW_KILLS", "30"))
ACCOUNTS, PARTITIONS = 200, 4

FOLLOW = """
import sys, lakebed
from lakebed.upkeep.follow import run
from lakebed.upkeep.follow.change_sources import open_source
run.RECORD_S = 0.2
url, lake = sys.argv[1:]
options = run.FollowOptions("bank", "dead", every_s=0.02)
run.SourceFollower(lakebed.open(lake), open_source(url, "bank", ()), options, print).run()
"""


@pytest.mark.parametrize("kills", [min(KILLS, 8), pytest.param(KILLS, marks=pytest.mark.slow)])
def test_kills_at_random_moments_lose_and_double_nothing(broker, tmp_path, kills):
    """Each message of an account has the next number; a table that lost or doubled one would show it in its history."""
    topic = f"bank{random.randrange(10**9)}.public.accounts"
    broker.make_topic(topic, PARTITIONS)
    table = Table(topic, ("id",), {"id": {"type": "int32"}, "n": {"type": "int64"}})
    writer, lake = JsonWriter(schemas=True), str(tmp_path / "lake")
    lakebed.create(lake)
    counts = dict.fromkeys(range(ACCOUNTS), 0)
    stopping = threading.Event()
    chance = random.Random()

    def send():
        producer = broker.producer()
        while not stopping.is_set():
            one = chance.randrange(ACCOUNTS)
            counts[one] += 1
            key, row = {"id": one}, {"id": one, "n": counts[one]}
            producer.produce(topic, writer.envelope(table, "u", None, row), writer.key(table, key))
            producer.poll(0)
            time.sleep(0.001)
        producer.flush()

    sender = threading.Thread(target=send)
    sender.start()
    words = [sys.executable, "-c", FOLLOW, broker.url(topic), lake]
    try:
        kill_at_random(words, kills, 0.5, 4.0)
    finally:
        stopping.set()
        sender.join()
    last = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    here = lakebed.open(lake)
    wanted = {one: count for one, count in counts.items() if count}
    try:
        until(lambda: "accounts" in here.tables())
        until(lambda: {row["id"]: row["n"] for row in here["accounts"].scan().read_all().to_pylist()} == wanted)
    finally:
        last.kill()
        last.wait()
    check_history(here["accounts"], kills)


def check_history(table, kills):
    """The count of an account never goes back from one version to the next, and no version repeats one."""
    seen: dict[int, int] = {}
    for change in table.changes(0).read_all().to_pylist():
        assert change["_change"] in ("insert", "update_before", "update_after"), change
        if change["_change"] != "update_before":
            assert change["n"] > seen.get(change["id"], 0), change
            seen[change["id"]] = change["n"]
    commits = [one for one in table.state().requests if one.startswith("follow ")]
    assert "dead" not in json.dumps(commits)
    print(f"{kills} kills, {len(commits)} commits, {sum(seen.values())} messages")
