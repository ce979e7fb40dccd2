"""The Python Database API over instances in memory: cursors, types, errors, and streams that are not read ahead."""

import datetime as dt
import pickle
import threading
import tracemalloc
from decimal import Decimal

import pyarrow as pa
import pytest

import lakebed
from lakebed import dbapi
from lakebed.clock import random_token
from lakebed.errors import Code
from lakebed.read.rows.row_stream import RowStream
from tests.raising import raises

SCHEMA = lakebed.Schema({"k": "int64"}, values={"s": "string", "d": "decimal128(10, 2)", "at": "timestamp[us, tz=UTC]"})
ROWS = [(n, None if n % 3 == 0 else f"s{n}", Decimal(n), dt.datetime(2026, 1, n, tzinfo=dt.UTC)) for n in range(1, 8)]
ALL = "SELECT k, s, d, at FROM t ORDER BY k"


@pytest.fixture
def connection():
    lake = lakebed.create(f"memory://{random_token()}")
    columns = zip(*ROWS, strict=True)
    lake.create_table("t", SCHEMA).write(pa.table(list(map(list, columns)), schema=SCHEMA.arrow))
    with dbapi.connect(lake) as made:
        yield made


@pytest.fixture
def cursor(connection):
    with connection.cursor() as made:
        yield made


class Batches:
    """An instance whose statements return these batches, and count how many were read."""

    def __init__(self, *batches, failure=None):
        self.batches, self.failure, self.read, self.closed = batches, failure, 0, False

    def sql(self, statement, **_):
        return RowStream(self.batches[0].schema, self._rows())

    def _rows(self):
        try:
            for batch in self.batches:
                self.read += 1
                yield batch
            if self.failure:
                raise self.failure
        finally:
            self.closed = True

    def close(self):
        raise AssertionError("not opened by the connection")


def batches(*values):
    return [pa.record_batch({"x": list(one)}, schema=pa.schema([("x", pa.int64())])) for one in values]


def test_the_module_says_what_it_is():
    assert (dbapi.apilevel, dbapi.threadsafety, dbapi.paramstyle) == ("2.0", 2, "qmark")


def test_the_description_has_names_type_codes_digits_and_nullability(cursor):
    assert cursor.description is None
    assert cursor.execute(ALL) is cursor
    assert cursor.description == [
        ("k", "int64", None, None, None, None, False),
        ("s", "string", None, None, None, None, True),
        ("d", "decimal128(10, 2)", None, None, 10, 2, True),
        ("at", "timestamp[us, tz=UTC]", None, None, None, None, True),
    ]
    codes = [column[1] for column in cursor.description]
    groups = [dbapi.NUMBER, dbapi.STRING, dbapi.BINARY, dbapi.DATETIME, dbapi.ROWID]
    assert [[group == code for group in groups].index(True) for code in codes] == [0, 1, 0, 3]
    assert all(sum(group == code for group in groups) == 1 for code in codes)


@pytest.mark.parametrize("name", ["bool", "list<string>", "struct<x: int64>", "duration[us]"])
def test_other_types_are_in_no_group(name):
    groups = [dbapi.NUMBER, dbapi.STRING, dbapi.BINARY, dbapi.DATETIME, dbapi.ROWID]
    assert not any(group == name for group in groups)


def test_all_ways_to_fetch_share_one_position(cursor):
    cursor.execute(ALL)
    assert cursor.fetchone() == ROWS[0]
    assert cursor.fetchmany() == ROWS[1:2]
    cursor.arraysize = 2
    assert cursor.fetchmany() == ROWS[2:4]
    assert cursor.fetchmany(0) == []
    assert next(cursor) == ROWS[4]
    assert cursor.fetch_arrow_table()["k"].to_pylist() == [6, 7]
    assert (cursor.fetchone(), cursor.fetchmany(5), cursor.fetchall(), list(cursor)) == (None, [], [], [])
    assert list(cursor.execute(ALL)) == ROWS
    assert cursor.execute(ALL).fetchmany(100) == ROWS
    assert cursor.rowcount == -1


