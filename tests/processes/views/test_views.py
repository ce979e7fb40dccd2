"""Views: each has what its query makes of the rows of its source, once, however it is fed."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lakebed
from lakebed import Aggregate, First, KeyRange, Latest, Schema
from lakebed.errors import Code, NotFoundError, RejectedError, UsageError
from lakebed.log.log_limits import LogLimits
from lakebed.testing.faults import Meanwhile
from lakebed.upkeep import view_feed
from tests.raising import raises
from tests.tables.retention.cases import on
from tests.workers import in_process

FLIGHTS = Schema({"id": "int64"}, values={"origin": "string", "delay": "int64"})
BY_ORIGIN = "SELECT origin, count(*) AS n, sum(delay) AS delay FROM source GROUP BY origin"


@pytest.fixture
def pipeline(lake):
    with in_process(lake) as made:
        yield made


@pytest.fixture
def flights(lake):
    return lake.create_table("flights", FLIGHTS)


@pytest.fixture
def totals(lake, flights):
    merge = Aggregate({"n": "sum", "delay": "sum"})
    return lake.create_view_table("totals", source="flights", select=BY_ORIGIN, row_key=["origin"], merge=merge)


def rows(ids, origin="JFK"):
    return pa.table({"id": ids, "origin": [origin] * len(ids), "delay": ids}, schema=FLIGHTS.arrow)


def of(view):
    return view.scan().read_all().to_pylist()


def test_a_view_has_what_its_query_makes_of_the_rows(pipeline, flights, totals):
    assert of(totals) == []
    flights.write(rows(range(10)))
    flights.write(rows(range(10, 13), "EWR"))
    report = pipeline.refresh("totals")
    assert (report.since, report.until, report.rows_read, report.anew) == (0, 3, 13, False)
    assert of(totals) == [{"origin": "EWR", "n": 3, "delay": 33}, {"origin": "JFK", "n": 10, "delay": 45}]
    flights.write(rows([100], "EWR"))
    report = pipeline.refresh("totals")
    assert (report.since, report.until, report.rows_read) == (3, 4, 1)
    assert of(totals) == [{"origin": "EWR", "n": 4, "delay": 133}, {"origin": "JFK", "n": 10, "delay": 45}]


def test_a_refresh_without_new_rows_commits_nothing(pipeline, flights, totals):
    flights.write(rows([1]))
    version = pipeline.refresh("totals").version
    assert pipeline.refresh("totals").version == version
    pipeline.compact("flights")
    flights.write(rows([]))
    assert of(totals) == [{"origin": "JFK", "n": 1, "delay": 1}]


def test_rows_of_a_source_under_another_key(pipeline, lake, flights):
    select = "SELECT origin, id, delay FROM source WHERE delay > 1"
    by_origin = lake.create_view_table(
        "by_origin", source="flights", select=select, row_key=["origin"], sort_key=["id"]
    )
    flights.write(rows([1, 2, 3], "LGA"))
    pipeline.refresh(by_origin)
    assert by_origin.get("LGA").column("id").to_pylist() == [2, 3]


def test_columns_are_named_as_they_are_written(pipeline, lake):
    """As in every other statement."""
    lake.create_table("trips", Schema({"Id": "int64"}, values={"Origin": "string"})).write(
        pa.table({"Id": [1, 2], "Origin": ["JFK", "EWR"]})
    )
    view = lake.create_view_table("v", source="trips", select="SELECT Origin, Id FROM source", row_key=["Origin"])
    pipeline.refresh(view)
    assert of(view) == [{"Origin": "EWR", "Id": 2}, {"Origin": "JFK", "Id": 1}]


def test_a_deep_query_is_planned_on_a_deep_stack(pipeline, lake, flights):
    deep = "+".join(["delay"] + ["1"] * 400)
    view = lake.create_view_table("v", source="flights", select=f"SELECT id, {deep} AS d FROM source", row_key=["id"])
    flights.write(rows([7]))
    pipeline.refresh(view)
    assert of(view) == [{"id": 7, "d": 407}]


@settings(
    max_examples=settings.default.max_examples // 5,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.lists(st.one_of(st.lists(st.integers(0, 5), min_size=1, max_size=6), st.just("refresh")), max_size=12))
def test_a_view_is_the_query_over_all_rows_however_often_it_is_fed(tmp_path_factory, steps):
    lake = lakebed.create(str(tmp_path_factory.mktemp("lake")))
    flights = lake.create_table("flights", FLIGHTS)
    totals = lake.create_view_table(
        "totals", source="flights", select=BY_ORIGIN, row_key=["origin"], merge=Aggregate({"n": "sum", "delay": "sum"})
    )
    counted = {}
    with in_process(lake) as pipeline:
        for step in [*steps, "refresh"]:
            if step == "refresh":
                pipeline.refresh(totals)
                assert {row["origin"]: row["n"] for row in of(totals)} == counted
            else:
                for number in step:
                    counted[str(number)] = counted.get(str(number), 0) + 1
                flights.write(
                    pa.table({"id": step, "origin": [str(n) for n in step], "delay": step}, schema=FLIGHTS.arrow)
                )


def test_two_refreshes_at_the_same_time_add_no_row_twice(pipeline, lake, flights, totals):
    flights.write(rows(range(5)))
    both = threading.Barrier(2)
    found = []

    def feed():
        view = on(totals, Meanwhile(lake.storage, "create", "*/log/*", lambda: both.wait(120)))
        view.log.limits = LogLimits(turn_wait_s=0.0)
        found.append(view_feed.refresh(view, flights))

    threads = [threading.Thread(target=feed) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 2
    assert of(totals) == [{"origin": "JFK", "n": 5, "delay": 10}]


def fed_meanwhile(lake, flights, totals):
    """The view, on a store that another process uses: it feeds the view with more rows before this one's commit."""

    def feed():
        flights.write(rows(range(5, 7)))
        view_feed.refresh(lake.table("totals"), flights)

    return on(totals, Meanwhile(lake.storage, "create", "*/log/*", feed))


