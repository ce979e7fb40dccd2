"""No single flipped bit of a stored object changes what it means without an error, whatever kind of object it is.

Each kind of object that docs/format.md lists has a reader here, which is what the library reads it with. A kind without
one fails the test, so that a new kind of object cannot be added without a digest.
"""

from __future__ import annotations

import datetime as dt
import random
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

import lakebed
from lakebed import Schema
from lakebed.errors import DamagedError, Error, UnsupportedFormatError
from lakebed.log import entry
from lakebed.log.log_limits import LogLimits
from lakebed.model.files import hook_of_delivered
from lakebed.read.inspect.history import CopyKind, read_copies, record_copy
from lakebed.read.inspect.hooks import DamagedHook, add_hook, checked_hook, read_delivered, read_hooks
from lakebed.read.snapshot.pins import Pin, read_pins
from lakebed.server.security import access_keys
from lakebed.server.security.roles import Permission, Role
from lakebed.server.security.sessions import SealedSessions
from lakebed.server.security.stored import create_role, create_token, roles_of, tokens_of
from lakebed.table.tracker.runs import (
    JobRun,
    RunPlace,
    read_newest_first,
    request_retry,
    requested_retries,
    write_records,
)
from lakebed.table.tracker.submitted_queries import QueryAttempt, QueryEnd, QueryObjects, SubmittedQuery
from lakebed.upkeep.export import publication
from lakebed.upkeep.follow.declared_follower import DeclaredFollower, declare_follower, read_declared
from lakebed.upkeep.follow.follow_record import FollowRecord, read_record, write_record
from lakebed.upkeep.publish.record import latest_metadata
from lakebed.upkeep.publish.run import publish
from tests.documents import objects

FORMAT = Path(__file__).parents[2] / "docs" / "format.md"
NOW = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
QUERY = "0192f0c0-0000-7000-8000-00000000000a"
SEED = 34
SAMPLE = 100
"""Flips of each object in the quick run; the slow one flips every bit."""

ROLE = Role("clerk", Permission.READ, frozenset(["t"]), "level < 3", frozenset(["salary"]), (("phone", "'***'"),))


@dataclass
class Lake:
    """An instance with every kind of object; ``past`` keeps the pin alive."""

    root: Path
    lake: Any
    table: Any

    def opened(self) -> Any:
        return lakebed.open(str(self.root))

    def log(self) -> Any:
        return self.opened().table("t").log


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    root = tmp_path_factory.mktemp("documents") / "lake"
    lake = lakebed.create(str(root))
    storage = lake.storage
    table = lake.create_table("t", Schema({"k": "int64"}, values={"level": "int64"}), split_points=[(5,)])
    table.log.limits = LogLimits(inline_bytes=0, inline_references=0)
    for start in range(3):
        table.write(pa.table({"k": range(start, 9), "level": range(start, 9)}))
    table.tag("first")
    table.set(publish="iceberg")
    publish(table)
    table.log.wait_for_checkpoint()
    table.log.checkpoints.write(table.log.head)
    table.log.backend.advance_log_start(0, 1)
    create_role(storage, ROLE)
    create_token(storage, "ann", ["clerk"], ["t"], NOW)
    access_keys.create_access_key(storage, "ann", ["clerk"], ["t"], expires=NOW)
    SealedSessions(storage).begin("Bearer x")
    add_hook(storage, checked_hook(table.id, url="https://example.com/x", secret="s"), 2)
    record_copy(storage, table.id, CopyKind.EXPORT, "/elsewhere", 3)
    place = RunPlace(host="h", process="p", executor="workers", writer="w")
    run = JobRun(id=QUERY, operation="compaction", table="t", table_id=table.id, where=place, created=NOW, updated=NOW)
    write_records(storage, "w-0000", [run], [])
    request_retry(storage, QUERY)
    write_record(storage, FollowRecord(name="ann", url="postgresql://h/d", source="s", positions={"t": 7}, behind=3))
    declare_follower(storage, DeclaredFollower(name="ann", url="postgresql://h/d", tables=(("orders", "t"),)))
    queries = QueryObjects(storage)
    asked = {"principal": {"name": "ann", "roles": ["clerk"]}, "asked": {"sql": "SELECT 1"}, "created_at": NOW}
    queries.submit(SubmittedQuery(id=QUERY, submitted_by="ann", kept_s=60.0, statement="SELECT 1", **asked))
    attempt = QueryAttempt(number=1, token="x", where=place, updated_at=NOW)
    queries.claim(QUERY, attempt)
    queries.release(QUERY, attempt)
    queries.end(QUERY, QueryEnd(state="completed", ended_at=NOW))
    target = lakebed.storage.connect(str(root / f"queries/{QUERY}/rows"))
    publication.publish(target, {"export": "e", "files": [["part-0", 3, 99, "0" * 32]]}, "e")
    with Pin(storage, table.id) as pin:
        pin.put(table.version)
        yield Lake(root, lake, table)


