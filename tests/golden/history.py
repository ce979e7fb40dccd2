"""A short history with every kind of transaction, each of which has an effect."""

import pyarrow as pa
from msgspec.structs import replace

from lakebed.model.documents import SQL_DIALECT
from lakebed.model.files import encode_bounds
from lakebed.model.keys import ALL_KEYS, EncodedRange
from lakebed.model.merge_modes import Latest
from lakebed.model.row_filters import AgeOff, SetFilter
from lakebed.model.schema import Field, Schema
from lakebed.model.state.table_state import IngestRequest, Source, TableState, ViewSource
from lakebed.model.state.transactions import (
    AddIndex,
    AlterSettings,
    CloseJob,
    ConcatenateRuns,
    CreateTable,
    DropIndex,
    DropTable,
    FailRequest,
    OpenJob,
    ProposeCut,
    ProposeExpiry,
    ProposeFeed,
    ProposeFiles,
    ProposeFilter,
    ProposeJoin,
    ProposeOutput,
    ProposeRemoval,
    ProposeRestore,
    ProposeSchema,
    ProposeSplit,
    PurgeFiles,
    RaiseWatermark,
    RejectRequest,
    RemoveTag,
    RequireFeatures,
    RetireFiles,
    SetMerge,
    SetTag,
    SubmitRequests,
    Watermark,
    apply,
    resolve,
)
from lakebed.model.state.transactions.schema_changes import AddField, DropField, RenameField
from tests.pure.state.cases import job, key, new_file

SCHEMA = Schema(
    (Field(1, "k", pa.string()),),
    (Field(2, "half", pa.int64(), expression="whole / 2", inputs=("whole",)),),
    (Field(3, "v", pa.int64(), nullable=True), Field(4, "whole", pa.int64(), nullable=True)),
)

REQUESTS = tuple(
    IngestRequest.new(f"request {version}", (Source(f"s3://inbox/{version}.parquet", 100, f"etag {version}"),), 1)
    for version in range(3)
)


def hour(number):
    """Return an hour of 1970, in microseconds."""
    return number * 3_600_000_000


def by_key(states):
    """Return the key field, by its last name."""
    return (states[-1].created.by_name["key"],)


def of_the_past(name):
    """Return a file with rows of the first minute of 1970, by its sort key."""
    new = new_file(name, "ab", last_modified_us=9)
    return replace(new, file=replace(new.file, bounds=encode_bounds([(SCHEMA.sort_key[0], 0, 59)])))


def everything():
    """Return the transactions, one per entry, and the states after each. The last one drops the table."""
    low = EncodedRange(b"", key("m"))
    proposals = [
        ProposeFiles((new_file("f1", "abyz"),), "request", 1),
        ProposeFiles((), "forgotten", 0),
        RaiseWatermark(Watermark.REQUEST_WATERMARK, 1),
        ProposeFiles((new_file("f2", "bx"),), None, 3),
        OpenJob(job("j1", "f1", "f2", began_us=5)),
        ProposeSplit({1: (key("m"),)}),
        ProposeOutput("j1", (new_file("f3", "abbxyz"),)),
        OpenJob(job("j2", "f3", keys=low, began_us=6)),
        CloseJob("j2", "gave up"),
        RetireFiles(("f1", "f2")),
        PurgeFiles(("f1",)),
        AlterSettings({"split_rows": 9}),
        SetTag("old", 9),
        SetTag("new", 14),
        RemoveTag("old"),
        RaiseWatermark(Watermark.ORPHAN_CUTOFF, 7),
        ProposeJoin((2, 3)),
        SubmitRequests(REQUESTS, request_watermark=1),
        FailRequest("request 0", "no such object"),
        RejectRequest("request 1", "no such bucket"),
        ProposeFiles((new_file("f4", "mnz", last_modified_us=8),), None, 18, ("request 2",)),
        ProposeRemoval((EncodedRange(key("b"), key("c")), EncodedRange(key("z"), None))),
        ProposeRemoval((EncodedRange(key("p"), key("q")),), fence=True),
        RaiseWatermark(Watermark.EARLIEST_RETAINED_VERSION, 20),
        OpenJob(job("j3", "f3", "f4", keys=EncodedRange(key("c"), key("p")), began_us=9)),
        ProposeFiles((new_file("f5", "cd", last_modified_us=9), new_file("f6", "no", last_modified_us=9)), None, 24),
        ConcatenateRuns(9, ("f5", "f6"), "chain"),
        ProposeSchema((AddField("w", "int8"), RenameField("k", "key"), DropField("v"))),
        lambda states: ProposeRestore(states[21]),
        OpenJob(job("j4", "f3", "f4", began_us=9)),
        CloseJob("j4", "gave up"),
        lambda states: ProposeFilter(
            (SetFilter("key <> ''"), AgeOff("half", hours=1, unit="s")), by_key(states), hour(3)
        ),
        lambda states: ProposeFiles((of_the_past("f8"),), None, states[-1].version),
        ProposeCut(hour(4)),
        ProposeExpiry(),
        ProposeRemoval((ALL_KEYS,), fence=True),
        SetMerge(Latest(by="sort_key")),
        lambda states: ProposeFiles((new_file("f7", "ab", last_modified_us=9),), None, states[-1].version),
        OpenJob(job("j5", "f7", began_us=9)),
        AddIndex("table-98", (4,)),
        DropIndex("table-98"),
        RequireFeatures({SQL_DIALECT: "writers"}),
        RequireFeatures({SQL_DIALECT: "readers"}),
        ProposeFeed((), 1, 0, 12),
        DropTable(),
    ]
    view = ViewSource("table-99", "SELECT * FROM source", 0)
    create = CreateTable("table-00", SCHEMA, {"page_rows": 100}, (), view=view)
    transactions, states = [create], [apply(TableState(), create, 1)]
    for each in proposals:
        proposal = each(states) if callable(each) else each
        if isinstance(proposal, ProposeFeed):
            transactions += resolve(proposal, states[-1])
        else:
            # A view accepts nothing else.
            transactions.append(resolve(proposal, replace(states[-1], view=None)))
        states.append(apply(states[-1], transactions[-1], len(transactions)))
    return transactions, states