def test_a_feed_that_another_one_overtook_is_refused(lake, flights, totals):
    flights.write(rows(range(5)))
    with raises(Code.PROPOSAL_OUTDATED):
        view_feed.refresh(fed_meanwhile(lake, flights, totals), flights)
    assert of(totals) == [{"origin": "JFK", "n": 7, "delay": 21}]


def test_a_refresh_that_another_one_overtook_begins_again(pipeline, lake, flights, totals):
    """A service feeds its views whenever it likes, and a refresh need not be asked for twice."""
    flights.write(rows(range(5)))
    report = pipeline.refresh(fed_meanwhile(lake, flights, totals))
    assert (report.rows_read, report.until) == (0, flights.version)
    assert of(totals) == [{"origin": "JFK", "n": 7, "delay": 21}]


def test_parts_of_the_rows_are_put_together(flights, totals):
    flights.write(rows(range(50)))
    assert view_feed.refresh(totals, flights, part_rows=7).rows_read == 50
    assert of(totals) == [{"origin": "JFK", "n": 50, "delay": sum(range(50))}]


@pytest.mark.parametrize("change", ["remove", "restore"])
def test_a_source_that_lost_rows_takes_them_from_the_view(pipeline, flights, totals, change):
    written = flights.write(rows(range(10)))
    flights.write(rows(range(20, 30)))
    flights.write(rows(range(40, 45), "EWR"))
    pipeline.refresh("totals")
    if change == "remove":
        flights.remove(KeyRange(20, 50))
    else:
        flights.restore(version=written)
    report = pipeline.refresh("totals")
    assert not report.anew
    assert of(totals) == [{"origin": "JFK", "n": 10, "delay": 45}]
    flights.write(rows([1_000]))
    pipeline.refresh("totals")
    assert of(totals) == [{"origin": "JFK", "n": 11, "delay": 1_045}]


