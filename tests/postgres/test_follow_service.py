"""Followers of a real PostgreSQL that services run lose and double nothing, whatever is killed."""

from __future__ import annotations

import json
from contextlib import ExitStack, closing
from urllib.request import urlopen

import psutil
import psycopg
import pytest

from lakebed.cli import main
from lakebed.upkeep.follow.follow_record import read_record
from tests.followers import SERVICE_OPTIONS, holder_of
from tests.postgres.cluster import PASSWORD
from tests.service.served import served
from tests.tables.cli.shapes import differences, documented
from tests.waiting import until


class Shop:
    """A shop whose orders are followed, and the lake that follows."""

    def __init__(self, cluster, connection, lake):
        self.connection, self.lake, self.dbname = connection, lake, connection.info.dbname
        self.url, self.number = cluster.url(self.dbname), 0
        self.sql("CREATE TABLE orders (id int PRIMARY KEY, n int)")

    def sql(self, statement):
        self.connection.execute(statement)

    def sell(self, count=1):
        for _ in range(count):
            self.number += 1
            self.sql(f"INSERT INTO orders VALUES ({self.number}, 0)")

    def command(self, *words):
        assert main(["--instance", self.lake.url, "--json", "follow", *words]) == 0

    def create(self):
        self.command("create", self.url, "--name", "shop", "--every", "0.05")

    def rows(self):
        if "orders" not in self.lake.tables():
            return []
        return sorted(self.lake.table("orders").scan(columns=["id"]).read_all()["id"].to_pylist())

    def arrive(self):
        """Wait until the table has all orders, and check that each was added once."""
        wanted = list(range(1, self.number + 1))
        until(lambda: self.rows() == wanted)
        changes = self.lake.table("orders").changes(0).read_all().to_pylist()
        assert [one for one in changes if one["_change"] != "insert"] == []
        assert sorted(one["id"] for one in changes) == wanted

    def record(self):
        return read_record(self.lake.storage, "shop")

    def holder(self):
        return holder_of(self.lake.storage, "shop")


@pytest.fixture
def follow(cluster, shop, lake, capsys):
    return Shop(cluster, shop, lake)


def text_of(service, path):
    with urlopen(service.url + path, timeout=120) as answer:
        return answer.read().decode()


def followers_of(service):
    return json.loads(text_of(service, "/v1/status"))["followers"]


def status_of(service):
    """The status of the follower; ``None`` as its state before the service has looked."""
    return next(iter(followers_of(service)), {"state": None, "error": None})


def children_of(service):
    """The processes of followers of a service."""
    found = psutil.Process(service.process.pid).children(recursive=True)
    return [one for one in found if "lakebed.upkeep.follow.follow_worker" in one.cmdline()]


def test_a_service_starts_declared_and_killed_followers_and_pauses_resumes_and_drops_them(follow, lake, capsys):
    follow.sell()
    follow.create()
    with served(lake.url, *SERVICE_OPTIONS) as service:
        follow.arrive()
        follow.sell(5)
        follow.holder().kill()
        follow.sell(5)
        follow.arrive()
        found = until(lambda: (one := status_of(service)) and one["state"] == "following" and one)
        assert (found["url"], found["tables"], found["error"]) == (follow.url, ["orders"], None)
        check_pause(follow, service, capsys)
        check_drop(follow, service, capsys)
    assert follow.record() is None
    arrived = follow.rows()
    follow.sell()
    assert follow.rows() == arrived


def check_pause(follow, service, capsys):
    """A paused follower rests until it is resumed."""
    follow.command("pause", "shop")
    until(lambda: status_of(service)["state"] == "paused" and not children_of(service))
    until(lambda: follow.record().holder == "")
    arrived = follow.rows()
    follow.sell(5)
    capsys.readouterr()
    follow.command("list")
    (listed,) = json.loads(capsys.readouterr().out)["followers"]
    assert (listed["in_service"], listed["paused"]) == (True, True)
    assert follow.rows() == arrived
    follow.command("resume", "shop")
    follow.arrive()


