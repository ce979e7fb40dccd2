"""Proposals as they are sent to a service: each kind comes back as it was, and what is none is refused."""

import msgspec
import pyarrow as pa
import pytest
from msgspec.structs import replace

from lakebed import (
    AddField,
    AgeOff,
    Aggregate,
    AllowNulls,
    Custom,
    DropField,
    First,
    KeepAll,
    Latest,
    RenameField,
    Schema,
    SetFilter,
    WidenField,
)
from lakebed.errors import UsageError
from lakebed.model.files import NewFile
from lakebed.model.keys import ALL_KEYS, EncodedRange
from lakebed.model.state import transactions as t
from lakebed.model.state.proposal_codec import decode_proposal, encode_proposal
from lakebed.model.state.table_state import IngestRequest, Source, TableState
from lakebed.model.state.transactions.key_guard import KeyGuard
from tests.pure.state.cases import SCHEMA, job, new_file

FILE = new_file("file-0001", "abyz")
GROWN = NewFile(FILE.file, FILE.summary, FILE.run, Schema({"k": "string"}, values={"n": "decimal128(9, 2)"}).values)
GUARD = KeyGuard(4, 9, (b"a", b"k"), (b"b", b"z"), frozenset({"file-0002", "file-0003"}))

SENT = [
    t.ProposeFiles((FILE, new_file("file-0002", "k")), "request", 7, ("request-1",), 30, 5, GUARD),
    t.ProposeFiles((GROWN,)),
    t.ProposeFeed((FILE,), 3, 4, 5, anew=True),
    t.ProposeFeed((FILE,), 3, 4, 5, sequence=6, covered=("file-0002",)),
    t.ProposeEntries((FILE,), 3, 4, ("file-0002", "file-0003")),
    t.AddIndex("table-0002", (3, 4)),
    t.DropIndex("table-0002"),
    t.RequireFeatures({"sql-datafusion-1": "writers"}),
    t.OpenJob(job("job-0001", "file-0001", "file-0002")),
    t.ProposeJobs((job("job-0001", "file-0001"), job("job-0002", "file-0002", keys=EncodedRange(b"a", b"k")))),
    t.ProposeOutput("job-0001", (FILE,)),
    t.ProposeOutput("job-0001", (FILE,), changes_rows=True),
    t.ProposeRewrite((t.ProposeOutput("job-0001", (FILE,)), t.ProposeOutput("job-0002", ()))),
    t.CloseJob("job-0001", "it is late"),
    t.ConcatenateRuns(3, ("file-0001", "file-0002"), "run-0001"),
    t.ProposeSplit({4: (b"b", b"c"), 2: (b"x",)}, {"file-0001": FILE.summary}),
    t.ProposeJoin((1, 2, 3)),
    t.ProposeRemoval((ALL_KEYS, EncodedRange(b"a", b"b")), fence=True, summaries={"file-0001": FILE.summary}),
    t.ProposeCut(1_700_000_000_000_000),
    t.ProposeExpiry(),
    t.SubmitRequests((IngestRequest.new("request-1", (Source("file:///a.parquet", 4, "v"),), 3),), 2),
    t.FailRequest("request-1", "no such file"),
    t.RejectRequest("request-1", "withdrawn"),
    t.AlterSettings({"log_s": 5, "history_s": None}),
    t.SetTag("tag", 3),
    t.RemoveTag("tag"),
    t.RetireFiles(("file-0001",)),
    t.PurgeFiles(("file-0001",)),
    t.RaiseWatermark(t.Watermark.AGE_OFF_CUT, 5),
    t.ProposeSchema(
        (
            AddField("a", "int64", "sum"),
            DropField("b"),
            RenameField("c", "d"),
            WidenField("e", "int64"),
            AllowNulls("f"),
        )
    ),
    t.ProposeSchema((AddField("a", pa.list_(pa.struct({"x": pa.map_(pa.string(), pa.int8())}))),)),
    t.ProposeFilter((SetFilter("n > 3"), AgeOff("at", days=3, unit="ms")), SCHEMA.fields, 4),
    t.ProposeFilter((SetFilter(None), AgeOff(None)), (), 4),
    *(t.SetMerge(mode) for mode in (KeepAll(), Latest("sort_key"), First(), Aggregate({"n": "sum"}), Custom("f", 2))),
]
KEPT = [t.CreateTable("table-00", SCHEMA, {}, ()), t.DropTable(), t.ProposeRestore(TableState())]


