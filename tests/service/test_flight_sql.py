"""The Flight SQL endpoint, asked by the real ADBC driver."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
import threading

import adbc_driver_manager
import pyarrow as pa
import pyarrow.flight as fl
import pytest
from adbc_driver_flightsql import ConnectionOptions, DatabaseOptions, dbapi

import lakebed
from lakebed.errors import Code
from lakebed.read.sql.limited import Limits
from lakebed.server.flight import flight_server, messages, statement_runs
from lakebed.server.flight.flight_server import FlightServer
from lakebed.server.flight.statement_runs import Statement, StatementLimits
from lakebed.server.security.audit import AuditLog
from lakebed.server.security.principal import Permission, Principal
from lakebed.server.security.roles import Role
from lakebed.server.service.service import Service
from tests import pages
from tests.soaked import few
from tests.waiting import WAIT_S, until

ROWS = pa.table(
    {
        "tail": ["a", "b", "c"],
        "day": [dt.date(2020, 1, day) for day in (1, 2, 3)],
        "n": [1, 2, 3],
        "x": [0.5, None, 2.0],
    }
)
ROWS = ROWS.cast(pa.schema([("tail", pa.string()), ("day", pa.date32()), ("n", pa.int64()), ("x", pa.float64())]))


PART = Principal("part", (Role("part", Permission.READ, frozenset({"flights"}), "n < 3", frozenset({"x"})),))


class Tokens:
    """An authenticator with four tokens."""

    def authenticate(self, authorization: str | None) -> Principal:
        if authorization == "Bearer part":
            return PART
        found = {"Bearer " + p.name.lower(): p for p in Permission}.get(authorization or "")
        if found is None:
            raise Code.NOT_AUTHENTICATED("not a token of this service")
        return Principal.everywhere(found.name.lower(), found)


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    lake = lakebed.create(tmp_path_factory.mktemp("lake").as_uri())
    schema = lakebed.Schema({"tail": "string", "day": "date32"}, {}, {"n": "int64", "x": "double"})
    lake.create_table("flights", schema).write(ROWS)
    lake.create_table("my_other", lakebed.Schema({"k": "int64"}))
    return lake


@pytest.fixture(scope="module")
def limited(lake):
    """A server as it is by default: each statement in a process of its own."""
    server = FlightServer(Service(lake))
    yield server
    server.stop()


WITHOUT_PROCESSES = StatementLimits(None)


@pytest.fixture(scope="module")
def server(lake):
    server = FlightServer(Service(lake), limits=WITHOUT_PROCESSES)
    yield server
    server.stop()


@pytest.fixture(scope="module")
def guarded(lake):
    server = FlightServer(Service(lake), authenticator=Tokens(), limits=WITHOUT_PROCESSES)
    yield server
    server.stop()


def connect(server, **options):
    return dbapi.connect(f"grpc://127.0.0.1:{server.port}", autocommit=True, **options)


@pytest.fixture
def cursor(server):
    with connect(server) as connection, connection.cursor() as cursor:
        yield cursor


def rows_of(cursor, *statement):
    cursor.execute(*statement)
    return cursor.fetch_arrow_table()


# -- queries ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["server", "limited"])
def test_a_query_has_the_rows_in_their_types(request, which):
    with connect(request.getfixturevalue(which)) as connection, connection.cursor() as cursor:
        found = rows_of(cursor, "SELECT * FROM flights ORDER BY tail")
    assert found.equals(ROWS.cast(found.schema))
    assert [field.type for field in found.schema] == [field.type for field in ROWS.schema]


def test_tables_may_be_named_with_catalog_and_schema(cursor):
    assert rows_of(cursor, 'SELECT n FROM "lakebed"."tables"."flights" WHERE tail = \'b\'').to_pydict() == {"n": [2]}


def test_parameters_are_bound_again_and_again(cursor):
    statement = "SELECT n FROM flights WHERE tail = ? AND day = ?"
    for row in ROWS.to_pylist():
        assert rows_of(cursor, statement, (row["tail"], row["day"])).to_pydict() == {"n": [row["n"]]}
    assert rows_of(cursor, "SELECT $2 || $1 AS t", ("'; --", "a")).to_pydict() == {"t": ["a'; --"]}


def test_a_prepared_statement_announces_types_that_values_are_bound_in(cursor):
    query = "SELECT tail FROM flights WHERE n = ? AND day > ?"
    cursor.adbc_prepare(query)
    schema = cursor.adbc_statement.get_parameter_schema()
    assert [field.type for field in pa.schema(schema)] == [pa.int64(), pa.date32()]
    for kind in (pa.int8(), pa.int32(), pa.int64(), pa.float64()):
        values = pa.record_batch([pa.array([2], kind), pa.array([dt.date(2020, 1, 1)])], ["a", "b"])
        cursor.execute(query, values)
        assert cursor.fetchall() == [("b",)]


@pytest.mark.parametrize(
    ("statement", "values", "error", "said"),
    [
        ("SELECT * FROM nope", (), "NOT_FOUND", "table_not_found: no table named 'nope'"),
        ("SELEC 1", (), "INVALID_ARGUMENT", "sql_invalid"),
        ("DELETE FROM flights", (), "INVALID_ARGUMENT", "sql_read_only"),
        ("SELECT ? + 1", (), "INVALID_ARGUMENT", "1 parameters, and 0 values"),
        ("SELECT CAST(tail AS INT) FROM flights", (), "INVALID_ARGUMENT", "expression_failed"),
    ],
)
def test_errors_have_a_status_and_a_code_and_no_traceback(cursor, statement, values, error, said):
    with pytest.raises(adbc_driver_manager.ProgrammingError) as caught:
        rows_of(cursor, statement, values)
    assert str(caught.value).startswith(error)
    assert said in str(caught.value)
    assert "Traceback" not in str(caught.value)
    assert ".py" not in str(caught.value)


def test_many_rows_come_as_a_stream(cursor):
    cursor.execute("SELECT value, value * 2 AS twice FROM generate_series(1, 3000000)")
    reader = cursor.fetch_record_batch()
    rows = total = 0
    for batch in reader:
        rows, total = rows + batch.num_rows, total + pa.compute.sum(batch.column(1)).as_py()
    assert (rows, total) == (3_000_000, 3_000_000 * 3_000_001)


ENDLESS = (
    "SELECT count(*) FROM generate_series(1, 1000000) a, generate_series(1, 10000000) b WHERE a.value * b.value = 7"
)


def test_a_cancelled_statement_ends_in_the_service(limited):
    def cancel():
        until(lambda: limited.running() == 1)
        cursor.adbc_cancel()

    cursor = connect(limited).cursor()
    thread = threading.Thread(target=cancel)
    thread.start()
    with pytest.raises(adbc_driver_manager.OperationalError, match=r"(?i)cancel"):
        rows_of(cursor, ENDLESS)
    thread.join()
    until(lambda: limited.running() == 0)


def test_a_statement_ends_when_its_reader_is_dropped(limited):
    client = fl.connect(("127.0.0.1", limited.port))
    info = client.get_flight_info(command("SELECT value FROM generate_series(1, 100000000)"))
    reader = client.do_get(info.endpoints[0].ticket)
    assert reader.read_chunk().data.num_rows > 0
    assert limited.running() == 1
    reader.cancel()
    del reader
    until(lambda: limited.running() == 0)


def command(query):
    return fl.FlightDescriptor.for_command(messages.packed("CommandStatementQuery", query=query))


@pytest.mark.parametrize("older", [False, True], ids=["CancelFlightInfo", "CancelQuery"])
def test_a_statement_is_cancelled_by_its_flight_info(limited, older):
    client = fl.connect(("127.0.0.1", limited.port))
    info = client.get_flight_info(command(ENDLESS))
    thread = threading.Thread(target=lambda: failed.append(_failure(client, info)))
    failed: list[Exception] = []
    thread.start()
    until(lambda: limited.running() == 1)
    body = messages.message("CancelFlightInfoRequest")
    body.info.ParseFromString(info.serialize())
    if older:
        data = messages.packed("ActionCancelQueryRequest", info=info.serialize())
        (result,) = client.do_action(fl.Action("CancelQuery", data))
        assert messages.unpacked(result.body.to_pybytes())[1].result == messages.CANCELLED
    else:
        (result,) = client.do_action(fl.Action("CancelFlightInfo", body.SerializeToString()))
        status = messages.parsed("CancelFlightInfoResult", result.body.to_pybytes()).status
        assert status == messages.CANCELLED
    thread.join()
    assert isinstance(failed[0], fl.FlightCancelledError)
    (result,) = client.do_action(fl.Action("CancelFlightInfo", body.SerializeToString()))
    status = messages.parsed("CancelFlightInfoResult", result.body.to_pybytes()).status
    assert status == messages.NOT_CANCELLABLE


def _failure(client, info):
    try:
        # Not read_all, which turns a cancelled call into a KeyboardInterrupt.
        client.do_get(info.endpoints[0].ticket).read_chunk()
    except Exception as error:  # noqa: BLE001 - looked at by the test
        return error
    raise AssertionError("the statement ended")


# -- statements that are planned once ------------------------------------------------------------------------------


@pytest.fixture
def planned(monkeypatch):
    """The statements that were planned, in their order."""
    found: list[str] = []
    run_statement = statement_runs.run_statement

    def noted(principal, instance, statement, *limits):
        found.append(statement)
        return run_statement(principal, instance, statement, *limits)

    monkeypatch.setattr(statement_runs, "run_statement", noted)
    return found


def prepared(server, query, **options):
    """Prepare a statement as drivers do, for its columns."""
    client = fl.connect(("127.0.0.1", server.port))
    body = messages.packed("ActionCreatePreparedStatementRequest", query=query)
    (result,) = client.do_action(fl.Action("CreatePreparedStatement", body), **options)
    handle = messages.unpacked(result.body.to_pybytes())[1].prepared_statement_handle
    command = fl.FlightDescriptor.for_command(
        messages.packed("CommandPreparedStatementQuery", prepared_statement_handle=handle)
    )
    return client, client.get_flight_info(command, **options).endpoints[0].ticket


def token_of(name):
    return fl.FlightCallOptions(headers=[(b"authorization", f"Bearer {name}".encode())])


def test_a_statement_that_is_prepared_is_planned_once(server, planned):
    with connect(server) as connection, connection.cursor() as cursor:
        for _ in range(2):
            assert rows_of(cursor, "SELECT n FROM flights WHERE tail = 'b'").to_pydict() == {"n": [2]}
    assert len(planned) == 2
    assert server.running() == 0


def test_a_ticket_that_is_sent_again_runs_again(server, planned):
    client, ticket = prepared(server, "SELECT max(n) AS n FROM flights")
    for _ in range(3):
        assert client.do_get(ticket).read_all().to_pydict() == {"n": [3]}
    assert len(planned) == 3


def test_rows_that_came_after_the_plan_are_read(lake, server, planned):
    table = lake.create_table("growing", lakebed.Schema({"k": "int64"}))
    client, ticket = prepared(server, "SELECT count(*) AS n FROM growing")
    table.write(pa.table({"k": [1]}))
    assert client.do_get(ticket).read_all().to_pydict() == {"n": [1]}
    client, ticket = prepared(server, "SHOW TABLES")
    lake.drop_table("growing")
    assert "growing" not in str(client.do_get(ticket).read_all())
    assert len(planned) == 4


def test_no_principal_gets_what_was_planned_for_another(guarded, planned):
    query = "SELECT n FROM flights ORDER BY n"
    _, ticket = prepared(guarded, query, options=token_of("read"))
    found = fl.connect(("127.0.0.1", guarded.port)).do_get(ticket, token_of("part")).read_all()
    assert found.to_pydict() == {"n": [1, 2]}
    forged = messages.packed("TicketStatementQuery", statement_handle=Statement("SELECT * FROM my_other").handle)
    prepared(guarded, "SELECT * FROM my_other", options=token_of("read"))
    with pytest.raises(pa.ArrowKeyError, match="table_not_found"):
        fl.connect(("127.0.0.1", guarded.port)).do_get(fl.Ticket(forged), token_of("part")).read_all()
    assert len(planned) == 4


def test_what_was_planned_is_kept_for_a_moment_and_within_the_limit(lake, planned):
    server = FlightServer(Service(lake), limits=StatementLimits(None, statements_max=2))
    kept = server._runs._kept
    kept.kept_s = 600.0
    for number in range(3):
        client, ticket = prepared(server, f"SELECT {number} AS n")
    # The oldest made room, and what waits does not count as running.
    assert (len(kept), server.running()) == (2, 0)
    assert client.do_get(ticket).read_all().to_pydict() == {"n": [2]}
    assert len(planned) == 3
    kept.kept_s = 0.05
    prepared(server, "SELECT 9 AS n")
    until(lambda: len(kept) == 1)
    server.stop()
    assert len(kept) == 0


def test_a_ticket_outlives_the_service(lake):
    first = FlightServer(Service(lake), limits=WITHOUT_PROCESSES)
    info = fl.connect(("127.0.0.1", first.port)).get_flight_info(command("SELECT 7 AS n"))
    first.stop()
    second = FlightServer(Service(lake), limits=WITHOUT_PROCESSES)
    found = fl.connect(("127.0.0.1", second.port)).do_get(info.endpoints[0].ticket).read_all()
    assert found.to_pydict() == {"n": [7]}
    second.stop()


def test_limits_end_a_statement_and_refuse_one_too_many(lake):
    limits = StatementLimits(Limits(64 * 1024 * 1024, 0.2), statements_max=1)
    server = FlightServer(Service(lake), limits=limits)
    client = fl.connect(("127.0.0.1", server.port))
    with pytest.raises(pa.ArrowInvalid, match="statement_limit_exceeded"):
        client.do_get(client.get_flight_info(command(ENDLESS)).endpoints[0].ticket).read_all()
    server.stop()
    server = FlightServer(Service(lake), limits=StatementLimits(statements_max=0))
    client = fl.connect(("127.0.0.1", server.port))
    with pytest.raises(fl.FlightUnavailableError, match="service_busy"):
        client.do_get(client.get_flight_info(command("SELECT 1")).endpoints[0].ticket).read_all()
    server.stop()


def test_a_stop_ends_what_runs(lake):
    server = FlightServer(Service(lake))
    client = fl.connect(("127.0.0.1", server.port))
    failed: list[Exception] = []
    info = client.get_flight_info(command(ENDLESS))
    thread = threading.Thread(target=lambda: failed.append(_failure(client, info)))
    thread.start()
    until(lambda: server.running() == 1)
    server.stop()
    thread.join()
    assert isinstance(failed[0], fl.FlightUnavailableError)


# -- the catalog --------------------------------------------------------------------------------------------------


def test_the_catalog_has_tables_columns_and_keys(server):
    with connect(server) as connection:
        assert connection.adbc_get_info()["vendor_name"] == "Lakebed"
        assert connection.adbc_get_table_types() == ["TABLE"]
        assert connection.adbc_get_table_schema("flights").names == ROWS.schema.names
        (catalog,) = connection.adbc_get_objects(table_name_filter="fl%").read_all().to_pylist()
        (schema,) = catalog["catalog_db_schemas"]
        (table,) = schema["db_schema_tables"]
        assert (catalog["catalog_name"], schema["db_schema_name"]) == ("lakebed", "tables")
        assert table["table_name"] == "flights"
        assert [column["column_name"] for column in table["table_columns"]] == ROWS.schema.names


def catalog(server, name, **fields):
    client = fl.connect(("127.0.0.1", server.port))
    info = client.get_flight_info(fl.FlightDescriptor.for_command(messages.packed(name, **fields)))
    found = client.do_get(info.endpoints[0].ticket).read_all()
    assert found.schema == info.schema
    return found


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({}, ["flights", "my_other"]),
        ({"table_name_filter_pattern": "my\\_%"}, ["my_other"]),
        ({"table_name_filter_pattern": "fl_ghts"}, ["flights"]),
        ({"table_name_filter_pattern": "fl\\_ghts"}, []),
        ({"catalog": "other"}, []),
        ({"catalog": "lakebed", "db_schema_filter_pattern": "t%"}, ["flights", "my_other"]),
        ({"table_types": ["VIEW"]}, []),
    ],
)
def test_tables_are_found_by_patterns(server, fields, names):
    assert catalog(server, "CommandGetTables", **fields)["table_name"].to_pylist() == names


def test_every_question_of_drivers_is_answered(server):
    keys = catalog(server, "CommandGetPrimaryKeys", table="flights").to_pylist()
    assert [(key["column_name"], key["key_sequence"]) for key in keys] == [("tail", 1), ("day", 2)]
    assert catalog(server, "CommandGetPrimaryKeys", table="nope").num_rows == 0
    assert catalog(server, "CommandGetDbSchemas")["db_schema_name"].to_pylist() == ["tables"]
    assert catalog(server, "CommandGetCatalogs")["catalog_name"].to_pylist() == ["lakebed"]
    assert catalog(server, "CommandGetXdbcTypeInfo", data_type=12)["type_name"].to_pylist() == ["VARCHAR"]
    assert catalog(server, "CommandGetXdbcTypeInfo").num_rows > 10
    for name in ("CommandGetExportedKeys", "CommandGetImportedKeys", "CommandGetCrossReference"):
        assert catalog(server, name).num_rows == 0


# -- bulk ingest --------------------------------------------------------------------------------------------------


def test_rows_are_ingested_into_a_table_that_is_there(lake, cursor):
    table = lake.create_table("sink", lakebed.Schema({"k": "int64"}, {}, {"v": "string"}))
    batches = [pa.record_batch({"k": [n], "v": [str(n)]}) for n in range(20)]
    given = pa.RecordBatchReader.from_batches(batches[0].schema, batches)
    assert cursor.adbc_ingest("sink", given, mode="append") == 20
    assert table.scan().read_all()["k"].to_pylist() == list(range(20))
    before = table.version
    for _ in range(2):
        rows = pa.table({"k": [100]}).replace_schema_metadata({"lakebed.commit_id": "once"})
        cursor.adbc_ingest("sink", rows, mode="append")
    assert (table.count().rows, table.state().version) == (21, before + 1)


def test_a_table_is_created_where_the_rows_name_its_key(lake, cursor):
    rows = pa.table({"b": [2, 1], "a": ["x", "y"], "v": [1.5, 2.5]})
    with pytest.raises(adbc_driver_manager.ProgrammingError, match=r"lakebed\.row_key"):
        cursor.adbc_ingest("made", rows, mode="create")
    keyed = rows.replace_schema_metadata({"lakebed.row_key": "a", "lakebed.sort_key": "b"})
    cursor.adbc_ingest("made", keyed, mode="create_append")
    assert lake.table("made").schema.row_key_names == ("a",)
    assert lake.table("made").scan().read_all().column_names == ["a", "b", "v"]
    for mode, said in (("create", "table_exists"), ("replace", "cannot be replaced")):
        with pytest.raises(adbc_driver_manager.Error, match=said):
            cursor.adbc_ingest("made", keyed, mode=mode)
    assert lake.table("made").count().rows == 2


@pytest.mark.parametrize(
    ("name", "rows", "said"),
    [
        ("absent", {"k": [1]}, "table_not_found"),
        ("my_other", {"k": [1], "more": [1]}, "extra column more"),
        ("my_other", {"k": ["text"]}, "column_type_mismatch"),
    ],
)
def test_rows_that_do_not_fit_are_refused(cursor, name, rows, said):
    with pytest.raises(adbc_driver_manager.Error, match=said):
        cursor.adbc_ingest(name, pa.table(rows), mode="append")


CUT_CALL = """
import os, sys
import pyarrow as pa, pyarrow.flight as fl
from lakebed.server.flight import messages

