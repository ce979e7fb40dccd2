"""Small tables of other systems: Delta and Iceberg written by their libraries, Sleeper and IceDB as they document them.

Each has the rows with id 0 … 9 but some that were deleted there.
"""

from __future__ import annotations

import base64
import json
import struct
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

ROWS = pa.table(
    {
        "id": pa.array(range(10), pa.int64()),
        "name": [f"n{i}" for i in range(10)],
        "day": ["mon"] * 5 + ["tue"] * 5,
    }
)


# -- Delta ----------------------------------------------------------------------------------------------------------


def write_delta(folder: Path) -> None:
    """Version 0 has ten rows, version 1 lacks row 3, rewritten, and version 2 row 7, hidden by a deletion vector."""
    from deltalake import DeltaTable, write_deltalake

    write_deltalake(folder, ROWS, partition_by=["day"])
    DeltaTable(folder).delete("id = 3")
    hide_in_delta(folder, "tue", [2])


def hide_in_delta(folder: Path, day: str, positions: list[int]) -> None:
    """A commit by hand, since the library writes no deletion vectors: inline, as Delta's protocol specifies them."""
    from deltalake import DeltaTable
    from pyroaring import BitMap

    table = DeltaTable(folder)
    (action,) = (one for one in pa.table(table.get_add_actions()).to_pylist() if one["partition"]["day"] == day)
    # RoaringBitmapArray: the magic number, one bitmap, its key, the bitmap in the portable format.
    data = struct.pack("<iqi", 1681511377, 1, 0) + BitMap(positions).serialize()
    padded = data + bytes(-len(data) % 4)
    vector = {
        "storageType": "i",
        "pathOrInlineDv": z85(padded),
        "sizeInBytes": len(data),
        "cardinality": len(positions),
    }
    values = {"path": action["path"], "partitionValues": {"day": day}, "size": action["size_bytes"]}
    actions = [
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"],
                      "writerFeatures": ["deletionVectors"]}},
        {"remove": {"path": action["path"], "deletionTimestamp": 1, "dataChange": True, "extendedFileMetadata": True,
                    "partitionValues": {"day": day}, "size": action["size_bytes"]}},
        {"add": {**values, "modificationTime": 1, "dataChange": True, "deletionVector": vector,
                 "stats": json.dumps({"numRecords": action["num_records"]})}},
    ]  # fmt: skip
    log = folder / "_delta_log" / f"{table.version() + 1:020}.json"
    log.write_text("\n".join(map(json.dumps, actions)), "utf-8")


def z85(data: bytes) -> str:
    """The Z85 text of bytes: base 85 with another alphabet than Python's."""
    ours = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
    theirs = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
    return base64.b85encode(data).translate(bytes.maketrans(theirs, ours)).decode("ascii")


# -- Iceberg --------------------------------------------------------------------------------------------------------


def write_iceberg(folder: Path, uri: str, deletes: str = "position") -> Path:
    """A table ``shop.trips`` of a catalog. Row 3 was rewritten away, and row 7 is hidden by a file of deletes; its
    metadata file is returned.
    """
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("local", uri=uri, warehouse=f"file://{folder.parent}")
    catalog.create_namespace("shop")
    table = catalog.create_table("shop.trips", ROWS.schema, location=f"file://{folder}")
    table.append(ROWS)
    table.delete("id = 3")
    hide_in_iceberg(table, folder, deletes)
    last = Path(catalog.load_table("shop.trips").metadata_location.removeprefix("file://"))
    named = folder / "metadata" / "v1.metadata.json"
    named.write_bytes(last.read_bytes())
    return named


