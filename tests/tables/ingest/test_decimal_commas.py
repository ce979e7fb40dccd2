"""Numbers of CSV with a decimal comma: read on request, as types of the table or detected ones."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

import lakebed
from lakebed import Schema, SchemaMismatchError, UsageError
from lakebed.clock import new_id
from lakebed.files.formats.reading_options import ReadingOptions
from lakebed.write.input_files import find_inputs, inferred_together, open_files

COMMA = ReadingOptions(decimal_point=",")
KINDS = {
    "double": 1.5,
    "float": 1.5,
    "halffloat": 1.5,
    "decimal(10, 2)": Decimal("1.50"),
    "decimal256(50, 2)": Decimal("1.50"),
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "rows.csv"


def read(path, kind, options=COMMA):
    table = lakebed.create(f"memory://{new_id()}").create_table("t", Schema({"id": "int64"}, values={"x": kind}))
    table.write(open_files(path, table.schema, options=options))
    return table.to_arrow()["x"].to_pylist()


@pytest.mark.parametrize("kind", KINDS)
def test_a_field_of_numbers_takes_decimal_commas(path, kind):
    path.write_text("id;x\n1;1,50\n2;\n3;-2\n")
    assert read(path, kind) == [KINDS[kind], None, -2]


@pytest.mark.parametrize("kind", KINDS)
def test_a_point_is_then_no_part_of_a_number(path, kind):
    """The 1.500 of a German file is 1500."""
    path.write_text("id;x\n1;1,5\n2;1.500\n")
    with pytest.raises(SchemaMismatchError, match=r"line 3, column x: '1.500' is not .*a number has a decimal comma"):
        read(path, kind)


def test_types_and_header_are_detected_from_decimal_commas(path):
    path.write_text("1;1,50;1.5;2026-01-31\n2;-,5e3;2;2026-02-01\n")
    found = inferred_together(find_inputs([path]), COMMA).columns
    assert dict(zip(found.names, map(str, found.types), strict=True)) == {
        "column0": "int64", "column1": "double", "column2": "string", "column3": "date32[day]",
    }  # fmt: skip


def test_one_column_of_numbers_has_no_delimiter(path):
    path.write_text("x\n1,50\n2,75\n")
    assert inferred_together(find_inputs([path]), COMMA).columns == pa.schema({"x": pa.float64()})


def test_a_delimiter_is_not_the_decimal_point(path):
    with pytest.raises(UsageError, match="delimiter and decimal point are both ','; give the delimiter of the file"):
        ReadingOptions(delimiter=",", decimal_point=",")
    path.write_text('id,x\n1,"1,50"\n')
    with pytest.raises(UsageError, match="the delimiter of 'id,x' seems to be ',', which is the decimal point"):
        read(path, "double")
    with pytest.raises(UsageError, match="decimal point 'x': must be a point or a comma"):
        ReadingOptions(decimal_point="x")


def test_a_decimal_comma_without_the_option_is_refused_with_the_option(path):
    path.write_text("id;x\n1;1,50\n")
    with pytest.raises(SchemaMismatchError, match=r"'1,50' is not double.*--decimal-point , reads decimal commas"):
        read(path, "double", ReadingOptions())