name, batches = sys.argv[2], int(sys.argv[3])
options = messages.message("TableDefinitionOptions", if_exists=messages.TableExists.APPEND, if_not_exist=1)
command = messages.packed("CommandStatementIngest", table=name, table_definition_options=options)
rows = pa.record_batch({"k": pa.array(range(1000), pa.int64())}, metadata={"lakebed.row_key": "k"})
writer, _ = fl.connect(sys.argv[1]).do_put(fl.FlightDescriptor.for_command(command), rows.schema)
for _ in range(batches):
    writer.write_batch(rows)
os._exit(1)
"""


@pytest.mark.parametrize(("name", "batches"), few([("cut", 1), ("cut_at_once", 0)], 1))
def test_an_ingest_whose_client_dies_writes_nothing(lake, server, monkeypatch, name, batches):
    """Its stream ends in the server as if all rows were there. Without any row it creates no table."""
    table, ended = lake.create_table("cut", lakebed.Schema({"k": "int64"}), if_not_exists=True), threading.Event()
    ingested = flight_server.ingest

    def ingest(*given):
        try:
            return ingested(*given)
        finally:
            ended.set()

    monkeypatch.setattr(flight_server, "ingest", ingest)
    words = [sys.executable, "-c", CUT_CALL, f"grpc://127.0.0.1:{server.port}", name, str(batches)]
    subprocess.run(words, check=False)
    assert ended.wait(WAIT_S)
    assert table.count().rows == 0
    assert "cut_at_once" not in lake.tables()


def test_statements_that_change_something_return_the_count_of_their_rows(server, lake):
    client = fl.connect(("127.0.0.1", server.port))

    def count(statement):
        data = messages.packed("CommandStatementUpdate", query=statement)
        writer, metadata = client.do_put(fl.FlightDescriptor.for_command(data), pa.schema([]))
        writer.done_writing()
        answer = messages.parsed("DoPutUpdateResult", metadata.read().to_pybytes())
        writer.close()
        return answer.record_count

    assert count("CREATE TABLE changed (k BIGINT PRIMARY KEY, n BIGINT)") == -1
    assert count("INSERT INTO changed VALUES (1, 1), (2, 2)") == 2
    assert count("UPDATE changed SET n = n + 1 WHERE k = 2") == 1
    assert lake.sql("SELECT k, n FROM changed ORDER BY k").to_arrow().to_pydict() == {"k": [1, 2], "n": [1, 3]}
    assert count("DROP TABLE changed") == -1


# -- who may do what ----------------------------------------------------------------------------------------------


def bearer(token):
    return {DatabaseOptions.AUTHORIZATION_HEADER.value: f"Bearer {token}"}


@pytest.mark.parametrize(
    "options",
    [{}, bearer("wrong"), {"username": "u", "password": "wrong"}],
    ids=["none", "wrong", "wrong password"],
)
def test_a_call_without_a_token_is_refused(guarded, options):
    with pytest.raises(adbc_driver_manager.Error) as caught, connect(guarded, db_kwargs=options) as connection:
        rows_of(connection.cursor(), "SELECT 1")
    assert "not_authenticated" in str(caught.value)


@pytest.mark.parametrize(
    "options", [bearer("read"), {"username": "anyone", "password": "read"}], ids=["token", "password"]
)
def test_a_reader_reads_and_does_not_write(guarded, options):
    with connect(guarded, db_kwargs=options) as connection, connection.cursor() as cursor:
        assert rows_of(cursor, "SELECT count(*) AS n FROM flights").to_pydict() == {"n": [3]}
        for name, mode in (("flights", "append"), ("another", "create")):
            with pytest.raises(adbc_driver_manager.Error, match="permission_missing"):
                cursor.adbc_ingest(name, ROWS, mode=mode)


def test_a_role_shows_its_part_of_a_table_and_no_other_table(guarded):
    with connect(guarded, db_kwargs=bearer("part")) as connection, connection.cursor() as cursor:
        found = rows_of(cursor, "SELECT * FROM flights ORDER BY tail")
        assert found.to_pydict() == ROWS.drop(["x"]).slice(0, 2).to_pydict()
        assert connection.adbc_get_table_schema("flights").names == ["tail", "day", "n"]
        with pytest.raises(adbc_driver_manager.ProgrammingError, match="table_not_found"):
            rows_of(cursor, "SELECT * FROM my_other")
        assert "my_other" not in str(connection.adbc_get_objects(depth="tables").read_all())


def test_calls_go_through_tls(lake, tmp_path):
    command_line = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost "
        f"-keyout {tmp_path}/key.pem -out {tmp_path}/cert.pem"
    )
    subprocess.run(command_line.split(), check=True, capture_output=True)
    cert, key = ((tmp_path / name).read_bytes() for name in ("cert.pem", "key.pem"))
    server = FlightServer(Service(lake), "localhost", tls=(cert, key), limits=WITHOUT_PROCESSES)
    options = {DatabaseOptions.TLS_ROOT_CERTS.value: cert.decode()}
    url = f"grpc+tls://localhost:{server.port}"
    with dbapi.connect(url, db_kwargs=options, autocommit=True) as connection, connection.cursor() as cursor:
        assert rows_of(cursor, "SELECT 1 AS n").to_pydict() == {"n": [1]}
    with pytest.raises(adbc_driver_manager.Error), dbapi.connect(url, autocommit=True) as connection:
        rows_of(connection.cursor(), "SELECT 1")
    server.stop()


def test_a_time_limit_of_the_caller_ends_its_query(limited):
    options = {ConnectionOptions.TIMEOUT_FETCH.value: "0.5", ConnectionOptions.TIMEOUT_QUERY.value: "20"}
    with (
        connect(limited, conn_kwargs=options) as connection,
        pytest.raises(adbc_driver_manager.Error, match=r"(?i)deadline"),
    ):
        rows_of(connection.cursor(), ENDLESS)
    until(lambda: limited.running() == 0)


def test_bytes_that_are_no_command_are_refused(server):
    client = fl.connect(("127.0.0.1", server.port))
    for data in (
        b"",
        b"nonsense",
        messages.packed("TicketStatementQuery", statement_handle=Statement("SELECT 1").handle),
    ):
        with pytest.raises(pa.ArrowInvalid, match="request_invalid"):
            client.get_flight_info(fl.FlightDescriptor.for_command(data))
    for data in (b"", b"nonsense", messages.packed("TicketStatementQuery", statement_handle=b"{}")):
        with pytest.raises(pa.ArrowInvalid, match="request_invalid"):
            client.do_get(fl.Ticket(data))
    with pytest.raises(pa.ArrowInvalid, match="no action"):
        list(client.do_action(fl.Action("Drop", b"")))
    with pytest.raises(pa.ArrowInvalid, match="request_invalid"):
        client.get_flight_info(fl.FlightDescriptor.for_path("flights"))


def test_a_port_that_is_taken_is_refused(lake, server):
    with pytest.raises(lakebed.UsageError, match="--flight-port"):
        FlightServer(Service(lake), port=server.port)


def test_an_address_may_be_of_ipv6(lake):
    server = FlightServer(Service(lake), "::1", limits=WITHOUT_PROCESSES)
    with dbapi.connect(server.url, autocommit=True) as connection, connection.cursor() as cursor:
        assert rows_of(cursor, "SELECT 1 AS n").to_pydict() == {"n": [1]}
    server.stop()


def test_the_code_of_the_page_runs(tmp_path):
    lake = lakebed.create(str(tmp_path))
    schema = lakebed.Schema({"tail": "string", "day": "date32"}, {}, {"n": "int64", "x": "double"})
    lake.create_table("flights", schema).write(ROWS)
    server = FlightServer(Service(lake), limits=WITHOUT_PROCESSES)
    connecting, keyed = pages.blocks("docs/flight-sql.md", "python")
    names = {"rows": ROWS}
    pages.run(connecting.replace(("127.0.0.1:8018", f"127.0.0.1:{server.port}"), ("N14228", "a")), names)
    assert names["table"]["n"].to_pylist() == [1]
    assert lake.table("flights").count().rows == 4
    pages.run(keyed, names)
    server.stop()


def test_the_audit_log_has_a_line_for_each_call(lake, tmp_path):
    place = tmp_path / "audit.log"
    log = AuditLog(str(place))
    server = FlightServer(Service(lake), limits=WITHOUT_PROCESSES, audit=log)
    try:
        with connect(server) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT 41 + 1 AS n")
            assert cursor.fetchall() == [(42,)]
    finally:
        server.stop()
        log.close()
    lines = [json.loads(line) for line in place.read_text().splitlines()]
    asked = [line for line in lines if line.get("statement") == "SELECT 41 + 1 AS n"]
    assert [(line["principal"], line["protocol"], line["status"]) for line in asked] == [("local", "flight", "ok")]
