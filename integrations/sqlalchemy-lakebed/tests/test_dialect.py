"""Connections, statements that write, and errors."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa
from sqlalchemy import exc, orm
from sqlalchemy.engine import make_url
from sqlalchemy_lakebed import LakebedDialect

import lakebed
from lakebed import dbapi
from lakebed.errors import Code

Base = orm.declarative_base()


class Customer(Base):
    __tablename__ = "customers"
    id = sa.Column(sa.Integer, primary_key=True, autoincrement=False)
    name = sa.Column(sa.String)
    orders = orm.relationship("Order", back_populates="customer", order_by="Order.number")


class Order(Base):
    __tablename__ = "orders"
    amount = sa.Column(sa.Float, nullable=False)
    customer_id = sa.Column(sa.ForeignKey("customers.id"), primary_key=True)
    number = sa.Column(sa.Integer, primary_key=True)
    customer = orm.relationship("Customer", back_populates="orders")


@pytest.mark.parametrize(
    ("url", "place", "options"),
    [
        ("lakebed:///lakes/a", "lakes/a", {}),
        ("lakebed:////data/lake", "/data/lake", {}),
        ("lakebed+file:////data/lake?timeout_s=2.5", "/data/lake", {"timeout_s": 2.5}),
        ("lakebed+memory://x", "memory://x", {}),
        ("lakebed+s3://bucket/a/lake?region=eu-1", "s3://bucket/a/lake", {"storage_options": {"region": "eu-1"}}),
        ("lakebed+gs://bucket/lake", "gs://bucket/lake", {}),
        ("lakebed+az://box/lake?memory_limit_bytes=1000", "az://box/lake", {"memory_limit_bytes": 1000}),
        ("lakebed+https://:se%2Fcret@host:8017", "https://host:8017", {"token": "se/cret"}),
        ("lakebed+http://host", "http://host", {"token": None}),
        ("lakebed://", None, {}),
    ],
)
def test_a_url_says_where_the_instance_is(url, place, options):
    found = make_url(url)
    assert found.get_dialect() is LakebedDialect
    assert found.get_dialect()().create_connect_args(found) == ([] if place is None else [place], options)
    assert "cret" not in repr(found)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("lakebed://lakes/a", "lakebed:////folder"),
        ("lakebed+https://token@host", "place of the password"),
        ("lakebed+s3://:token@bucket/lake", "leave it out"),
        ("lakebed+http://host?region=x", "region: a service takes no storage options"),
        ("lakebed:///lake?timeout_s=soon", "timeout_s = 'soon'"),
    ],
)
def test_any_other_url_is_refused_with_the_right_form(url, words):
    with pytest.raises(exc.ArgumentError, match=words):
        sa.create_engine(url).connect()


def test_an_open_instance_is_a_connect_argument(lake):
    lake.execute("CREATE TABLE t (k INT PRIMARY KEY)")
    engine = sa.create_engine("lakebed://", connect_args={"url": lake})
    with engine.connect() as connection:
        assert connection.scalar(sa.text("SELECT count(*) FROM t")) == 0


def test_a_statement_is_committed_when_it_returns_and_rollback_takes_nothing_back(engine, lake):
    Base.metadata.create_all(engine)
    with engine.connect() as connection:
        assert connection.get_isolation_level() == "AUTOCOMMIT"
        connection.execute(sa.insert(Customer), {"id": 1, "name": "ann"})
        connection.rollback()
        assert connection.execute(sa.select(Customer.name)).scalars().all() == ["ann"]
    with engine.connect() as connection, pytest.raises(exc.ArgumentError, match="AUTOCOMMIT"):
        connection.execution_options(isolation_level="SERIALIZABLE")
    with engine.connect() as connection, pytest.raises(exc.DBAPIError, match="SAVEPOINT is not supported"):
        connection.begin_nested()


def test_objects_are_stored_read_changed_and_deleted(engine, lake):
    Base.metadata.create_all(engine)
    Base.metadata.create_all(engine)
    with orm.Session(engine) as session:
        ann = Customer(id=1, name="ann", orders=[Order(number=n, amount=n * 1.5) for n in (1, 2)])
        session.add_all([ann, Customer(id=2, name=None)])
        session.commit()
        version = lake.table("orders").snapshot().version
    with orm.Session(engine) as session:
        found = session.scalars(sa.select(Customer).join(Customer.orders).where(Order.amount > 2)).one()
        assert [one.amount for one in found.orders] == [1.5, 3.0]
        found.orders[0].amount = 9
        session.delete(found.orders[1])
        session.commit()
        assert session.get(Order, (1, 1)).amount == 9
        assert session.get(Order, (1, 2)) is None
    # Both rows of the flush were one commit; the change and the deletion are one each.
    assert lake.table("orders").snapshot().version == version + 2
    assert [one.name for one in lake.table("orders").schema.row_key] == ["customer_id", "number"]


def test_rows_are_counted(engine):
    table = sa.Table("t", sa.MetaData(), sa.Column("k", sa.Integer, primary_key=True), sa.Column("x", sa.String))
    with engine.connect().execution_options(preserve_rowcount=True) as connection:
        table.create(connection)
        assert connection.execute(table.insert(), [{"k": n, "x": "a"} for n in range(5)]).rowcount == 5
        assert connection.execute(table.insert().values([{"k": 5, "x": "b"}, {"k": 6, "x": "b"}])).rowcount == 2
        assert connection.execute(table.update().where(table.c.k < 3).values(x="c")).rowcount == 3
        assert connection.execute(table.delete().where(table.c.x == "b")).rowcount == 2
        twice = table.update().where(table.c.k == sa.bindparam("key")).values(x=sa.bindparam("new"))
        assert connection.execute(twice, [{"key": 1, "new": "d"}, {"key": 99, "new": "d"}]).rowcount == 1
        pages = sa.select(table.c.k).order_by(table.c.k)
        assert connection.scalars(pages.limit(2).offset(1)).all() == [1, 2]
        assert connection.scalars(pages.offset(3)).all() == [3, 4]
        assert connection.scalars(pages.fetch(1)).all() == [0]


def test_a_commit_id_makes_a_repeat_change_nothing(engine):
    table = sa.Table("t", sa.MetaData(), sa.Column("k", sa.Integer), lakebed_key="k")
    with engine.connect() as connection:
        table.create(connection)
        once = {"lakebed_commit_id": "load-1"}
        for _ in range(2):
            connection.execute(table.insert(), [{"k": 1}, {"k": 2}], execution_options=once)
        connection.execute(table.insert(), {"k": 1})
        assert connection.scalars(sa.select(table.c.k).order_by(table.c.k)).all() == [1, 1, 2]


@pytest.mark.parametrize(
    ("statement", "kind", "code"),
    [
        ("SELEC 1", exc.ProgrammingError, Code.SQL_INVALID),
        ("SELECT * FROM nowhere", exc.ProgrammingError, Code.TABLE_NOT_FOUND),
        ("SELECT 1 / (k - k) FROM t", exc.DataError, Code.EXPRESSION_FAILED),
        ("INSERT INTO t VALUES (NULL)", exc.IntegrityError, Code.VALUE_NULL),
        ("BEGIN", exc.ProgrammingError, Code.SQL_INVALID),
    ],
)
def test_errors_have_sqlalchemys_class_and_lakebeds_code(engine, statement, kind, code):
    with engine.connect() as connection:
        connection.execute(sa.text("CREATE TABLE t (k INT PRIMARY KEY)"))
        connection.execute(sa.text("INSERT INTO t VALUES (1)"))
        with pytest.raises(kind) as raised:
            connection.execute(sa.text(statement)).all()
        assert (raised.value.orig.code, raised.value.connection_invalidated) == (code, False)
        assert connection.scalar(sa.text("SELECT count(*) FROM t")) == 1


def test_an_instance_that_is_not_there_is_an_operational_error(tmp_path):
    with pytest.raises(exc.OperationalError) as raised:
        sa.create_engine(f"lakebed:///{tmp_path}/nowhere").connect()
    assert raised.value.orig.code is Code.INSTANCE_NOT_FOUND


def test_a_closed_connection_is_replaced(engine):
    pinged = sa.create_engine(engine.url, pool_pre_ping=True, future=True)
    for current in (engine, pinged):
        with current.connect() as connection:
            connection.connection.driver_connection.close()
            with pytest.raises(exc.DBAPIError) as raised:
                connection.scalar(sa.text("SELECT 1"))
            assert raised.value.connection_invalidated
            assert isinstance(raised.value.orig, dbapi.InterfaceError)
            connection.rollback()
            assert connection.scalar(sa.text("SELECT 2")) == 2
    with pinged.connect() as connection:
        held = connection.connection.driver_connection
    held.close()
    with pinged.connect() as connection:
        assert connection.scalar(sa.text("SELECT 3")) == 3


def test_threads_share_an_engine(engine):
    table = sa.Table("t", sa.MetaData(), sa.Column("k", sa.Integer, primary_key=True), sa.Column("x", sa.Integer))
    table.create(engine)
    start = threading.Barrier(6)

    def work(thread):
        start.wait(60)
        for n in range(5):
            with engine.begin() as connection:
                connection.execute(table.insert(), {"k": thread * 100 + n, "x": n})
                own = sa.select(sa.func.count()).where(table.c.k.between(thread * 100, thread * 100 + 99))
                assert connection.scalar(own) == n + 1

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    with engine.connect() as connection:
        assert connection.scalar(sa.select(sa.func.count()).select_from(table)) == 30
    assert engine.pool.checkedout() == 0


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        ([sa.Column("k", sa.Integer, primary_key=True), sa.Column("x", sa.Integer, unique=True)], {}, "UNIQUE"),
        ([sa.Column("k", sa.Integer, primary_key=True), sa.CheckConstraint("k > 0")], {}, "CHECK"),
        ([sa.Column("k", sa.Integer, primary_key=True, server_default="1")], {}, "server default"),
        ([sa.Column("k", sa.Integer, sa.Identity(), primary_key=True)], {}, "identity"),
        ([sa.Column("k", sa.Integer, primary_key=True), sa.Column("t", sa.Time(timezone=True))], {}, "TIME WITH"),
        ([sa.Column("k", sa.Integer, primary_key=True)], {"lakebed_key": "k"}, "lakebed_key"),
        ([sa.Column("k", sa.Integer)], {"lakebed_key": "y"}, "key column 'y'"),
        ([sa.Column("k", sa.JSON)], {}, "no column that can be one"),
    ],
)
def test_what_a_table_cannot_have_is_refused_before_anything_is_made(engine, lake, columns, options, words):
    with pytest.raises(exc.CompileError, match=words):
        sa.Table("t", sa.MetaData(), *columns, **options).create(engine)
    assert lake.tables() == []


def test_what_queries_cannot_have_is_refused(engine):
    table = sa.table("t", sa.column("k"))
    for statement in (
        sa.select(table.c.k).with_for_update(),
        sa.select(table.c.k).fetch(10, percent=True),
        table.update().values(k=1).where(table.c.k == sa.table("u", sa.column("k")).c.k),
        table.delete().where(table.c.k == sa.table("u", sa.column("k")).c.k),
    ):
        with pytest.raises(exc.CompileError):
            statement.compile(engine)


def test_constraints_are_left_out_if_that_is_asked(lake, tmp_path):
    engine = sa.create_engine(f"lakebed:///{tmp_path}/lake", omit_constraints=True)
    columns = [sa.Column("k", sa.Integer, primary_key=True), sa.Column("x", sa.Integer, unique=True, index=True)]
    sa.Table("t", sa.MetaData(), *columns, sa.CheckConstraint("k > 0")).create(engine)
    assert lake.indexes("t") == {"ix_t_x": ["x"]}


PATTERNS = ["a%b", "a_b", r"a\b", "a/b", "axb", "A/B"]


@pytest.mark.parametrize("text", ["%", "_", "\\", "/", "a/", "//"])
@pytest.mark.parametrize("escape", ["/", "\\", "x", None])
def test_like_finds_the_texts_that_python_finds(engine, text, escape):
    table = sa.Table("t", sa.MetaData(), sa.Column("s", sa.String, primary_key=True))
    table.create(engine)
    with engine.connect() as connection:
        connection.execute(table.insert(), [{"s": one} for one in PATTERNS])
        found = connection.scalars(sa.select(table.c.s).where(table.c.s.contains(text, autoescape=True, escape=escape)))
        assert sorted(found) == sorted(one for one in PATTERNS if text in one)
        if hasattr(table.c.s.comparator, "icontains"):  # not in SQLAlchemy 1.4
            icontains = table.c.s.icontains(text, autoescape=True, escape=escape)
            assert len(connection.scalars(sa.select(table.c.s).where(icontains)).all()) == sum(
                text.lower() in one.lower() for one in PATTERNS
            )
        plain = connection.scalars(sa.select(table.c.s).where(table.c.s.like(r"a\_")))
        assert plain.all() == [r"a\b"]


def test_parameters_of_both_sides_of_a_pattern_stay_in_order(engine):
    found = sa.literal("abc").op("||")("d")
    with engine.connect() as connection:
        for matches in (found.like("abc%"), found.regexp_match("^abcd$"), sa.not_(found.like("b%"))):
            assert connection.scalar(sa.select(matches)) is True


def test_old_versions_are_tables(engine, lake):
    lake.execute("CREATE TABLE t (k INT PRIMARY KEY)")
    lake.execute("INSERT INTO t VALUES (1)")
    version = lake.table("t").snapshot().version
    lake.execute("INSERT INTO t VALUES (2)")
    table = sa.table(f"t@{version}", sa.column("k"))
    with engine.connect() as connection:
        assert connection.execute(sa.select(table.c.k)).all() == [(1,)]


def test_times_and_whole_numbers_are_those_of_python(engine):
    with engine.connect() as connection:
        now, half = connection.execute(sa.select(sa.func.now(), sa.literal(1) / sa.literal(2))).one()
        assert (now.tzinfo is not None, half) == (True, 0.5)
        if sa.__version__ >= "2":  # 1.4 has no such operator
            assert connection.scalar(sa.select(sa.literal(7) // sa.literal(2))) == 3


def test_the_version_of_the_server_is_lakebeds(engine):
    with engine.connect() as connection:
        version = ".".join(map(str, connection.dialect.server_version_info))
    assert lakebed.__version__.startswith(version)