def hide_in_iceberg(table, folder: Path, deletes: str) -> None:
    """A snapshot with a file of deletes, from the library's own writers of manifests: it does not write deletes."""
    from pyiceberg.manifest import (
        DataFile,
        DataFileContent,
        FileFormat,
        ManifestContent,
        ManifestEntry,
        ManifestEntryStatus,
        ManifestWriterV2,
        write_manifest_list,
    )
    from pyiceberg.table.snapshots import Operation, Snapshot, Summary
    from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate
    from pyiceberg.typedef import Record

    class DeleteManifest(ManifestWriterV2):
        def content(self):
            return ManifestContent.DELETES

        @property
        def _meta(self):
            return {**super()._meta, "content": "deletes"}

    (data,) = table.inspect.files()["file_path"].to_pylist()
    ids = pq.read_table(data.removeprefix("file://"))["id"].to_pylist()
    path = folder / "data" / "deletes.parquet"
    by_position = deletes == "position"
    if by_position:
        schema = pa.schema(
            [
                pa.field("file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": "2147483546"}),
                pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": "2147483545"}),
            ]
        )
        pq.write_table(pa.table([[data], [ids.index(7)]], schema=schema), path)
    else:
        schema = pa.schema([pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})])
        pq.write_table(pa.table([[7]], schema=schema), path)
    file = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES if by_position else DataFileContent.EQUALITY_DELETES,
        file_path=f"file://{path}",
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=1,
        file_size_in_bytes=path.stat().st_size,
        equality_ids=None if by_position else [1],
    )
    before = table.current_snapshot()
    number, snapshot_id = table.metadata.last_sequence_number + 1, before.snapshot_id + 1
    manifest = table.io.new_output(f"file://{folder}/metadata/deletes.avro")
    with DeleteManifest(table.spec(), table.schema(), manifest, snapshot_id, "null") as writer:
        added = ManifestEntryStatus.ADDED
        writer.add_entry(ManifestEntry.from_args(status=added, snapshot_id=snapshot_id, data_file=file))
    listed = f"file://{folder}/metadata/snap-deletes.avro"
    output = table.io.new_output(listed)
    with write_manifest_list(2, output, snapshot_id, before.snapshot_id, number, "null") as lists:
        lists.add_manifests([*before.manifests(table.io), writer.to_manifest_file()])
    snapshot = Snapshot(
        snapshot_id=snapshot_id,
        parent_snapshot_id=before.snapshot_id,
        sequence_number=number,
        manifest_list=listed,
        summary=Summary(Operation.DELETE),
        schema_id=0,
    )
    reference = SetSnapshotRefUpdate(ref_name="main", type="branch", snapshot_id=snapshot_id)
    table._do_commit((AddSnapshotUpdate(snapshot=snapshot), reference), ())


# -- Sleeper --------------------------------------------------------------------------------------------------------

_KEY = pa.struct([("string", pa.string()), ("long", pa.int64()), ("int", pa.int32()), ("bytes", pa.binary())])
_RANGE = pa.struct([("fieldName", pa.string()), ("fieldType", pa.string()), ("min", _KEY), ("max", _KEY)])
_PARTITIONS = pa.schema(
    [
        ("id", pa.string()),
        ("parentId", pa.string()),
        ("childIds", pa.list_(pa.string())),
        ("isLeaf", pa.bool_()),
        ("dimension", pa.uint32()),
        ("region", pa.list_(_RANGE)),
    ]
)
_REFERENCE = pa.struct(
    [
        ("partitionId", pa.string()),
        ("updateTime", pa.timestamp("ms")),
        ("jobId", pa.string()),
        ("numberOfRows", pa.uint64()),
        ("countApproximate", pa.bool_()),
        ("onlyContainsDataForThisPartition", pa.bool_()),
    ]
)
_FILES = pa.schema(
    [("filename", pa.string()), ("updateTime", pa.timestamp("ms")), ("partitionReferences", pa.list_(_REFERENCE))]
)


