"""Generated key fields: declared with the table, computed on every way in."""

import datetime as dt

import pyarrow as pa
import pytest

import lakebed
from lakebed import Generated, Schema, SchemaMismatchError, UsageError
from lakebed.model.state.transactions.schema_changes import AllowNulls, DropField, RenameField, WidenField
from lakebed.write.conformer import Conformer

VALUES = {"ts": "timestamp[us, tz=UTC]", "user": "string", "n": "int32"}
DAY = Generated("date32", "cast(ts as date)")
MOMENTS = [dt.datetime(2020, 1, day, 23, 30, tzinfo=dt.UTC) for day in (3, 1, 2)]
ROWS = pa.table(
    {
        "ts": pa.array(MOMENTS, pa.timestamp("us", "UTC")),
        "user": ["c", "a", "b"],
        "n": pa.array([3, 1, 2], pa.int32()),
    }
)


def table_of(instance, expression, kind="string", sort_key=()):
    return instance.create_table("t", Schema({"g": Generated(kind, expression)}, dict(sort_key), VALUES))


def test_a_generated_key_is_computed_stored_and_found(lake):
    table = lake.create_table("t", Schema({"day": DAY, "user": "string"}, {}, {"ts": VALUES["ts"], "n": "int32"}))
    table.write(ROWS)
    found = table.scan().read_all()
    assert found.column("day").to_pylist() == [dt.date(2020, 1, 1), dt.date(2020, 1, 2), dt.date(2020, 1, 3)]
    assert table.get(dt.date(2020, 1, 2), "b").column("n").to_pylist() == [2]
    # Another process reads the expression from the log.
    again = lake.table("t")
    assert again.schema.row_key[0].expression == "cast(ts as date)"
    assert again.schema.row_key[0].inputs == ("ts",)


@pytest.mark.parametrize(
    ("expression", "kind", "expected"),
    [
        ("\"user\" || '-' || cast(n as varchar)", "string", ["a-1", "b-2", "c-3"]),
        ("n % 2", "int64", [0, 1, 1]),
        ('md5("user")', "string", None),
        ("date_trunc('month', ts)", "timestamp[us, tz=UTC]", [dt.datetime(2020, 1, 1, tzinfo=dt.UTC)] * 3),
    ],
)  # fmt: skip
def test_an_expression_may_be_any_that_a_row_decides(lake, expression, kind, expected):
    table = table_of(lake, expression, kind)
    table.write(ROWS)
    found = table.scan().read_all().column("g").to_pylist()
    assert found == (sorted(found) if expected is None else expected)


@pytest.mark.parametrize(
    ("expression", "kind", "says"),
    [
        ("nope", "string", "No field named nope"),
        ("g", "string", "No field named g"),
        ("n +", "int64", "Expected: an expression"),
        ("now()", "timestamp[ns]", "Invalid function 'now'"),
        ("random() + n", "int64", "Invalid function 'random'"),
        ("current_date", "date32", "No field named current_date"),
        ("max(n)", "int32", "Invalid function 'max'"),
        ("row_number() over (order by n)", "int64", "cannot be computed"),
        ("(select n)", "int32", "cannot be computed"),
        ("'x'", "string", "must name another field"),
        ("n", "string", "is string, but n has the type int32; cast it"),
        ("n % 2", "int32", "is int32, but n % 2 has the type int64"),
    ],
)
def test_an_expression_that_cannot_generate_a_key_is_refused_and_nothing_is_made(lake, expression, kind, says):
    with pytest.raises(UsageError, match=says.replace("(", r"\(")):
        table_of(lake, expression, kind)
    assert lake.tables() == []


def test_only_key_fields_are_generated():
    with pytest.raises(UsageError, match="only key fields are generated"):
        Schema({"k": "string"}, {}, {"v": Generated("string", "k")})


def test_a_generated_field_that_is_given_must_agree(lake):
    """What a table exports can come back; what says otherwise is not believed."""
    table = table_of(lake, "\"user\" || 'x'")
    agreeing = ROWS.append_column("g", pa.array(["cx", "ax", "bx"]))
    table.write(agreeing)
    with pytest.raises(
        SchemaMismatchError, match=r"column g is not .* by which it is generated; 1 of 3 .* row 1: 'no'"
    ):
        table.write(ROWS.append_column("g", pa.array(["cx", "no", "bx"])))
    with pytest.raises(SchemaMismatchError, match="column g is int64; the table has string"):
        table.write(ROWS.append_column("g", pa.array([1, 2, 3])))
    assert table.scan().read_all().num_rows == 3


def test_a_key_that_comes_out_null_is_refused_or_rejected(lake):
    table = table_of(lake, '"user"')
    rows = ROWS.set_column(1, "user", pa.array(["a", None, "b"]))
    with pytest.raises(SchemaMismatchError, match=r"field g, made of user as .* is null"):
        table.write(rows)
    kept, rejected = Conformer(table.schema).separate(rows.to_batches()[0], "here")
    assert kept.column("g").to_pylist() == ["a", "b"]
    assert [part.num_rows for part in rejected] == [1]


def test_an_expression_that_fails_on_a_row_says_so(lake):
    table = table_of(lake, "100 / n", "int64")
    with pytest.raises(SchemaMismatchError, match=r"field g cannot be computed as 100 / n: .*[Dd]ivide by zero"):
        table.write(ROWS.set_column(2, "n", pa.array([1, 0, 2], pa.int32())))


def test_what_a_key_is_generated_from_keeps_its_name_and_type(lake):
    """Else rows to come would disagree with those that are there. The generated field itself may be renamed."""
    table = table_of(lake, 'n || "user"')
    for change in (RenameField("user", "u"), WidenField("n", "int64"), DropField("user")):
        with pytest.raises(lakebed.RejectedError, match="field g is generated from"):
            table.alter(change)
    table.alter(RenameField("g", "h"), RenameField("ts", "at"))
    table.write(ROWS.rename_columns(["at", "user", "n"]))
    assert table.scan().read_all().column("h").to_pylist() == ["1a", "2b", "3c"]
    with pytest.raises(lakebed.RejectedError, match="may be null already"):
        table.alter(AllowNulls("user"))


def test_a_schema_file_says_it_shortly_and_the_document_keeps_it():
    short = {"row_key": {"day": {"type": "date32", "generated": "cast(ts as date)"}}, "values": {"ts": "timestamp[us]"}}
    schema = Schema.from_json(short)
    assert schema.row_key[0].expression == "cast(ts as date)"
    assert Schema.from_json(schema.to_json()) == schema