@pytest.mark.parametrize("proposal", SENT, ids=lambda one: type(one).__name__)
def test_a_proposal_comes_back_as_it_was_in_both_formats(proposal):
    document = encode_proposal(proposal)
    assert decode_proposal(document) == proposal
    as_json = msgspec.json.encode(_json_like(document))
    assert decode_proposal(as_json, "json") == proposal


def _json_like(document):
    """The document with its bytes as base64, as msgspec writes them into JSON."""
    return msgspec.to_builtins(msgspec.msgpack.decode(document))


def test_every_kind_of_proposal_is_either_sent_or_kept():
    """A new kind has to be decided about here."""
    assert {type(one) for one in (*SENT, *KEPT)} == set(t.Proposal.__args__)
    assert [encode_proposal(one) for one in KEPT] == [None] * len(KEPT)


@pytest.mark.parametrize(
    "change",
    [
        {"type": "drop_table"},
        {"files": [{"file": {}}]},
        {"base_version": -1},
        {"base_version": "7"},
        {"guard": {"version": 1, "sequence": 1, "lows": [b"a"], "highs": [], "files": []}},
    ],
)
def test_what_is_no_proposal_is_refused(change):
    document = msgspec.msgpack.decode(encode_proposal(SENT[0])) | change
    with pytest.raises(UsageError, match="not a proposal"):
        decode_proposal(msgspec.msgpack.encode(document))


@pytest.mark.parametrize("keys_and_ranks", [((b"b", b"a"), (0, 1)), ((b"a", b"b"), (1, 0)), ((b"a",), (0, 1))])
def test_a_summary_that_does_not_ascend_is_refused(keys_and_ranks):
    keys, ranks = keys_and_ranks
    bad = replace(FILE.summary, keys=keys, ranks=ranks)
    for proposal in (t.ProposeFiles((replace(FILE, summary=bad),)), t.ProposeSplit({4: (b"b",)}, {"file-0001": bad})):
        with pytest.raises(UsageError, match="not a proposal"):
            decode_proposal(encode_proposal(proposal))


def test_a_summary_of_other_rows_than_its_file_has_is_refused():
    bad = replace(FILE, summary=replace(FILE.summary, rows=5))
    with pytest.raises(UsageError, match="4 rows, and its summary 5"):
        decode_proposal(encode_proposal(t.ProposeOutput("job-0001", (bad,))))


@pytest.mark.parametrize("change", [{"id": "../file"}, {"job": ""}, {"size_bytes": 2**63}, {"schema_version": 0}])
def test_a_file_that_the_log_could_not_store_is_refused(change):
    bad = replace(FILE, file=replace(FILE.file, **change))
    with pytest.raises(UsageError, match="not a proposal"):
        decode_proposal(encode_proposal(t.ProposeFiles((bad,))))


def test_a_job_that_the_log_could_not_store_is_refused():
    with pytest.raises(UsageError, match="not a proposal"):
        decode_proposal(encode_proposal(t.ProposeJobs((replace(job("job-0001", "file-0001"), deadline_s=-1),))))


def test_the_cuts_of_a_split_keep_their_order():
    split = t.ProposeSplit({4: (b"b",), 2: (b"x",), 3: (b"m",)})
    assert list(decode_proposal(encode_proposal(split)).cuts) == [4, 2, 3]