def test_parameters_by_place_and_by_name(cursor):
    assert cursor.execute("SELECT k FROM t WHERE s = ?", ["s2"]).fetchall() == [(2,)]
    assert cursor.execute("SELECT k FROM t WHERE k = ?", (n for n in [3])).fetchall() == [(3,)]
    assert cursor.execute("SELECT k FROM t WHERE k = $k AND $k > 0", {"k": 4}).fetchall() == [(4,)]
    assert cursor.execute("SELECT 1", ()).fetchall() == [(1,)]
    with pytest.raises(dbapi.ProgrammingError, match="2 parameters"):
        cursor.execute("SELECT ?, ?", [1])
    with pytest.raises(dbapi.ProgrammingError, match="must be a list"):
        cursor.execute("SELECT ?", "a")
    with pytest.raises(dbapi.DataError, match="cannot be"):
        cursor.execute("SELECT ?", [object()])


def test_a_million_rows_are_not_read_before_the_first():
    lake = Batches(*batches(*([n, n + 1] for n in range(0, 20, 2))))
    cursor = dbapi.connect(lake).cursor()
    cursor.execute("")
    assert lake.read == 0
    assert cursor.fetchone() == (0,)
    assert lake.read == 1
    assert cursor.fetchmany(2) == [(1,), (2,)]
    assert lake.read == 2
    cursor.close()
    assert lake.closed


def test_arrow_rows_are_those_that_were_read_and_no_copy():
    given = batches(range(1000), range(1000, 2000))
    lake = Batches(*given)
    cursor = dbapi.connect(lake).cursor()
    read = cursor.execute("").fetch_arrow_table()
    addresses = [chunk.buffers()[1].address for chunk in read.column("x").chunks]
    assert addresses == [batch.column(0).buffers()[1].address for batch in given]
    cursor.execute("").fetchmany(3)
    tail = cursor.fetch_record_batch()
    assert tail.schema == given[0].schema
    first = tail.read_next_batch()
    assert first.column(0).buffers()[1].address == addresses[0]
    assert (first.num_rows, sum(batch.num_rows for batch in tail)) == (997, 1000)


def test_batches_end_with_their_cursor(connection):
    cursor = connection.cursor().execute(ALL)
    rows = cursor.fetch_record_batch()
    cursor.close()
    with pytest.raises(dbapi.InterfaceError, match="closed"):
        rows.read_all()


def test_empty_batches_are_not_the_end():
    cursor = dbapi.connect(Batches(*batches([], [1], [], [], [2], []))).cursor()
    assert cursor.execute("").fetchone() == (1,)
    assert cursor.fetchone() == (2,)
    assert cursor.fetchone() is None


def test_a_value_that_python_does_not_have_is_refused_and_can_still_be_read_as_arrow():
    rows = pa.record_batch({"at": pa.array([1, 1000], pa.timestamp("ns"))})
    cursor = dbapi.connect(Batches(rows)).cursor().execute("")
    for _ in range(2):
        with pytest.raises(dbapi.DataError, match=r"column at is timestamp\[ns\].*fetch_arrow_table"):
            cursor.fetchone()
    assert cursor.fetch_arrow_table().num_rows == 2


def test_a_stream_that_fails_never_looks_like_its_end():
    failure = Code.STORE_UNAVAILABLE("gone", url="s3://x")
    cursor = dbapi.connect(Batches(*batches([1]), failure=failure)).cursor().execute("")
    assert cursor.fetchone() == (1,)
    with pytest.raises(dbapi.OperationalError, match="gone") as raised:
        cursor.fetchone()
    assert (raised.value.code, raised.value.url, raised.value.__cause__) == (Code.STORE_UNAVAILABLE, "s3://x", failure)
    with pytest.raises(dbapi.InterfaceError):
        cursor.fetchone()
    with pytest.raises(dbapi.OperationalError, match="gone"):
        cursor.execute("").fetch_arrow_table()


