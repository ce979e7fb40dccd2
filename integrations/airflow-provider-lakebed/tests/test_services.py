"""Tasks on a service: it does the work, triggers wait for it, and a restart of either loses and doubles nothing."""

import asyncio
import json

import pyarrow.parquet as pq
from airflow_lakebed import triggers
from airflow_lakebed.hooks import LakebedHook
from airflow_lakebed.triggers import QueryTrigger, RequestsTrigger
from dags import ran

DEFERS = "deferrable=True, poll_s=0.2"


def test_work_is_submitted_and_waited_for_by_triggers(lake, source, connect, serve, tmp_path):
    """Its tasks are deferred, and what they return is as small as on an instance."""
    lake.table("events").set(ingest_age_s=0, ingest_bytes_min=0)
    connect(serve().url)
    done = ran(
        "served",
        f"""
load = LakebedImportOperator(task_id="load", table="events", source="{source}", {DEFERS})
again = LakebedImportOperator(task_id="again", table="events", source="{source}", {DEFERS})
change = LakebedSQLOperator(task_id="change", sql="INSERT INTO events VALUES (?, ?)", parameters=[100, 7.0])
export = LakebedExportOperator(task_id="export", table="events", where="id > 8", url="{tmp_path}/out", {DEFERS})
query = LakebedExportOperator(task_id="query", sql="SELECT count(*) AS n FROM events", url="{tmp_path}/n", poll_s=0.2)
ask = SQLExecuteQueryOperator(task_id="ask", conn_id="lakebed_default", sql="SELECT max(id) FROM events")
load >> again >> change >> [export, query, ask]
""",
    )
    assert done.state == "success", done
    assert done.results["load"] == done.results["again"]
    assert set(done.results["load"]) == {"table", "version"}
    assert done.results["export"] == {"url": f"{tmp_path}/out", "rows": 2, "files": 1}
    assert pq.read_table(tmp_path / "out")["id"].to_pylist() == [9, 100]
    assert pq.read_table(tmp_path / "n")["n"].to_pylist() == [11]
    assert done.results["ask"] == [(100,)]


def test_a_task_that_is_tried_again_joins_its_query(lake, connect, serve, tmp_path):
    """The first try dies after it has submitted; the second finds the query by its id, and the files once."""
    connect(serve().url)
    lake.table("events").write([{"id": n, "amount": 1.0} for n in range(10)])
    done = ran(
        "joins",
        f"""
class Dies(LakebedExportOperator):
    def wait(self, context, lake, trigger):
        if context["ti"].try_number == 1:
            raise RuntimeError("the worker is lost")
        return super().wait(context, lake, trigger)

Dies(task_id="export", table="events", url="{tmp_path}/out", retries=1, {DEFERS})
""",
    )
    assert (done.state, done.tries) == ("success", {"export": 2})
    assert pq.read_table(tmp_path / "out").num_rows == 10


def test_a_query_that_failed_is_submitted_anew(lake, connect, serve, tmp_path, capfd):
    connect(serve().url)
    program = f"""
LakebedExportOperator(
    task_id="export",
    sql="SELECT 1 / (amount - amount)::int AS x FROM events",
    url="{tmp_path}/out",
    retries=1,
    {DEFERS},
)
"""
    lake.table("events").write([{"id": 1, "amount": 1.0}])
    done = ran("fails", program)
    assert (done.state, done.tries) == ("failed", {"export": 2})
    assert "zero" in capfd.readouterr().out.lower()
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").iterdir())


def test_files_that_the_service_cannot_ingest_fail_the_task(lake, connect, serve, tmp_path, capfd):
    import pyarrow as pa

    lake.table("events").set(ingest_age_s=0, ingest_bytes_min=0, ingest_tries_max=1)
    connect(serve().url)
    pq.write_table(pa.table({"id": ["text"], "amount": [1.0]}), tmp_path / "wrong.parquet")
    load = 'LakebedImportOperator(task_id="load", table="events", source="{}", {})'
    assert ran("rejected", load.format(tmp_path / "wrong.parquet", DEFERS)).state == "failed"
    assert "1 of 1 files were not ingested" in capfd.readouterr().out
    assert ran("elsewhere", load.format("/etc/*.parquet", DEFERS)).state == "failed"
    assert "allow" in capfd.readouterr().out
    maintain = 'LakebedMaintainOperator(task_id="maintain")'
    assert ran("maintains", maintain).state == "failed"
    assert "maintains its tables itself" in capfd.readouterr().out


