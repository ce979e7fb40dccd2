"""What Apache Superset asks of a dialect, as its db_engine_specs do; the package itself needs SQLAlchemy 1.4."""

import pytest
import sqlalchemy as sa

GRAINS = {
    "PT1S": "date_trunc('second', {col})",
    "PT1M": "date_trunc('minute', {col})",
    "PT1H": "date_trunc('hour', {col})",
    "P1D": "date_trunc('day', {col})",
    "P1W": "date_trunc('week', {col})",
    "P1M": "date_trunc('month', {col})",
    "P3M": "date_trunc('quarter', {col})",
    "P1Y": "date_trunc('year', {col})",
}


@pytest.fixture
def sales(engine, lake):
    lake.execute("CREATE TABLE sales (id BIGINT PRIMARY KEY, at TIMESTAMP, shop VARCHAR, amount DOUBLE)")
    lake.execute(
        "INSERT INTO sales VALUES (1, '2026-02-03 04:05:06.7', 'oslo', 2), (2, '2026-02-03 10:00:00', 'rome', 3), "
        "(3, '2026-05-01 00:00:00', 'oslo', 4)"
    )
    return sa.Table("sales", sa.MetaData(), autoload_with=engine)


def test_it_lists_schemas_tables_views_and_columns(engine, sales):
    inspector = sa.inspect(engine)
    assert inspector.get_schema_names() == ["tables"]
    assert set(inspector.get_table_names("tables")) - set(inspector.get_view_names("tables")) == {"sales"}
    columns = inspector.get_columns("sales", "tables")
    assert {one["name"]: str(one["type"].compile(engine.dialect)) for one in columns} == {
        "id": "BIGINT",
        "at": "TIMESTAMP",
        "shop": "VARCHAR",
        "amount": "DOUBLE",
    }
    assert inspector.get_pk_constraint("sales", "tables")["constrained_columns"] == ["id"]
    assert inspector.get_indexes("sales", "tables") == inspector.get_foreign_keys("sales", "tables") == []


@pytest.mark.parametrize("grain", GRAINS)
def test_it_groups_by_grains_of_time(engine, sales, grain):
    bucket = sa.literal_column(GRAINS[grain].format(col='"at"'), type_=sa.DateTime).label("__timestamp")
    query = (
        sa.select(bucket, sa.func.sum(sales.c.amount).label("SUM(amount)"))
        .where(sales.c.at >= sa.text("TIMESTAMP '2026-01-01 00:00:00'"))
        .group_by(bucket)
        .order_by(sa.desc("SUM(amount)"))
        .limit(10_000)
    )
    # Superset runs texts, with the values within.
    text = str(query.compile(engine, compile_kwargs={"literal_binds": True}))
    with engine.connect() as connection:
        found = connection.exec_driver_sql(text).all()
    assert sum(amount for _, amount in found) == 9
    assert [amount for _, amount in found] == {"PT1S": [4, 3, 2], "PT1M": [4, 3, 2], "PT1H": [4, 3, 2]}.get(
        grain, [9] if grain == "P1Y" else [5, 4]
    )


def test_it_wraps_a_query_to_limit_it_and_counts_what_there_is(engine, sales):
    inner = sa.text("SELECT shop, amount FROM sales").columns(sa.column("shop"), sa.column("amount"))
    with engine.connect() as connection:
        wrapped = sa.select(sa.text("*")).select_from(inner.alias("inner_qry")).limit(2)
        assert len(connection.execute(wrapped).all()) == 2
        virtual = sa.text("(SELECT shop, amount FROM sales) AS virtual_table")
        top = sa.select(sa.literal_column("shop")).select_from(virtual).group_by(sa.text("shop")).limit(1)
        joined = sa.select(sa.func.count().label("n")).select_from(virtual).where(sa.literal_column("shop").in_(top))
        assert connection.scalar(joined) in (1, 2)


def test_the_cursor_has_names_and_types_of_columns(engine, sales):
    raw = engine.raw_connection()
    cursor = raw.cursor()
    cursor.execute("SELECT shop, sum(amount) AS total FROM sales GROUP BY shop ORDER BY total DESC")
    assert [(one[0], one[1]) for one in cursor.description] == [("shop", "string"), ("total", "double")]
    assert cursor.fetchmany(1) == [("oslo", 6.0)]
    raw.close()
