"""A short history with every kind of transaction, each of which means something in it."""

import pyarrow as pa

from lakebed.keys import EncodedRange
from lakebed.schema import Field, Schema
from lakebed.state.apply import apply
from lakebed.state.evolution import AddField, DropField, RenameField
from lakebed.state.resolve import resolve
from lakebed.state.table import TableState
from lakebed.state.transactions import (
    AlterSettings,
    ChainRuns,
    CloseJob,
    CreateTable,
    DropTable,
    FailRequest,
    ForgetFiles,
    Mark,
    MarkDead,
    OfferFiles,
    OfferJoin,
    OfferOutput,
    OfferRemove,
    OfferSchema,
    OfferSplit,
    OpenJob,
    RaiseMark,
    RejectRequest,
    RemoveTag,
    Request,
    SetTag,
    Source,
    SubmitRequests,
)
from tests.unit.state.cases import job, key, new_file

SCHEMA = Schema(
    (Field(1, "k", pa.string()),),
    (Field(2, "half", pa.int64(), expression="whole / 2", inputs=("whole",)),),
    (Field(3, "v", pa.int64(), nullable=True), Field(4, "whole", pa.int64(), nullable=True)),
)

REQUESTS = tuple(
    Request(f"request {number}", (Source(f"s3://inbox/{number}.parquet", 100, f"etag {number}"),), 1)
    for number in range(3)
)


def everything():
    """The transactions, one an entry, and the states after each. The last one drops the table."""
    low = EncodedRange(b"", key("m"))
    offers = [
        OfferFiles((new_file("f1", "abyz"),), "request", 1),
        OfferFiles((), "forgotten", 0),
        RaiseMark(Mark.FORGET_LINE, 1),
        OfferFiles((new_file("f2", "bx"),), None, 3),
        OpenJob(job("j1", "f1", "f2", began_us=5)),
        OfferSplit({1: (key("m"),)}),
        OfferOutput("j1", (new_file("f3", "abbxyz"),)),
        OpenJob(job("j2", "f3", keys=low, began_us=6)),
        CloseJob("j2", "gave up"),
        MarkDead(("f1", "f2")),
        ForgetFiles(("f1",)),
        AlterSettings({"split_rows": 9}),
        SetTag("old", 9),
        SetTag("new", 14),
        RemoveTag("old"),
        RaiseMark(Mark.ORPHAN_HORIZON, 7),
        OfferJoin((2, 3)),
        SubmitRequests(REQUESTS, forget_line=1),
        FailRequest("request 0", "no such object"),
        RejectRequest("request 1", "no such bucket"),
        OfferFiles((new_file("f4", "mnz", stamp_us=8),), None, 18, ("request 2",)),
        OfferRemove((EncodedRange(key("b"), key("c")), EncodedRange(key("z"), None))),
        OfferRemove((EncodedRange(key("p"), key("q")),), fence=True),
        RaiseMark(Mark.RETAINED_FROM, 20),
        OpenJob(job("j3", "f3", "f4", keys=EncodedRange(key("c"), key("p")), began_us=9)),
        OfferFiles((new_file("f5", "cd", stamp_us=9), new_file("f6", "no", stamp_us=9)), None, 24),
        ChainRuns(9, ("f5", "f6"), "chain"),
        OfferSchema((AddField("w", "int8"), RenameField("k", "key"), DropField("v"))),
        DropTable(),
    ]
    create = CreateTable("table-00", SCHEMA, {"page_rows": 100}, ())
    transactions, states = [create], [apply(TableState(), create, 1)]
    for offer in offers:
        transactions.append(resolve(offer, states[-1]))
        states.append(apply(states[-1], transactions[-1], len(transactions)))
    return transactions, states