def check_drop(follow, service, capsys):
    """A follower is dropped while the service runs it."""
    capsys.readouterr()
    follow.command("drop", "shop", "--at-source")
    answer = json.loads(capsys.readouterr().out)
    assert not differences(answer, documented()["follow drop"], "follow drop")
    assert answer["at_source"] == ["slot lakebed_shop", "publication lakebed_shop"]
    until(lambda: followers_of(service) == [])


@pytest.mark.slow
def test_a_service_that_is_killed_takes_its_followers_along_and_the_next_one_goes_on(follow, lake):
    follow.sell()
    follow.create()
    with served(lake.url, *SERVICE_OPTIONS) as service:
        follower = follow.holder()
        follow.arrive()
        follow.sell(5)
        service.process.kill()
        service.process.wait()
        until(lambda: not follower.is_running())
        follow.sell(5)
    with served(lake.url, *SERVICE_OPTIONS):
        follow.arrive()


def test_one_of_two_services_follows_and_the_other_one_takes_over(follow, lake):
    follow.sell()
    follow.create()
    with ExitStack() as stack:
        services = [stack.enter_context(served(lake.url, *SERVICE_OPTIONS)) for _ in range(2)]
        follow.arrive()
        states = lambda: sorted(status_of(one)["state"] for one in services)  # noqa: E731
        until(lambda: states() == ["elsewhere", "following"])
        until(lambda: sum(len(children_of(one)) for one in services) == 1)
        (following,) = [one for one in services if children_of(one)]
        follow.sell(5)
        follower = follow.holder()
        following.process.kill()
        following.process.wait()
        until(lambda: not follower.is_running())
        (other,) = [one for one in services if one is not following]
        until(lambda: status_of(other)["state"] == "following")
        follow.sell(5)
        follow.arrive()


def test_a_source_that_goes_away_is_waited_for(cluster, follow, lake):
    follow.sell()
    follow.create()
    with served(lake.url, *SERVICE_OPTIONS) as service:
        follow.arrive()
        cluster.stop("immediate")
        try:
            found = until(lambda: (one := status_of(service))["error"] and one)
            assert "127.0.0.1" in found["error"]
        finally:
            cluster.start()
        with closing(psycopg.connect(follow.url, password=PASSWORD, autocommit=True)) as follow.connection:
            follow.sell(5)
            until(lambda: (one := status_of(service))["state"] == "following" and one["error"] is None)
            follow.arrive()


def test_a_follower_that_cannot_go_on_is_parked_until_it_is_mended_and_resumed(follow, lake):
    """Its slot was dropped: a new snapshot by the command mends it."""
    follow.sell()
    follow.create()
    with served(lake.url, *SERVICE_OPTIONS):
        follow.arrive()
    # The service has ended it, and its record says so.
    assert follow.record().holder == ""
    follow.sql("SELECT pg_drop_replication_slot('lakebed_shop')")
    follow.sell(5)
    with served(lake.url, *SERVICE_OPTIONS) as service:
        found = until(lambda: (one := status_of(service))["state"] == "parked" and one)
        assert "the slot lakebed_shop is gone" in found["error"]
        assert found["failures"] == 5
        assert found["next_at"] is None
        metrics = text_of(service, "/metrics")
        assert 'lakebed_follower_parked{follower="shop"} 1.0' in metrics
        page = text_of(service, "/jobs")
        assert "the slot lakebed_shop is gone" in page
        follow.command("run", follow.url, "--name", "shop", "--resnapshot", "--until-caught-up")
        follow.command("resume", "shop")
        until(lambda: status_of(service)["state"] == "following")
        follow.sell(5)
        until(lambda: follow.rows() == list(range(1, 12)))


def test_a_service_without_the_option_runs_none(follow, lake):
    follow.sell()
    follow.create()
    with served(lake.url, "--no-maintenance") as service:
        assert followers_of(service) == []
        assert not children_of(service)
    assert follow.record() is None