def write_sleeper(folder: Path, *, approximate: bool = False) -> None:
    """Partitions below and from m. File `wide` has rows of both, and counts in the upper one only: its lower rows were
    compacted into `low`. File `gone` waits for its deletion. An older snapshot has `wide` in both partitions.
    """

    def rows(devices: str, note: str) -> pa.Table:
        at = range(len(devices))
        return pa.table({"device": list(devices), "at": pa.array(at, pa.int64()), "note": [note] * len(devices)})

    def put(path: str, table: pa.Table) -> str:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, folder / path)
        return f"s3a://elsewhere/{folder.name}/{path}"

    wide = put("data/partition_root/wide.parquet", rows("abxyz", "wide"))
    low = put("data/partition_L/low.parquet", rows("abc", "low"))
    gone = put("data/partition_root/gone.parquet", rows("q", "gone"))

    def reference(partition: str, count: int, *, whole: bool) -> dict:
        return {
            "partitionId": partition,
            "numberOfRows": count,
            "countApproximate": approximate and not whole,
            "onlyContainsDataForThisPartition": whole,
        }

    def bound(text: str | None) -> dict | None:
        return None if text is None else {"string": text}

    def partition(name: str, parent: str | None, low: str, high: str | None) -> dict:
        region = {"fieldName": "device", "fieldType": "StringType", "min": bound(low), "max": bound(high)}
        return {"id": name, "parentId": parent, "childIds": [], "isLeaf": parent is not None, "region": [region]}

    upper = reference("R", 3, whole=False)
    states = {
        7: [{"filename": wide, "partitionReferences": [reference("L", 2, whole=False), upper]}],
        12: [
            {"filename": wide, "partitionReferences": [upper]},
            {"filename": low, "partitionReferences": [reference("L", 3, whole=True)]},
            {"filename": gone, "partitionReferences": []},
        ],
    }
    partitions = [partition("root", None, "", None), partition("L", "root", "", "m"), partition("R", "root", "m", None)]
    for number, files in states.items():
        for name, schema, found in (("files", _FILES, files), ("partitions", _PARTITIONS, partitions)):
            path = folder / "statestore" / "snapshots" / f"{number}-{name}.arrow"
            path.parent.mkdir(parents=True, exist_ok=True)
            with pa.OSFile(str(path), "wb") as out, pa.ipc.new_stream(out, schema) as stream:
                stream.write_table(pa.Table.from_pylist(found, schema))


# -- IceDB ----------------------------------------------------------------------------------------------------------


def write_icedb(folder: Path) -> None:
    """Two inserts, a merge of the first with its sources tombstoned, and an insert whose file was removed again."""
    sizes: dict[str, int] = {}

    def put(name: str, users: str, **more: list) -> None:
        path = folder / "_data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        at = pa.array(range(len(users)), pa.int64())
        pq.write_table(pa.table({"user": list(users), "at": at, **more}), path)
        sizes[name] = path.stat().st_size

    def log(name: str, alive: list[str], dead: list[str] = (), replaced: list[str] = ()) -> None:
        key = folder.name
        tombstones = [{"p": f"{key}/_log/{one}", "t": 1} for one in replaced]
        files = [{"p": f"{key}/_data/{one}", "b": sizes[one], "t": 1} for one in alive]
        files += [{"p": f"{key}/_data/{one}", "b": sizes[one], "t": 1, "tmb": 2} for one in dead]
        head = {"v": 1, "t": 1, "sch": 1, "f": 2 + len(tombstones), **({"tmb": 2} if tombstones else {})}
        lines = [head, {"user": "VARCHAR", "at": "BIGINT"}, *tombstones, *files]
        (folder / "_log").mkdir(exist_ok=True)
        (folder / "_log" / name).write_text("\n".join(map(json.dumps, lines)), "utf-8")

    put("d=1/a.parquet", "ab")
    put("d=1/b.parquet", "c")
    put("d=2/c.parquet", "de")
    put("d=2/removed.parquet", "z")
    log("1700000000000_h.jsonl", ["d=1/a.parquet", "d=2/c.parquet"])
    log("1700000001000_h.jsonl", ["d=1/b.parquet", "d=2/removed.parquet"])
    put("d=1/merged.parquet", "abc", d=[1, 1, 1])
    sources = ["1700000000000_h.jsonl", "1700000001000_h.jsonl"]
    log(
        "1700000002000_m_h.jsonl",
        ["d=1/merged.parquet", "d=2/c.parquet", "d=2/removed.parquet"],
        ["d=1/a.parquet", "d=1/b.parquet"],
        sources,
    )
    log("1700000003000_m_h.jsonl", [], ["d=2/removed.parquet"])


# -- Hive -----------------------------------------------------------------------------------------------------------


def write_hive(folder: Path) -> None:
    """Ten rows by day; a marker of Spark beside them, and a folder for null."""
    pq.write_to_dataset(ROWS, folder, partition_cols=["day"])
    (folder / "_SUCCESS").touch()
    null = folder / "day=__HIVE_DEFAULT_PARTITION__"
    null.mkdir()
    pq.write_table(pa.table({"id": [10], "name": ["n10"]}), null / "part.parquet")
    (folder / "day=mon" / "_temporary").mkdir()
    pq.write_table(pa.table({"id": [99]}), folder / "day=mon" / "_temporary" / "part.parquet")