def again(trigger):
    """The trigger that another triggerer makes of what the database has of this one."""
    from airflow.sdk._shared.module_loading import import_string
    from airflow.sdk.serde import deserialize, serialize

    name, arguments = trigger.serialize()
    return import_string(name)(**deserialize(json.loads(json.dumps(serialize(arguments)))))


async def event_of(trigger):
    return (await anext(trigger.run())).payload


def test_a_trigger_goes_on_in_another_triggerer_and_while_the_service_restarts(lake, source, connect, serve, tmp_path):
    lake.table("events").set(ingest_age_s=0, ingest_bytes_min=0)
    service = serve("--no-maintenance")
    connect(service.url)
    with LakebedHook().instance() as served:
        requests = [file.request for file in served.table("events").submit(source).files]
    trigger = RequestsTrigger(lakebed_conn_id="lakebed_default", table="events", requests=requests, poll_s=0.1)

    async def waits():
        first = asyncio.create_task(event_of(trigger))
        await asyncio.sleep(1)
        assert not first.done()
        first.cancel()
        second = asyncio.create_task(event_of(again(trigger)))
        await asyncio.sleep(1)
        service.process.kill()
        await asyncio.sleep(1)
        assert not second.done()
        port = service.url.rpartition(":")[2]
        await asyncio.to_thread(serve, "--port", port)
        return await second

    assert asyncio.run(waits()) == {"version": lake.table("events").snapshot().version}
    assert lake.table("events").count(exact=True).rows == 10


def test_a_service_that_stays_away_ends_the_wait(connect, monkeypatch):
    connect("http://127.0.0.1:9")
    monkeypatch.setattr(triggers, "AWAY_MAX_S", 0.5)
    trigger = QueryTrigger(lakebed_conn_id="lakebed_default", query_id="q", poll_s=0.1)
    assert "does not answer" in asyncio.run(event_of(trigger))["error"]


def test_a_task_that_is_stopped_cancels_its_work(lake, source, connect, serve, tmp_path):
    """By the trigger if it is deferred, by the operator if its worker waits."""
    connect(serve("--no-maintenance").url)
    with LakebedHook().instance() as served:
        files = served.table("events").submit(source).files
        requests = [file.request for file in files]
        trigger = RequestsTrigger(lakebed_conn_id="lakebed_default", table="events", requests=requests)
        asyncio.run(trigger.on_kill())
        assert {row["reason"] for row in served.table("events").requests().to_pylist()} == {"withdrawn"}
        assert "not ingested" in asyncio.run(event_of(trigger))["error"]
        slow = "SELECT count(*) FROM generate_series(1, 1000000000000) AS a(x) WHERE x % 7 = 3"
        query = served.submit_sql(slow, url=f"{tmp_path}/out")
        trigger = QueryTrigger(lakebed_conn_id="lakebed_default", query_id=query.id, poll_s=0.1)
        assert trigger.look(served) is None
        asyncio.run(trigger.on_kill())
        assert asyncio.run(event_of(trigger)) == {"error": f"query {query.id} cancelled"}
        asyncio.run(trigger.on_kill())


def test_a_worker_that_is_stopped_while_it_waits_cancels_its_query(lake, connect, serve, tmp_path):
    """The signal comes as Airflow's supervisor sends it, to the thread that waits."""
    connect(serve().url)
    done = ran(
        "stopped",
        f"""
import os, signal, threading
slow = "SELECT count(*) FROM generate_series(1, 1000000000000) AS a(x) WHERE x % 7 = 3"

class Stopped(LakebedExportOperator):
    def wait(self, context, lake, trigger):
        signal.signal(signal.SIGTERM, lambda *_: self.on_kill())
        threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGTERM)).start()
        return super().wait(context, lake, trigger)

Stopped(task_id="export", sql=slow, url="{tmp_path}/out", deferrable=False, poll_s=0.2)
""",
    )
    assert done.state == "failed"
    with LakebedHook().instance() as served:
        assert [state.state for state in served.submitted_queries()] == ["cancelled"]