@pytest.mark.parametrize(
    ("statement", "kind", "code"),
    [
        ("SELEC 1", dbapi.ProgrammingError, Code.SQL_INVALID),
        ("SELECT nothing FROM t", dbapi.ProgrammingError, Code.SQL_INVALID),
        ("SELECT * FROM nowhere", dbapi.ProgrammingError, Code.TABLE_NOT_FOUND),
        ('SELECT * FROM "t@9"', dbapi.ProgrammingError, Code.VERSION_NOT_FOUND),
        ("SELECT 1 / (k - 1) FROM t", dbapi.DataError, Code.EXPRESSION_FAILED),
        (None, dbapi.ProgrammingError, Code.ARGUMENT_INVALID),
    ],
)
def test_errors_have_the_class_of_the_api_and_the_code_of_lakebed(cursor, statement, kind, code):
    with pytest.raises(kind) as raised:
        cursor.execute(statement).fetchall()
    assert raised.value.code is code
    assert isinstance(raised.value, dbapi.DatabaseError | dbapi.InterfaceError)
    copied = pickle.loads(pickle.dumps(raised.value))
    assert (type(copied), copied.code, str(copied)) == (kind, code, str(raised.value))
    assert cursor.execute("SELECT 1").fetchall() == [(1,)]


@pytest.mark.parametrize("code", Code)
def test_every_code_has_a_class_of_the_api(code):
    assert issubclass(dbapi._class_of(code), dbapi.DatabaseError | dbapi.InterfaceError)


def test_the_hierarchy_is_that_of_the_api():
    names = "Warning Error InterfaceError DatabaseError DataError OperationalError IntegrityError InternalError"
    for name in [*names.split(), "ProgrammingError", "NotSupportedError"]:
        assert getattr(dbapi.SqlConnection, name) is getattr(dbapi, name)
        assert issubclass(getattr(dbapi, name), Exception)
    assert issubclass(dbapi.InterfaceError, dbapi.Error)
    assert issubclass(dbapi.DatabaseError, dbapi.Error)
    assert not issubclass(dbapi.Warning, dbapi.Error)
    for name in [*names.split()[4:], "ProgrammingError", "NotSupportedError"]:
        assert issubclass(getattr(dbapi, name), dbapi.DatabaseError)


def test_there_are_no_transactions_and_it_says_so(connection):
    assert connection.autocommit
    connection.autocommit = True
    with pytest.raises(dbapi.NotSupportedError, match="autocommit = False"):
        connection.autocommit = False
    connection.commit()
    with pytest.raises(dbapi.NotSupportedError, match="each statement is its own commit"):
        connection.rollback()


def test_closed_is_closed(connection):
    one, other = connection.cursor().execute(ALL), connection.cursor()
    one.close()
    one.close()
    for call in (one.fetchone, one.fetchall, lambda: one.execute(ALL)):
        with pytest.raises(dbapi.InterfaceError, match="the cursor is closed"):
            call()
    with pytest.raises(dbapi.InterfaceError, match="execute a query first"):
        other.fetchone()
    other.execute(ALL)
    connection.close()
    connection.close()
    for call in (other.fetchone, lambda: other.execute(ALL), connection.cursor, connection.commit, connection.rollback):
        with pytest.raises(dbapi.InterfaceError, match="closed"):
            call()


def test_a_connection_is_closed_while_another_thread_reads():
    reads, go = threading.Event(), threading.Event()
    found = []

    class Waiting(Batches):
        def _rows(self):
            reads.set()
            assert go.wait(60)
            yield from super()._rows()

    connection = dbapi.connect(Waiting(*batches([1], [2])))
    cursor = connection.cursor().execute("")
    reader = threading.Thread(target=lambda: found.append(cursor.fetchone()))
    reader.start()
    assert reads.wait(60)
    closer = threading.Thread(target=connection.close)
    closer.start()
    go.set()
    reader.join()
    closer.join()
    assert found == [(1,)]


@pytest.mark.parametrize("size", [-1, 1.5, "2"])
def test_a_size_that_is_no_number_of_rows_is_refused(cursor, size):
    cursor.execute(ALL)
    with pytest.raises(dbapi.ProgrammingError, match="size"):
        cursor.fetchmany(size)
    assert cursor.fetchall() == ROWS


