"""Members that a struct does not have are refused in JSON and in rows of Python objects, at any depth."""

import json
import re

import pyarrow as pa
import pytest

import lakebed
from lakebed import Schema, clock
from lakebed.errors import SchemaMismatchError
from lakebed.model.members import UnknownMemberError, check_members
from lakebed.write import input_files
from tests.soaked import each_once

POINT = pa.struct([("x", pa.int64()), ("y", pa.int64())])
KINDS = {
    "{}": POINT,
    "p.{}": pa.struct([("p", POINT)]),
    "[].{}": pa.list_(POINT),
    "[][].{}": pa.list_(pa.list_(POINT), 1),
    "p[].q.{}": pa.struct([("p", pa.list_(pa.struct([("q", POINT)])))]),
    "[].p.{}": pa.map_(pa.string(), pa.struct([("p", POINT)])),
}


def new_table(schema):
    return lakebed.create(f"memory://{clock.new_id()}").create_table("t", schema)


def nested(value, kind):
    """The value, inside others as the type says."""
    if kind == POINT:
        return value
    if pa.types.is_struct(kind):
        return {member.name: nested(value, member.type) for member in kind}
    if pa.types.is_map(kind):
        return [("a", None), ("b", nested(value, kind.item_type))]
    return [nested(value, kind.value_type)]


def rows(kind):
    """Rows with all members, with one, without any, and last with one that is not known."""
    given = [{"x": 1, "y": 2}, {"x": 1}, {}, None, {"x": 1, "z": 7}]
    return [{"k": place, "v": nested(value, kind)} for place, value in enumerate(given)]


def as_lines(tmp_path, given):
    path = tmp_path / "rows.json"
    path.write_text("".join(json.dumps(row) + "\n" for row in given))
    return path


def as_array(tmp_path, given):
    path = tmp_path / "rows.json"
    path.write_text(json.dumps(given, indent=1))
    return path


def as_dicts(_tmp_path, given):
    return given


def as_generator(_tmp_path, given):
    return (row for row in given)


def as_columns(_tmp_path, given):
    return {name: [row[name] for row in given] for name in ("k", "v")}


@each_once(growth=["refuse", "add"], way=[as_lines, as_array, as_dicts, as_generator, as_columns], path=KINDS)
def test_an_unknown_member_is_refused_with_its_row_and_its_path(tmp_path, path, way, growth):
    table = new_table(Schema({"k": "int64"}, values={"v": KINDS[path]}))
    table.set(schema_growth=growth)
    given = rows(KINDS[path])

    with pytest.raises(SchemaMismatchError, match=re.escape(f"has the member {path.format('z')} (7)")) as caught:
        table.write(way(tmp_path, given))
    assert caught.value.facts["column"] == "v"
    assert re.search(r"(line \d+|row 4), column v", str(caught.value))
    assert table.count().rows == 0

    table.write(way(tmp_path, given[:-1]))
    assert table.count().rows == len(given) - 1


def test_a_member_that_only_later_rows_have_is_refused(tmp_path):
    path = tmp_path / "rows.json"
    path.write_text('{"k": 1, "v": {"x": 1}}\n' * 20_000 + '{"k": 2, "v": {"x": 1, "z": 7}}\n')
    found = input_files.infer(input_files.InputFile(str(path), str(path)))
    table = new_table(Schema.from_arrow(found.columns, ["k"]))

    with pytest.raises(SchemaMismatchError, match=r"line 20001, column v.* has the member z"):
        table.write(path)


def test_a_member_of_another_case_is_no_member_and_the_one_that_is_meant_is_named():
    with pytest.raises(UnknownMemberError, match="did you mean x"):
        check_members([{"X": 1}], POINT)


def test_members_as_pairs_and_maps_as_dicts_are_looked_into():
    with pytest.raises(UnknownMemberError, match="member z"):
        check_members([[("x", 1), ("z", 2)]], POINT)
    with pytest.raises(UnknownMemberError, match=r"member \[\]\.p\.z"):
        check_members([{"a": {"p": {"z": 7}}}], KINDS["[].p.{}"])


def test_values_of_other_types_are_left_to_arrow():
    check_members([7, "x", [1], (1, 2)], POINT)
    check_members([7, "x"], pa.list_(POINT))
    check_members([7, [1], {"a": 7}], KINDS["[].p.{}"])