def test_upserts_and_deletes_of_a_source_change_the_groups_that_they_touch(pipeline, lake):
    seats = lake.create_table("seats", FLIGHTS, merge=Latest())
    select = "SELECT origin, count(*) AS n, sum(delay) AS delay, max(delay) AS top FROM source GROUP BY origin"
    merge = Aggregate({"n": "sum", "delay": "sum", "top": "max"})
    view = lake.create_view_table(
        "v", source="seats", select=select, row_key=["origin"], merge=merge, split_points=["M"]
    )
    seats.write(rows(range(10)))
    seats.write(rows(range(20, 22), "SFO"))
    pipeline.refresh(view)
    far = view.state().partitions.ids[1]
    untouched = [file.id for file in view.state().files_of(far)]
    seats.write(rows([3], "EWR"))
    seats.delete([4])
    report = pipeline.refresh(view)
    assert (report.rows_read, report.anew) == (1, False), "nothing is made again"
    assert of(view) == [
        {"origin": "EWR", "n": 1, "delay": 3, "top": 3},
        {"origin": "JFK", "n": 8, "delay": 38, "top": 9},
        {"origin": "SFO", "n": 2, "delay": 41, "top": 21},
    ]
    assert [file.id for file in view.state().files_of(far)] == untouched
    seats.delete([9])
    report = pipeline.refresh(view)
    assert (report.rows_read, report.anew) == (10, False), "the greatest went, so the rows of the source are read"
    assert of(view)[1] == {"origin": "JFK", "n": 7, "delay": 29, "top": 8}


def test_more_changes_than_fit_into_memory_are_read_anew(pipeline, lake):
    flights = lake.create_table("flights", FLIGHTS, merge=Latest())
    copies = lake.create_view_table("copies", source="flights", select="SELECT * FROM source", row_key=["id"])
    flights.write(rows(range(400_000)))
    pipeline.refresh(copies)
    copies.set(memory_limit_bytes=64 * 2**20)
    flights.write(rows(range(400_000), "a longer origin than before"))
    assert pipeline.refresh(copies).anew
    assert set(copies.scan().read_all()["origin"].to_pylist()) == {"a longer origin than before"}
    flights.write(rows(range(1_000_000, 1_400_000), "and another one"))
    report = pipeline.refresh(copies)
    assert (report.anew, report.rows_read) == (False, 400_000), "rows that come alone need no memory"
    assert copies.count(exact=True).rows == 800_000


def test_a_view_that_fell_behind_what_is_retained_is_fed_anew(pipeline, lake, flights, totals):
    flights.write(rows([1]))
    pipeline.refresh("totals")
    flights.write(rows([2]))
    flights.set(history_s=0)
    pipeline.compact("flights", strategy="full")
    pipeline.gc("flights")
    with pytest.raises(RejectedError, match="anew") as caught:
        pipeline.refresh("totals")
    assert caught.value.code is Code.VIEW_NOT_FED
    pipeline.refresh("totals", anew=True)
    assert of(totals) == [{"origin": "JFK", "n": 2, "delay": 3}]


def test_a_view_is_changed_by_refreshes_alone(pipeline, flights, totals):
    flights.write(rows([1]))
    pipeline.refresh("totals")
    data = pa.table({"origin": ["JFK"], "n": [1], "delay": [1]})
    for change in (
        lambda: totals.write(data),
        lambda: totals.remove(KeyRange()),
        lambda: totals.restore(version=1),
        lambda: totals.alter(lakebed.AddField("x", "int64", "sum")),
        lambda: totals.alter(lakebed.SetMerge(First())),
    ):
        with pytest.raises(RejectedError, match="view") as caught:
            change()
        assert caught.value.code is Code.VIEW_READ_ONLY
    assert of(totals) == [{"origin": "JFK", "n": 1, "delay": 1}]


