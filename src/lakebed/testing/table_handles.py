"""The contract of handles of tables, as a pytest suite.

Subclass it in a test file, and give it a handle of a table with the schema :data:`SCHEMA` and the rows :data:`ROWS`::

    class TestMyTable(TableHandleConformance):
        @pytest.fixture
        def handle(self, lake):
            lake.create_table("t", SCHEMA).write(ROWS)
            lake.create_index("t_by_x", table="t", on=["x"])
            return MyTable(lake, "t")

The table has an index of ``x``, built or not. It may have been written in any number of commits, and have other rows if
the handle shows none of them. The suite only reads. The same call has the same rows, or the same code of an error,
through every handle.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lakebed.errors import Code, Error
from lakebed.model.keys import KeyRange
from lakebed.model.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebed.read.snapshot.handles import TableHandle

    Handle = TableHandle[Any]

SCHEMA = Schema({"place": "string", "day": "int64"}, {"hour": "int64"}, {"x": "double"})

ROWS = pa.table(
    [
        pa.array(["a", "a", "a", "b", "b", "c"]),
        pa.array([1, 1, 2, 1, 3, 2]),
        pa.array([7, 9, 8, 7, 7, 6]),
        pa.array([0.5, None, 1.5, 2.5, 3.5, 4.5]),
    ],
    schema=SCHEMA.arrow,
)
"""In the order of the keys, which is that of every read."""

AFTER_A, UP_TO_A = KeyRange("b"), KeyRange(None, "a", max_inclusive=True)


class TableHandleConformance:
    """The contract of :class:`lakebed.read.snapshot.handles.TableHandle`, promise by promise."""

    @pytest.fixture
    def handle(self) -> Handle:
        """Override: a handle that shows :data:`ROWS`."""
        raise NotImplementedError

    def test_a_get_returns_the_rows_of_one_key_by_sort_key(self, handle: Handle) -> None:
        """Two rows, one, and none; with the columns that are asked for, in that order."""
        assert handle.get("a", 1) == ROWS.slice(0, 2)
        assert handle.get("c", 2, columns=["x", "place"]) == ROWS.slice(5, 1).select(["x", "place"])
        assert handle.get("d", 1) == ROWS.slice(0, 0)

    def test_a_get_of_many_returns_each_key_once_in_key_order(self, handle: Handle) -> None:
        """By tuples, and by Arrow data; a key without rows adds none."""
        wanted = pa.concat_tables([ROWS.slice(0, 2), ROWS.slice(5, 1)]).combine_chunks()
        assert handle.get_many([("c", 2), ("a", 1), ("c", 2), ("e", 1)]).combine_chunks() == wanted
        keys = pa.table({"place": ["c", "a"], "day": pa.array([2, 1], pa.int64())})
        assert handle.get_many(keys).combine_chunks() == wanted
        assert handle.get_many([]).num_rows == 0

    def test_a_scan_returns_the_rows_of_ranges_in_key_order_each_once(self, handle: Handle) -> None:
        """All rows, those of ranges that overlap, and none of a range without keys."""
        assert self._scanned(handle) == ROWS
        assert self._scanned(handle, AFTER_A, KeyRange("c"), UP_TO_A) == ROWS
        assert self._scanned(handle, AFTER_A) == ROWS.slice(3)
        assert self._scanned(handle, KeyRange("d")) == ROWS.slice(0, 0)

    def test_a_scan_takes_columns_a_predicate_a_limit_and_the_reverse_order(self, handle: Handle) -> None:
        """Rows that the predicate excludes do not count for the limit, nor need its columns be among those returned."""
        assert self._scanned(handle, columns=["x"], where="day = 1", limit=3) == ROWS.take([0, 1, 3]).select(["x"])
        assert self._scanned(handle, where="x IS NULL") == ROWS.slice(1, 1)
        assert self._scanned(handle, reverse=True, limit=2) == ROWS.take([5, 4])
        assert self._scanned(handle, limit=0) == ROWS.slice(0, 0)

    def test_a_stream_has_a_schema_before_its_rows_and_may_be_closed_early(self, handle: Handle) -> None:
        """And closed twice."""
        with handle.scan(columns=["day", "x"]) as rows:
            assert rows.schema.names == ["day", "x"]
            rows.close()

    def test_rows_are_found_by_values_of_indexed_fields(self, handle: Handle) -> None:
        """All rows with the value, and none with another; within ranges, and with a predicate."""
        assert handle.get(by={"x": 1.5}).combine_chunks() == ROWS.slice(2, 1)
        assert handle.get(by={"x": 2.5}, columns=["hour"]).combine_chunks() == ROWS.slice(3, 1).select(["hour"])
        assert handle.get(by={"x": -9.0}).num_rows == 0
        assert self._scanned(handle, AFTER_A, by={"x": 3.5}, where="day = 3") == ROWS.slice(4, 1)
        assert self._scanned(handle, UP_TO_A, by={"x": 3.5}).num_rows == 0
        assert (handle.count(by={"x": 4.5}).rows, handle.count(UP_TO_A, by={"x": 4.5}).rows) == (1, 0)

    def test_counts_samples_and_prefixes(self, handle: Handle) -> None:
        """An exact count; the same sample for a seed, all rows if there are fewer; prefixes of one field."""
        count = handle.count(AFTER_A, exact=True)
        assert (count.rows, count.exact) == (3, True)
        assert handle.sample(100).combine_chunks() == ROWS
        assert handle.sample(2, seed=1, columns=["x"]) == handle.sample(2, seed=1, columns=["x"])
        assert handle.prefixes(1)["place"].to_pylist() == ["a", "b", "c"]
        assert handle.prefixes(2, AFTER_A, limit=2).to_pylist() == [{"place": "b", "day": 1}, {"place": "b", "day": 3}]

    def test_a_glance_shows_the_columns_the_first_rows_and_how_many_there_are(self, handle: Handle) -> None:
        """As a frame does; a handle is true without being counted."""
        assert handle.columns == ROWS.column_names
        assert handle.head(2).combine_chunks() == ROWS.slice(0, 2)
        assert handle.head() == ROWS.slice(0, 5)
        assert bool(handle)
        assert self._code(lambda: handle.head(-1)) is Code.ARGUMENT_INVALID
        count = handle.count()
        if count.exact:
            assert len(handle) == ROWS.num_rows
        else:
            assert self._code(lambda: len(handle)) is Code.ARGUMENT_INVALID

    def test_a_stream_says_what_it_has_and_returns_its_first_rows(self, handle: Handle) -> None:
        """Shown, it reads nothing; after its first rows it is closed."""
        rows = handle.scan(columns=["x", "place"])
        assert rows.columns == ["x", "place"]
        assert all("to_pandas()" in shown and "place" in shown for shown in (repr(rows), rows._repr_html_()))
        assert rows.head(4).combine_chunks() == ROWS.slice(0, 4).select(["x", "place"])
        assert self._code(rows.read_all) is Code.ALREADY_CLOSED

    def test_conversions_have_the_rows_of_a_scan(self, handle: Handle) -> None:
        """As Arrow, and by the interface of Arrow streams."""
        assert handle.to_arrow(AFTER_A, columns=["x"]).combine_chunks() == ROWS.slice(3).select(["x"])
        assert pa.table(handle).combine_chunks() == ROWS

    @pytest.mark.parametrize("library", ["pandas", "polars"])
    def test_frames_have_the_rows_of_a_scan(self, handle: Handle, library: str) -> None:
        """If the library is there."""
        pytest.importorskip(library)
        assert getattr(handle, f"to_{library}")(AFTER_A)["x"].to_list() == [2.5, 3.5, 4.5]

    def test_a_snapshot_has_the_rows_of_its_version_and_returns_itself(self, handle: Handle) -> None:
        """It refuses a version later than its own."""
        snapshot = handle.snapshot()
        assert snapshot.snapshot(max_staleness=1, at_least=snapshot.version) is snapshot
        assert self._scanned(snapshot) == ROWS
        assert snapshot.schema.names == handle.schema.names == SCHEMA.names
        assert self._code(lambda: snapshot.get("a", 1, at_least=snapshot.version + 1)) is Code.VERSION_NOT_FOUND

    def test_a_version_that_was_seen_can_be_asked_for(self, handle: Handle) -> None:
        """And how old what is read may be."""
        assert handle.get("a", 2, at_least=handle.snapshot().version) == ROWS.slice(2, 1)
        assert handle.get("a", 2, max_staleness=60.0) == ROWS.slice(2, 1)

    def test_statistics_and_files_are_those_of_all_rows_or_refused(self, handle: Handle) -> None:
        """A handle of a part of the rows has none of the three."""
        if self._code(lambda: handle.explain("a", 1)) is Code.PERMISSION_MISSING:
            assert self._code(handle.partitions) is self._code(handle.files) is Code.PERMISSION_MISSING
            return
        assert handle.explain("a", 1).version == handle.snapshot().version
        assert handle.partitions()["rows"].to_pylist() == [6]
        assert handle.files().num_rows > 0

    def test_mistakes_have_their_codes(self, handle: Handle) -> None:
        """The same for each handle, before any row is read."""
        invalid, unknown = Code.ARGUMENT_INVALID, Code.COLUMN_UNKNOWN
        calls: list[tuple[Callable[[], Any], Code]] = [
            (lambda: handle.get("a"), Code.KEY_LENGTH_MISMATCH),
            (lambda: handle.get_many([("a", None)]), Code.KEY_NULL),
            (lambda: handle.scan(KeyRange("b", "a")), Code.KEY_RANGE_INVALID),
            (lambda: handle.get("a", 1, columns=["y"]), unknown),
            (lambda: handle.scan(columns=["y"]), unknown),
            (lambda: handle.scan(limit=-1), invalid),
            (lambda: handle.scan(reverse=1), invalid),  # type: ignore[arg-type]
            (lambda: handle.scan(where="x >"), Code.PREDICATE_INVALID),
            (lambda: handle.count(exact=1), invalid),  # type: ignore[arg-type]
            (lambda: handle.sample(-1), invalid),
            (lambda: handle.prefixes(3), invalid),
            (lambda: handle.get("a", 1, max_staleness=-1), invalid),
            (lambda: handle.get("a", 1, at_least=-1), invalid),
            (lambda: handle.get(by={}), invalid),
            (lambda: handle.get(by={"hour": 7}), invalid),
            (lambda: handle.get(by={"y": 7}), unknown),
            (lambda: handle.get(by={"x": None}), Code.KEY_NULL),
            (lambda: handle.get("a", 1, by={"x": 1.5}), Code.ARGUMENTS_CONFLICT),
            (lambda: handle.scan(by={"x": 1.5}, raw=True), Code.ARGUMENTS_CONFLICT),
        ]
        assert [self._code(call) for call, _ in calls] == [code for _, code in calls]

    def test_a_key_of_a_wrong_type_is_refused(self, handle: Handle) -> None:
        """A service gets the values of keys as texts, and says that it cannot parse one."""
        assert self._code(lambda: handle.get("a", "b")) in {Code.KEY_TYPE_MISMATCH, Code.KEY_UNPARSABLE}

    def test_copies_are_the_handle(self, handle: Handle) -> None:
        """Its caches would not be those of a copy."""
        assert copy.copy(handle) is copy.deepcopy(handle) is handle

    @staticmethod
    def _scanned(handle: Handle, *ranges: KeyRange, **options: Any) -> pa.Table:
        with handle.scan(*ranges, **options) as rows:
            return rows.read_all().combine_chunks()

    @staticmethod
    def _code(call: Callable[[], Any]) -> Code | None:
        try:
            call()
        except Error as error:
            return error.code
        return None