def test_connect_opens_paths_and_refuses_what_it_cannot_use(tmp_path):
    lake = lakebed.create(str(tmp_path / "lake"))
    with dbapi.connect(tmp_path / "lake") as connection:
        assert connection.instance.id == lake.id
        assert connection.cursor().execute("SELECT count(*) FROM information_schema.tables").fetchone() == (0,)
    with pytest.raises(dbapi.OperationalError) as raised:
        dbapi.connect(tmp_path / "nowhere")
    assert raised.value.code is Code.INSTANCE_NOT_FOUND
    for options in ({"token": "x"}, {"storage_options": {}}):
        with raises(Code.ARGUMENTS_CONFLICT):
            dbapi.connect(lake, **options)
    with raises(Code.ARGUMENTS_CONFLICT):
        dbapi.connect(tmp_path / "lake", token="x")
    with raises(Code.ARGUMENTS_CONFLICT):
        dbapi.connect("http://127.0.0.1:1", storage_options={})
    with raises(Code.ARGUMENT_INVALID):
        dbapi.connect(5)


def test_the_constructors_of_the_api():
    noon = dt.datetime(2026, 1, 31, 12, 30, 5)  # noqa: DTZ001 - the API's times are local
    ticks = noon.timestamp()
    assert dbapi.TimestampFromTicks(ticks) == dbapi.Timestamp(2026, 1, 31, 12, 30, 5) == noon
    assert dbapi.DateFromTicks(ticks) == dbapi.Date(2026, 1, 31)
    assert dbapi.TimeFromTicks(ticks) == dbapi.Time(12, 30, 5)
    assert dbapi.Binary(b"x") == b"x"


def test_fetching_row_by_row_holds_one_batch():
    many = [pa.record_batch({"x": pa.array(range(8192))}) for _ in range(16)]
    cursor = dbapi.connect(Batches(*many)).cursor().execute("")
    tracemalloc.start()
    try:
        assert sum(1 for _ in cursor) == 16 * 8192
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # 8192 rows of a tuple and an integer take about 1 MB, and all of them 16 MB.
    assert peak < 8 * 1024 * 1024


# -- statements that write ------------------------------------------------------------------------------------------


@pytest.fixture
def written(connection):
    """A cursor beside a table ``w`` without rows."""
    cursor = connection.cursor()
    cursor.execute("CREATE TABLE w (k INT PRIMARY KEY, s VARCHAR, day DATE)")
    assert (cursor.rowcount, cursor.description) == (-1, None)
    with pytest.raises(dbapi.InterfaceError, match="execute a query first"):
        cursor.fetchone()
    return cursor


def test_rows_are_inserted_in_one_commit_and_counted(written):
    table = written.connection.instance.table("w")
    before = table.version
    written.executemany("INSERT INTO w (k, s) VALUES (?, ?)", ((n, f"s{n}") for n in range(100)))
    assert (written.rowcount, table.version) == (100, before + 1)
    written.executemany('insert into "w" values (?, ?, ?);', [(100, None, "2026-01-31"), (101, "x", "2026-02-01")])
    assert written.rowcount == 2
    found = written.execute("SELECT k, s, day FROM w WHERE k >= 99 ORDER BY k").fetchall()
    assert found == [(99, "s99", None), (100, None, dt.date(2026, 1, 31)), (101, "x", dt.date(2026, 2, 1))]
    assert written.executemany("INSERT INTO w (k) VALUES (?)", []).rowcount == 0


def test_a_repeat_with_a_commit_id_changes_nothing(written):
    for _ in range(2):
        written.executemany("INSERT INTO w (k, s) VALUES (?, ?)", [(1, "a")], commit_id="load-1")
        written.execute("INSERT INTO w (k, s) VALUES (2, ?)", ["b"], commit_id="load-2")
        assert written.execute("SELECT k, s FROM w ORDER BY k").fetchall() == [(1, "a"), (2, "b")]
        written.execute("UPDATE w SET s = 'new' WHERE k = 2")
        assert written.rowcount == 1
        written.execute("UPDATE w SET s = 'b' WHERE k = 2")
    with raises(Code.ARGUMENT_INVALID):
        written.executemany("DELETE FROM w WHERE k = ?", [(1,)], commit_id="x")
    with raises(Code.ARGUMENT_INVALID):
        written.execute("SELECT 1", commit_id="x")


