"""A table's history, read from its log alone: what each transaction did, when and by which writer."""

import pyarrow as pa
import pytest

import lakebed
from lakebed import DamagedError, Schema, UsageError, clock
from lakebed.log.backends.objects import ObjectLogs
from lakebed.log.queue import Ticket
from lakebed.model.files import checkpoint_name, entry_name, table_prefix
from lakebed.model.state.codec import encode_transaction, outline
from lakebed.model.state.transactions import AlterSettings, ProposeSplit
from lakebed.read.inspect.history import SCHEMA, described
from lakebed.table.table import Table
from lakebed.testing.faults import CountingStorage
from tests.documents import rewritten
from tests.golden.history import everything
from tests.pure.state.cases import known_files
from tests.tables.cases import compact


@pytest.fixture(params=["local", "memory"])
def table(request, tmp_path):
    url = str(tmp_path / "lake") if request.param == "local" else f"memory://{clock.random_token()}"
    return lakebed.create(url).create_table("t", Schema({"k": "string"}, values={"v": "int64"}))


def rows(letters):
    return pa.table({"k": list(letters), "v": range(len(letters))})


def history_of(table, *names):
    return [tuple(row[name] for name in names) for row in table.history().to_pylist()]


def test_every_transaction_is_one_row_newest_first(table):
    table.write(rows("abc"), commit_id="monday")
    table.write(rows("de"))
    job = compact(table)
    table.commit(ProposeSplit({1: (table.schema.codec.encode_key(("c",)),)}))
    table.set(page_rows=500)
    assert history_of(table, "version", "type", "rows_added", "rows_removed", "files_added", "references_dropped") == [
        (7, "alter_settings", 0, 0, 0, 0),
        (6, "split_partitions", 0, 0, 0, 0),
        (5, "replace", 5, None, 1, 2),
        (4, "open_job", 0, 0, 0, 0),
        (3, "add_files", 2, 0, 1, 0),
        (2, "add_files", 3, 0, 1, 0),
        (1, "create_table", 0, 0, 0, 0),
    ]
    assert history_of(table, "request_key")[5] == ("monday",)
    assert history_of(table, "job")[2:4] == [(job,), (job,)]
    assert history_of(table, "detail") == [
        ("page_rows=500",),
        ("partition 1 cut into 2",),
        ("2 references replaced by 1",),
        ("over 2 files, for 60 seconds",),
        ("1 reference in 1 partition",),
        ("1 reference in 1 partition",),
        ("1 partition",),
    ]
    sizes = {file.size_bytes for file in known_files(table.state())}
    assert {size for (size,) in history_of(table, "bytes_added")} == {0, *sizes}
    assert table.history().schema == SCHEMA


def test_times_are_the_stores_of_every_entry_the_newest_too(table):
    for count in range(20):
        table.write(rows("ab"), commit_id=str(count))
    prefix = table_prefix(table.id)
    last_modified_times = [table.storage.last_modified(entry_name(prefix, number)) for number in range(21, 0, -1)]
    assert [time for (time,) in history_of(table, "time")] == last_modified_times


def test_a_limit_reads_no_more_of_the_log(table):
    for count in range(30):
        table.write(rows("ab"), commit_id=str(count))
    counting = CountingStorage(table.storage)
    fresh = Table(table.id, "t", counting, ObjectLogs(counting), dict)
    fresh.state()
    counting.clear()
    found = fresh.history(limit=3)
    assert found.column("version").to_pylist() == [31, 30, 29]
    assert sum(counting.calls.values()) <= 2 + 3 + 3
    assert fresh.history(limit=0).num_rows == 0
    with pytest.raises(UsageError, match="limit"):
        fresh.history(limit=-1)


def test_an_entry_of_several_transactions_is_as_many_rows(table):
    """The later one first."""
    before = table.version
    changes = [AlterSettings({"page_rows": rows}) for rows in (500, 501)]
    table.log.local._commit_group([Ticket(change) for change in changes])
    assert history_of(table, "version")[:2] == [(before + 1,), (before + 1,)]
    assert [text for (text,) in history_of(table, "detail")][:2] == ["page_rows=501", "page_rows=500"]


def test_an_entry_that_was_replaced_is_named_when_the_reader_comes_to_it(table):
    """It is whole, and only the chain says that it is another one."""
    for count in range(5):
        table.write(rows("ab"), commit_id=str(count))
    name = entry_name(table_prefix(table.id), 3)
    table.storage.replace(name, rewritten(table.storage.get(name), writer="another"))
    assert table.history(limit=3).column("version").to_pylist() == [6, 5, 4]
    with pytest.raises(DamagedError, match=r"entry 3 .* was replaced"):
        table.history()
    table.storage.delete([name, checkpoint_name(table_prefix(table.id))])
    with pytest.raises(DamagedError, match=r"entry 3 .* is missing"):
        table.history()


def test_every_kind_of_transaction_is_described_in_words():
    """Those of the golden table."""
    transactions, _ = everything()
    described_as = {
        history_of.type: described(history_of).detail
        for history_of in (outline(encode_transaction(one).document) for one in transactions)
    }
    assert described_as == {
        "create_table": "1 partition",
        "add_files": "1 reference in 1 partition",
        "raise_watermark": "age_off_cut_us to 10800000000",
        "open_job": "over 1 file, for 60 seconds",
        "split_partitions": "partition 1 cut into 2",
        "replace": "4 references replaced by 2",
        "close_job": "gave up",
        "retire_files": "2 files",
        "purge_files": "1 file",
        "alter_settings": "split_rows=9",
        "alter_schema": "add w: int8, rename k to key, drop v",
        "set_tag": "new at version 14",
        "remove_tag": "old",
        "concatenate_runs": "2 files of partition 9 made one run",
        "join_partitions": "partitions 2, 3 made one",
        "submit_requests": "3 requests for 3 files",
        "fail_request": "request 0: no such object",
        "reject_request": "request 1: no such bucket",
        "remove_range": "1 range, 1 partition emptied, for good",
        "set_merge": "Latest(by='sort_key')",
        "advance_view": "to version 12 of the source",
        "set_filter": "only key <> '', age-off after 1 hour by field 2",
        "drop_expired": "1 reference past the age-off",
        "restore_version": "to version 22, 6 partitions replaced",
        "add_index": "in table-98, of fields 4",
        "drop_index": "in table-98",
        "drop_table": "",
        "require_features": "sql-datafusion-1 of readers",
    }