def entries_of(log: Any) -> list[Any]:
    return [entry.decode(log.backend.get(v), log.identity, v, None) for v in sorted(log.backend.versions())]


def hooks_of(made: Lake) -> list[Any]:
    found = list(read_hooks(made.lake.storage, {}))
    for one in found:
        if isinstance(one, DamagedHook):
            raise DamagedError(one.error, code=lakebed.errors.Code.DOCUMENT_DAMAGED)
    return found


def delivered(made: Lake) -> Any:
    names = [one.name for one in made.lake.storage.list("hooks")]
    (hook_id,) = [found for name in names if (found := hook_of_delivered(name))]
    return read_delivered(made.lake.storage, hook_id)[0]


def query_documents(made: Lake) -> Any:
    queries = QueryObjects(made.lake.storage)
    return msgspec.structs.replace(queries.state(queries.query(QUERY)), expires_at=None), queries.query(QUERY)


def released(made: Lake) -> Any:
    """Only its name counts."""
    return [one.is_waiting(NOW) for one in QueryObjects(made.lake.storage).found()]


def rows(made: Lake) -> Any:
    return publication.read_published(lakebed.storage.connect(str(made.root / f"queries/{QUERY}/rows")))


def run_records(made: Lake) -> Any:
    return [one.runs for one in read_newest_first(made.lake.storage)]


def session_key(made: Lake) -> Any:
    return SealedSessions(made.lake.storage)._read_key().as_dict()


def retained(made: Lake) -> Any:
    """By the names of the folders, so that a damaged one is not left out."""
    folder = made.root / f"tables/{made.table.id}/checkpoints"
    return [made.log().retained.read(int(one.name)) for one in sorted(folder.iterdir()) if one.name.isdigit()]


READERS: dict[str, Callable[[Lake], Any]] = {
    "instance.json": lambda made: (made.opened().id, made.opened().url),
    "access/tokens/*.json": lambda made: tokens_of(made.lake.storage),
    "access/roles/*.json": lambda made: roles_of(made.lake.storage),
    "access/keys/*.json": lambda made: access_keys.access_keys_of(made.lake.storage),
    "access/access-key-secret.json": lambda made: access_keys.instance_secret(made.lake.storage),
    "access/session-key.json": session_key,
    "catalog/log/*.ndjson": lambda made: entries_of(made.opened().catalog_log()),
    "catalog/checkpoints/latest/manifest.ndjson": lambda made: made.opened().catalog_log().checkpoints.read_whole(),
    "tables/*/log/*.ndjson": lambda made: entries_of(made.log()),
    "tables/*/log/log-start.ndjson": lambda made: made.log().backend.log_start(),
    "tables/*/log/sidecars/*.arrow": lambda made: [made.log().read_sidecars(one) for one in entries_of(made.log())],
    "tables/*/checkpoints/latest/manifest.ndjson": lambda made: made.log().checkpoints.read_whole(),
    "tables/*/checkpoints/latest/segments/*.arrow": lambda made: made.log().checkpoints.read_whole(),
    "tables/*/checkpoints/*/manifest.ndjson": retained,
    "tables/*/checkpoints/*/segments/*.arrow": retained,
    "tables/*/pins/*.json": lambda made: read_pins(made.lake.storage, made.table.id),
    "tables/*/copies/*.json": lambda made: [
        (one.kind, one.url, one.version) for one in read_copies(made.lake.storage, made.table.id)
    ],
    "jobs/runs/*/*.ndjson": run_records,
    "jobs/retries/*.json": lambda made: requested_retries(made.lake.storage),
    "follows/*.json": lambda made: read_record(made.lake.storage, "ann"),
    "followers/*.json": lambda made: read_declared(made.lake.storage, "ann"),
    "queries/*/query.json": query_documents,
    "queries/*/attempt-*.json": query_documents,
    "queries/*/released-*.json": released,
    "queries/*/end.json": query_documents,
    "queries/*/rows/_manifest.json": rows,
    "queries/*/rows/_SUCCESS": rows,
    "hooks/*.json": hooks_of,
    "hooks/*.delivered.json": delivered,
    "tables/*/iceberg/metadata/*.metadata.json": lambda made: latest_metadata(made.lake.storage, made.table.id),
}
ELSEWHERE = {"tables/*/data/*/*.parquet", "tables/*/data/*/*.summary"}
"""Flipped in test_flips, through every interface."""

