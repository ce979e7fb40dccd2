"""Long lists of references beside their line: what is written comes back; what does not fit its claim is refused."""

import json

import pyarrow as pa
import pytest

from lakebed.errors import Code, DamagedError
from lakebed.model.documents import dump
from lakebed.model.files import Reference
from lakebed.model.state import codec, reference_lists
from lakebed.model.state.reference_lists import INLINE_MAX, ReferenceCounts
from lakebed.model.state.transactions import (
    AddFiles,
    OpenJob,
    ProposeFiles,
    Rejected,
    Replace,
    SplitPartitions,
    apply,
    resolve,
)
from tests.pure.state.cases import job, new_file, step, table


def references(count):
    """Of three files, two runs, exact or not, in no order of partitions."""
    return tuple(
        Reference(f"f{n % 3}", (n * 7919) % count + 1, n * 10**8, n % 2 == 0, f"run-ü{n % 2}") for n in range(count)
    )


def pairs(count):
    return tuple((f"f{n % 3}", n + 1) for n in range(count))


def written(transaction):
    """The document as a reader has it, and the bytes of its sidecars."""
    encoded = codec.encode_transaction(transaction)
    return encoded.document, {digest: sidecar.data for digest, sidecar in encoded.sidecars.items()}


@pytest.mark.parametrize("count", [0, 1, INLINE_MAX, INLINE_MAX + 1, 5 * INLINE_MAX])
@pytest.mark.parametrize("kind", [AddFiles, Replace, SplitPartitions])
def test_references_come_back_whether_in_the_line_or_beside_it(kind, count):
    """In their order; beside it from one more than a line may have."""
    transaction = {
        AddFiles: AddFiles((), references(count), "request"),
        Replace: Replace("j1", pairs(count), (), references(count)),
        SplitPartitions: SplitPartitions({7: (b"k",), 9: (b"x",)}, references(count)),
    }[kind]
    document, sidecars = written(transaction)
    assert codec.decode_transaction(document, sidecars) == transaction
    lists = 2 if kind is Replace else 1
    assert len(sidecars) == (lists if count > INLINE_MAX else 0)


def test_the_same_references_give_the_same_bytes_and_others_do_not():
    """So that a sidecar may be named by its digest, and need not be put again."""
    one, again = (written(AddFiles((), references(2_000)))[1] for _ in range(2))
    assert one == again
    assert one.keys().isdisjoint(written(AddFiles((), references(2_001)))[1])


@pytest.mark.parametrize("count", [10, 2_000])
def test_an_outline_counts_without_the_sidecars(count):
    outlined = codec.outline(written(Replace("j1", pairs(count), (), references(count)))[0])
    assert outlined.added == ReferenceCounts(count, count, sum(n * 10**8 for n in range(count)))
    assert (outlined.dropped.references, outlined.dropped.partitions) == (count, count)
    assert (outlined.transaction.job, outlined.transaction.files) == ("j1", ())
    assert (outlined.transaction.references == ()) == (count > INLINE_MAX)


def arrow(columns, *, batches=1):
    sink = pa.BufferOutputStream()
    batch = pa.RecordBatch.from_pydict(columns)
    with pa.ipc.new_file(sink, batch.schema) as writer:
        for _ in range(batches):
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def malformed(data, bad):
    batch = pa.ipc.open_file(data).get_batch(0)
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    files = columns["file"]
    beyond = pa.DictionaryArray.from_arrays(pa.array([3] * len(files), pa.int32()), files.dictionary, safe=False)
    return {
        "no Arrow": b"references",
        "empty": b"",
        "cut": data[:-30],
        "another schema": arrow({"partition": columns["partition"]}),
        "two batches": arrow(columns, batches=2),
        "fewer": arrow({name: column.slice(1) for name, column in columns.items()}),
        "nulls": arrow(columns | {"rows": pa.array([None] * len(files), pa.int64())}),
        "other rows": arrow(columns | {"rows": pa.array([1] * len(files), pa.int64())}),
        "other partitions": arrow(columns | {"partition": pa.array([1] * len(files), pa.int64())}),
        "no such file": arrow(columns | {"file": beyond}),
    }[bad]


@pytest.mark.parametrize(
    "bad",
    ["no Arrow", "empty", "cut", "another schema", "two batches", "fewer", "nulls", "other rows", "other partitions",
     "no such file"],
)  # fmt: skip
def test_a_sidecar_that_is_not_as_claimed_is_damage_and_named(bad):
    """Of the right digest all the same: its writer was wrong."""
    document, sidecars = written(AddFiles((), references(2_000)))
    ((digest, data),) = sidecars.items()
    with pytest.raises(DamagedError, match=f"sidecar {digest}"):
        codec.decode_transaction(document, {digest: malformed(data, bad)})


def test_a_claim_without_its_sidecar_or_without_counts_is_damage():
    document, sidecars = written(AddFiles((), references(2_000)))
    (digest,) = sidecars
    with pytest.raises(DamagedError, match=f"sidecar {digest}"):
        codec.decode_transaction(document, {})
    mangled = json.loads(document)
    del mangled["references"]["rows"]
    for read in (codec.outline, lambda document: codec.decode_transaction(document, sidecars)):
        with pytest.raises(DamagedError, match="not a transaction"):
            read(dump(mangled))


def test_more_references_than_one_transaction_may_add_are_refused():
    """With what to do; as many as it may add are not."""
    state = table("c", "e", "g")
    assert not isinstance(resolve(ProposeFiles((new_file("f1", "abcdef"),)), state, 3), Rejected)
    refused = resolve(ProposeFiles((new_file("f1", "abcdefg"),)), state, 3)
    assert refused.code is Code.LIMIT_REACHED
    assert refused.reason.startswith("its files reach partitions 4 times, which is more than 3: write fewer files")


def test_a_pair_that_is_dropped_twice_is_damage():
    """The counts of its file would be wrong for good."""
    state = step(table(), ProposeFiles((new_file("f1", "az"), new_file("f2", "az"))))
    state = apply(state, SplitPartitions({1: (b"m",)}, tuple(Reference(f, 2, 2, True, f) for f in ("f1", "f2"))), 3)
    state = apply(state, OpenJob(job("j1", "f1")), 4)
    with pytest.raises(DamagedError, match="drops f1 from partition 2, which does not hold it"):
        apply(state, Replace("j1", (("f1", 2), ("f1", 2)), (), ()), 5)
    assert apply(state, Replace("j1", (("f1", 2),), (), ()), 5).files["f1"].dropped == 5


@pytest.mark.parametrize("order", [1, -1])
def test_references_are_applied_in_whatever_order_their_partitions_are(order):
    """Ours are in the order of the partitions; another writer's need not be."""
    state = table("c", "e", "g", "i")
    added = resolve(ProposeFiles((new_file("f1", "abcdefghij"), new_file("f2", "dgh"))), state)
    turned = AddFiles(added.files, added.references[::order])
    applied = apply(state, turned, 2)
    assert {r for partition in applied.partitions.ids for r in applied.references_of(partition)} == set(
        added.references
    )
    assert applied.files["f1"].references == 5


def test_a_list_at_the_bound_is_what_the_bound_says():
    """About 95 bytes a reference with ids as they are."""
    sidecars = reference_lists.Sidecars()
    listed = reference_lists.encode_references(
        [Reference("0" * 36, n, 10**6, True, "1" * 36) for n in range(INLINE_MAX)], sidecars
    )
    assert 85_000 < len(json.dumps(listed, separators=(",", ":"))) < 105_000
    assert not sidecars