def test_a_source_that_was_dropped_is_named(pipeline, lake, flights, totals):
    lake.drop_table("flights")
    with pytest.raises(NotFoundError, match="dropped"):
        pipeline.refresh("totals")


def test_results_without_a_key_are_left_out_and_counted(pipeline, flights, totals):
    flights.write(pa.table({"id": [1, 2], "origin": [None, "JFK"], "delay": [1, 2]}, schema=FLIGHTS.arrow))
    report = pipeline.refresh("totals")
    assert report.rows_without_key == 1
    assert "1 result without a key" in report.summary
    assert of(totals) == [{"origin": "JFK", "n": 1, "delay": 2}]
    flights.remove(KeyRange(1, 2))
    assert pipeline.refresh("totals").rows_without_key == 0
    assert of(totals) == [{"origin": "JFK", "n": 1, "delay": 2}]


def test_a_row_that_does_not_fit_the_view_adds_nothing(pipeline, lake, flights):
    view = lake.create_view_table("v", source="flights", select="SELECT id, origin FROM source", row_key=["id"])
    view.set(value_bytes_max=8192)
    flights.write(rows([3]))
    pipeline.refresh(view)
    flights.write(rows([4], "x" * 8193))
    with pytest.raises(UsageError, match=r"the query of view v.*column origin"):
        pipeline.refresh(view)
    assert of(view) == [{"id": 3, "origin": "JFK"}]


def test_a_query_that_fails_on_a_row_is_named(pipeline, lake, flights):
    view = lake.create_view_table(
        "v", source="flights", select="SELECT id, 1 / (delay - 3) AS x FROM source", row_key=["id"]
    )
    flights.write(rows([3]))
    with pytest.raises(UsageError, match=r"1 / \(delay - 3\)"):
        pipeline.refresh(view)
    assert of(view) == []


@pytest.mark.parametrize(
    ("select", "options", "said"),
    [
        ("SELECT * FROM source LIMIT 3", {"row_key": ["id"]}, "LIMIT"),
        ("SELECT a.id FROM source a JOIN source b ON a.id = b.id", {"row_key": ["id"]}, "join"),
        ("SELECT id, row_number() OVER () AS n FROM source", {"row_key": ["id"]}, "window"),
        ("SELECT id FROM source UNION ALL SELECT id FROM source", {"row_key": ["id"]}, "UNION"),
        ("SELECT id, now() AS t FROM source", {"row_key": ["id"]}, "now"),
        ("SELECT id FROM flights", {"row_key": ["id"]}, "table 'flights', .* is named source"),
        ("SELECT 1 AS id", {"row_key": ["id"]}, "source"),
        ("SELECT id FROM source", {"row_key": ["origin"]}, "origin"),
        ("DELETE FROM source", {"row_key": ["id"]}, "source"),
        (BY_ORIGIN, {"row_key": ["origin"]}, "Aggregate"),
        (BY_ORIGIN, {"row_key": ["origin"], "merge": Latest()}, "Aggregate"),
        ("SELECT DISTINCT origin FROM source", {"row_key": ["origin"]}, "DISTINCT"),
        ("SELECT", {"row_key": ["id"]}, "SELECT"),
    ],
)
def test_a_query_that_cannot_feed_a_view_is_refused(lake, flights, select, options, said):
    with pytest.raises(UsageError, match=said):
        lake.create_view_table("v", source="flights", select=select, **options)
    assert lake.tables() == ["flights"]


def test_a_view_of_no_table_and_a_refresh_of_no_view_are_refused(pipeline, lake, flights):
    with raises(Code.TABLE_NOT_FOUND):
        lake.create_view_table("v", source="nothing", select="SELECT * FROM source", row_key=["id"])
    with pytest.raises(UsageError, match="no view"):
        pipeline.refresh("flights")