OF_ICEBERG = {"tables/*/iceberg/metadata/version-hint.text", "tables/*/iceberg/parts/*"}
"""Objects of Iceberg, whose specification has no digests of them."""


def kind_of(name: str) -> str | None:
    """The most special pattern that the name of an object matches."""
    fitting = [
        kind
        for kind in (*READERS, *ELSEWHERE, *OF_ICEBERG)
        if re.fullmatch(re.escape(kind).replace(r"\*", "[^/]+"), name)
    ]
    return max(fitting, key=lambda kind: (-kind.count("*"), len(kind)), default=None)


def test_every_kind_of_object_has_a_reader_here(made: Lake) -> None:
    """Those that exist, and those that the specification lists."""
    kinds = {name: kind_of(name) for name in objects(made.root)}
    assert [name for name, kind in kinds.items() if kind is None] == []
    assert set(READERS) <= set(kinds.values())
    listed = re.findall(r"^\| `([^|]*)` \|", FORMAT.read_text().partition("### 1.1")[0], re.MULTILINE)
    names = [re.sub(r"<[^>]*>|ID|NAME", "x", name) for cell in listed for name in cell.split("`, `")]
    assert len(names) > 15
    for name in names:
        assert kind_of(name) or name.endswith("…"), f"{name} has no reader"


@contextmanager
def flipped(path: Path, bit: int) -> Iterator[None]:
    """The bit of the file is flipped inside the block; times stay, which tell how old an object is."""
    data, stat = path.read_bytes(), path.stat()
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    try:
        path.write_bytes(changed)
        yield
    finally:
        path.write_bytes(data)
        import os

        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def findings(made: Lake, kind: str, count: int | None) -> tuple[list[str], int]:
    """The flips that changed the meaning without an error, and how many were reported."""
    read = READERS[kind]
    expected, found, reported = read(made), [], 0
    chance = random.Random(SEED)
    for name, path in objects(made.root).items():
        if kind_of(name) != kind:
            continue
        bits = range(path.stat().st_size * 8)
        for bit in bits if count is None else sorted(chance.sample(bits, min(count, len(bits)))):
            with flipped(path, bit):
                try:
                    got = read(made)
                except (DamagedError, UnsupportedFormatError):
                    reported += 1
                    continue
                except Error as error:
                    found.append(f"{name} bit {bit}: {type(error).__name__}: {error}")
                    continue
            if got != expected:
                found.append(f"{name} bit {bit}: {str(got)[:200]}")
    return found, reported


@pytest.mark.parametrize("kind", READERS)
def test_no_flipped_bit_changes_what_an_object_means(made: Lake, kind: str) -> None:
    amiss, reported = findings(made, kind, SAMPLE // 5 if "manifest" in kind or "log" in kind else SAMPLE)
    assert amiss == []
    assert reported or kind in ("jobs/retries/*.json", "queries/*/released-*.json", "queries/*/rows/_SUCCESS")


@pytest.mark.slow
@pytest.mark.parametrize("kind", READERS)
def test_no_flipped_bit_of_all_changes_what_an_object_means(made: Lake, kind: str) -> None:
    amiss, _ = findings(made, kind, None)
    assert amiss == []


def test_a_document_without_a_digest_is_refused(made: Lake) -> None:
    """An object from before there were digests, or from another hand, gives no rights."""
    (path,) = [path for name, path in objects(made.root).items() if kind_of(name) == "access/roles/*.json"]
    data = path.read_bytes()
    members = msgspec.json.decode(data)
    with suppress(KeyError):
        del members["digest"]
    try:
        path.write_bytes(msgspec.json.encode(members) + b"\n")
        with pytest.raises(DamagedError, match="lakebed role drop clerk"):
            roles_of(made.lake.storage)
    finally:
        path.write_bytes(data)