def test_other_statements_run_once_for_each_set(written):
    written.executemany("INSERT INTO w (k, s) VALUES (?, upper(?))", [(1, "a"), (2, "b"), (3, "c")])
    assert written.rowcount == 3
    written.executemany("DELETE FROM w WHERE k = ?", [(1,), (3,), (9,)])
    assert written.rowcount == 2
    assert written.execute("SELECT k, s FROM w").fetchall() == [(2, "B")]


@pytest.mark.parametrize(
    ("statement", "sets", "kind"),
    [
        ("INSERT INTO w (k, s) VALUES (?, ?)", [(1, "a"), (2,)], dbapi.ProgrammingError),
        ("INSERT INTO w (k, s) VALUES (?, ?)", [(1, "a"), "ab"], dbapi.ProgrammingError),
        ("INSERT INTO w VALUES (?, ?)", [(1, "a")], dbapi.ProgrammingError),
        ("INSERT INTO w (k, nothing) VALUES (?, ?)", [(1, "a")], dbapi.ProgrammingError),
        ("INSERT INTO w (k) VALUES (?)", [(1,), (None,)], dbapi.IntegrityError),
        ("INSERT INTO w (k) VALUES (?)", [(1,), (2**40,)], dbapi.DataError),
        ("INSERT INTO w (k, day) VALUES (?, ?)", [(1, "2026-01-31"), (2, dt.date(2026, 1, 31))], dbapi.DataError),
        ("INSERT INTO nowhere (k) VALUES (?)", [(1,)], dbapi.ProgrammingError),
        ("SELECT ?", [(1,)], dbapi.NotSupportedError),
    ],
)
def test_an_insert_that_fails_writes_nothing(written, statement, sets, kind):
    with pytest.raises(kind):
        written.executemany(statement, sets)
    assert written.rowcount == -1
    assert written.execute("SELECT count(*) FROM w").fetchone() == (0,)


def test_values_without_a_literal_are_inserted(connection):
    cursor = connection.cursor()
    cursor.execute(
        "CREATE TABLE nested (k INT PRIMARY KEY, tags VARCHAR[], place struct<x: double>, v fixed_size_list<float>[2])"
    )
    version = connection.instance.table("nested").version
    cursor.execute("INSERT INTO nested VALUES (?, ?, ?, ?)", ["1", ["a", "b"], {"x": 1.5}, [1, 2]])
    assert cursor.rowcount == 1
    cursor.execute("INSERT INTO nested (k, tags) VALUES (?, ?), (?, ?)", [2, [], 3, None])
    assert (cursor.rowcount, connection.instance.table("nested").version) == (2, version + 2)
    rows = cursor.execute("SELECT * FROM nested ORDER BY k").fetchall()
    assert rows == [(1, ["a", "b"], {"x": 1.5}, [1.0, 2.0]), (2, [], None, None), (3, None, None, None)]
    for wrong in ([4], [4, [], 5], []):
        with pytest.raises(dbapi.ProgrammingError):
            cursor.execute("INSERT INTO nested (k, tags) VALUES (?, ?), (?, ?)", wrong)
    assert cursor.executemany("INSERT INTO nested (k, tags) VALUES (?, ?), (?, ?)", [[4, [], 5, []]]).rowcount == 2


def test_a_statement_may_have_more_rows_than_parameters_are_allowed_elsewhere(written):
    count = 20_000
    sets = ", ".join(["(?, ?)"] * count)
    values = [value for n in range(count) for value in (n, "s")]
    assert written.execute(f"INSERT INTO w (k, s) VALUES {sets}", values).rowcount == count
    assert written.execute("SELECT count(*) FROM w").fetchone() == (count,)
