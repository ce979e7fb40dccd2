"""Rows by indexed fields beside a dictionary, while processes change and index a table, and are killed.

``python -m tests.adversarial.indexed_soak [--operations 1000000] [--minutes 90] [--seed 1] [--folder …]`` prints what
it did every minute, and at the end; it exits with 1 after a wrong row, and if a kind of operation was too rare.

Two writers upsert, write in part and delete rows of the same keys. A changer removes ranges, restores versions and
rewrites rows of keys that only it writes. A maintainer compacts, splits, joins and collects the table and two indexes,
and two refreshers feed these. Each is a process, which is killed at random and started again.

The dictionary follows the log of the table. Of a transaction it takes the order alone: what a write does follows from
its commit id, and what a change does from the ledger of the changer (:mod:`tests.adversarial.torture`). Rows are then
read by the values of indexed fields, at this version and at older ones. An operation is a transaction of the table or
of an index, or one such read.

Workers wait for the dictionary when they are far ahead of it.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

import lakebed
from lakebed import KeyRange, Latest, Schema
from lakebed.errors import Code, Error, NotRetainedError, UsageError
from lakebed.model.settings import Strategy
from lakebed.model.state.transactions import AddFiles, ProposeJoin, ProposeSplit, RemoveRange, Replace, RestoreVersion
from lakebed.read.rows.second_key import answers, as_of, uncovered
from lakebed.table.instance import Instance
from lakebed.table.table import Table
from lakebed.upkeep.compaction.plan import CompactionLimits
from lakebed.upkeep.compaction.run import compact, prepare, run_merge_task
from lakebed.upkeep.index_feed import feed_index
from lakebed.upkeep.retention.run import collect_garbage
from lakebed.upkeep.splitting.run import split
from tests.adversarial.torture import AGAIN, begun_and_done, note
from tests.orphans import delete_orphans
from tests.tables.cases import rewritten

SCHEMA = Schema({"n": "int64"}, values={"a": "int32", "b": "string"})
INDEXES = {"by_a": ["a"], "by_b_a": ["b", "a"]}
SETTINGS = {
    "history_s": 2,
    "orphan_age_s": 30,
    "log_s": 600,
    "split_rows": 300,
    "compaction_batch_runs": 4,
}
KEYS = 300
OWN_KEYS = range(1000, 1040)
"""Keys that only the changer writes: a rewrite of others would depend on what is written while it runs."""

VALUES_A, VALUES_B = 150, "fmxz"
AHEAD_MAX = 40
"""Versions by which workers may be ahead of the dictionary."""

WRITTEN_AHEAD_MAX = 8
"""Versions by which those that write may be: else files come sooner than they are indexed and compacted, and nearly all
reads are of files that no index has."""

KEPT = 60
"""Versions whose rows are kept, to read and to restore them."""

READS = 1_000
"""Reads at each version at which the dictionary stops."""

SCANS = 20
"""Reads at such a version by an index that is not in use, since each of them reads all rows."""

KILL_OPERATIONS = 1_000
"""Operations from one kill to the next, on average: a slow machine has no more of them, and a worker takes a second of
CPU to start."""

Row = tuple[int | None, str | None]
Rows = dict[int, Row]


@dataclass(frozen=True, slots=True)
class Config:
    """Where the instance is, and the ledgers."""

    url: str
    folder: str

    @property
    def stop(self) -> Path:
        """The file that tells workers to stop."""
        return Path(self.folder, "stop")

    @property
    def checked(self) -> Path:
        """The file with the version of the dictionary."""
        return Path(self.folder, "checked")

    def ledger(self, name: str) -> Path:
        return Path(self.folder, f"{name}.ledger")

    def turns(self, table: Table, ahead_max: int) -> Iterator[None]:
        """Turns of a worker, until it has to stop."""
        while not self.stop.exists():
            if table.state().version > int(self.checked.read_text() or 0) + ahead_max:
                time.sleep(0.05)
                continue
            yield


# -- what a commit id means --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Written:
    """Rows that are written: whole, with some of the fields, or deletes."""

    keys: list[int]
    values: list[dict[str, Any]]
    deletes: bool = False

    def to_arrow(self) -> pa.Table:
        names = list(self.values[0])
        schema = pa.schema([SCHEMA.arrow.field(name) for name in ("n", *names)])
        return pa.table([self.keys, *([row[name] for row in self.values] for name in names)], schema=schema)

    def apply(self, rows: Rows) -> None:
        for key, values in zip(self.keys, self.values, strict=True):
            if self.deletes:
                rows.pop(key, None)
                continue
            a, b = rows.get(key, (None, None))
            rows[key] = values.get("a", a), values.get("b", b)


def written_by(commit_id: str) -> Written:
    """Return what a commit id writes, always the same."""
    chance = random.Random(commit_id)
    own = commit_id.startswith("c")
    count = 60 if chance.random() < 0.05 else chance.randint(1, 6)
    keys = chance.sample(OWN_KEYS if own else range(KEYS), min(count, len(OWN_KEYS)))
    values = [
        {
            "a": None if chance.random() < 0.05 else chance.randrange(VALUES_A),
            "b": None if chance.random() < 0.05 else chance.choice(VALUES_B),
        }
        for _ in keys
    ]
    kind = "whole" if own else chance.choices(["whole", "partial", "delete"], [6, 3, 2])[0]
    if kind == "partial":
        name = chance.choice("ab")
        values = [{name: row[name]} for row in values]
    return Written(keys, values, deletes=kind == "delete")


def changed_by(number: int) -> dict[str, Any]:
    """Return what the changer does under a number, always the same."""
    chance = random.Random(f"change {number}")
    kind = chance.choices(["write", "remove", "restore", "raise", "rewrite away"], [10, 4, 3, 3, 1])[0]
    low = chance.randrange(KEYS)
    return {
        "kind": kind,
        "low": low,
        "high": low + chance.randint(1, 20),
        "back": chance.randint(1, 12),
        "rest": chance.randrange(7),
    }


def applied(change: Mapping[str, Any], rows: Rows, restored: Rows | None) -> Rows:
    """Return the rows after a change that is no write."""
    own = {key for key in rows if key in OWN_KEYS and key % 7 == change["rest"]}
    match change["kind"]:
        case "remove":
            return {key: row for key, row in rows.items() if not change["low"] <= key < change["high"]}
        case "restore":
            assert restored is not None, "the dictionary keeps what may be restored"
            return dict(restored)
        case "raise":
            return {key: (a + 1 if key in own and a is not None else a, b) for key, (a, b) in rows.items()}
        case "rewrite away":
            return {key: row for key, row in rows.items() if key not in own}
        case other:
            raise AssertionError(f"{other} is no change")


# -- workers -----------------------------------------------------------------------------------------------------------


def write(name: str, config: Config, lake: Instance) -> None:
    ledger, table = config.ledger(name), lake["t"]
    begun, done = begun_and_done(ledger)
    for commit_id in begun:
        if commit_id not in done:
            _write_until_done(table, ledger, commit_id)
    count = len(begun)
    for _ in config.turns(table, WRITTEN_AHEAD_MAX):
        commit_id = f"{name}-{count}"
        note(ledger, "begin", commit_id)
        _write_until_done(table, ledger, commit_id)
        count += 1


def _write_until_done(table: Table, ledger: Path, commit_id: str) -> None:
    one = written_by(commit_id)
    while True:
        try:
            if one.deletes:
                version = table.delete([(key,) for key in one.keys], commit_id=commit_id).version
            else:
                partial = len(one.values[0]) < len(SCHEMA.values)
                version = table.write(one.to_arrow(), commit_id=commit_id, partial=partial)
        except AGAIN:
            time.sleep(0.02)
        else:
            note(ledger, "done", commit_id, version)
            return


def change(name: str, config: Config, lake: Instance) -> None:
    """Each change is recorded before it is made, with the version that is known, and never made again."""
    ledger, table = config.ledger(name), lake["t"]
    count = len(ledger.read_text().splitlines()) if ledger.exists() else 0
    for _ in config.turns(table, WRITTEN_AHEAD_MAX):
        version = table.state().version
        note(ledger, count, version)
        wanted = changed_by(count)
        rest = f"n >= {OWN_KEYS.start} AND n % 7 = {wanted['rest']}"
        with suppress(*AGAIN, NotRetainedError):
            match wanted["kind"]:
                case "write":
                    table.write(written_by(f"{name}-{count}").to_arrow(), commit_id=f"{name}-{count}")
                case "remove":
                    table.remove(KeyRange(wanted["low"], wanted["high"]))
                case "restore":
                    if version > wanted["back"]:
                        table.restore(version=version - wanted["back"])
                case kind:
                    how = {"delete_where": rest} if kind == "rewrite away" else {"set": {"a": "a + 1"}, "where": rest}
                    try:
                        rewritten(table, **how)
                    except UsageError as error:
                        if error.code is not Code.MERGE_MODE_MISMATCH:
                            raise
        count += 1


def maintain(name: str, config: Config, lake: Instance) -> None:
    chance, source = random.Random(f"{name} {time.time_ns()}"), lake["t"]
    for _ in config.turns(source, AHEAD_MAX):
        table = lake.table(chance.choice(["t", *INDEXES]))
        with suppress(*AGAIN, NotRetainedError):
            chance.choice(STEPS)(table, chance)


def _compact(table: Table, chance: random.Random) -> None:
    with tempfile.TemporaryDirectory() as scratch:

        def execute(tasks: Any) -> list[Any]:
            made: list[Any] = []
            for task in tasks:
                try:
                    made.append(run_merge_task(task, table.storage, Path(scratch)))
                except Error as error:
                    made.append(error)
            return made

        strategy = chance.choice(list(Strategy))
        compact(table, prepare(table, strategy, CompactionLimits(references_min=2)), execute, cores=1)


def _split(table: Table, chance: random.Random) -> None:
    if chance.random() < 0.5 or len(table.state().partitions.ids) > 8:
        split(table)
        return
    values = [chance.choice([chance.randrange(KEYS), *OWN_KEYS])]
    if table.name == "by_a":
        values = [chance.randrange(VALUES_A), *values]
    if table.name == "by_b_a":
        values = [chance.choice(VALUES_B), chance.randrange(VALUES_A), *values]
    encoded = table.schema.codec.encode_key(values)
    partitions = table.state().partitions
    table.try_commit(ProposeSplit({partitions.ids[partitions.position(encoded)]: (encoded,)}))


def _join(table: Table, chance: random.Random) -> None:
    ids = table.state().partitions.ids
    place = chance.randrange(len(ids))
    table.try_commit(ProposeJoin(ids[place : place + 2]))


STEPS = (
    _compact,
    _compact,
    _split,
    _join,
    lambda table, _: collect_garbage(table),
    lambda table, _: delete_orphans(table, force=True),
)


def refresh(name: str, config: Config, lake: Instance) -> None:
    chance, source = random.Random(f"{name} {time.time_ns()}"), lake["t"]
    for _ in config.turns(source, AHEAD_MAX):
        time.sleep(chance.choice([0, 0, 0.2]))
        with suppress(*AGAIN, NotRetainedError):
            index = lake.table(chance.choice([*INDEXES]))
            feed_index(index, source, anew=chance.random() < 0.05, part_rows=chance.choice([1, 30, 10**6]))


ROLES = {"write": write, "change": change, "maintain": maintain, "refresh": refresh}
WORKERS = {"w0": "write", "w1": "write", "c0": "change", "m0": "maintain", "r0": "refresh", "r1": "refresh"}


# -- the dictionary ----------------------------------------------------------------------------------------------------


@dataclass
class Dictionary:
    """The rows at each of the last versions of a table, by its log and the ledger of the changer."""

    config: Config
    table: Table
    rows: dict[int, Rows] = field(default_factory=dict)
    version: int = 0
    seen: Counter[str] = field(default_factory=Counter)
    events: deque[str] = field(default_factory=lambda: deque(maxlen=KEPT))

    def __post_init__(self) -> None:
        self.version = self.table.state().version
        self.rows[self.version] = {}
        self._head = self.table.log.at(self.version)

    def follow(self) -> None:
        """Go on to the latest version."""
        latest = self.table.state().version
        for head, steps in self.table.log.past.after(self._head, latest):
            rows, rewrites = dict(self.rows[self._head.version]), 0
            for transaction, _ in steps:
                self.seen[type(transaction).__name__] += 1
                # A rewrite has a transaction for each file.
                rewrites += isinstance(transaction, Replace) and transaction.changes_rows
                if not isinstance(transaction, Replace) or rewrites == 1:
                    rows = self._after(transaction, rows, head.version)
                self.events.append(f"{head.version}: {str(transaction)[:400]}")
            self.rows[head.version] = rows
            self._head = head
        self.version = latest
        for old in [old for old in self.rows if old < latest - KEPT - AHEAD_MAX]:
            del self.rows[old]

    def _after(self, transaction: Any, rows: Rows, version: int) -> Rows:
        match transaction:
            case AddFiles(request_key=None):
                raise AssertionError(f"version {version} adds files of no writer")
            case AddFiles(request_key=str(commit_id)):
                written_by(commit_id).apply(rows)
            case RemoveRange():
                rows = applied(self._change(version, "remove"), rows, None)
            case RestoreVersion():
                change = self._change(version, "restore")
                rows = applied(change, rows, self.rows[change["version"] - change["back"]])
            case Replace(changes_rows=True):
                rows = applied(self._change(version, "raise", "rewrite away"), rows, None)
            case _:
                pass
        return rows

    def _change(self, version: int, *kinds: str) -> dict[str, Any]:
        """Return the change that made a version: it was begun before, and the next one was not."""
        lines = [line.split() for line in self.config.ledger("c0").read_text().splitlines()]
        begun = [(int(number), int(known)) for number, known in lines if int(known) < version]
        number, known = begun[-1]
        change = changed_by(number) | {"version": known}
        self.events.append(f"{version}: change {number}: {change}")
        assert change["kind"] in kinds, f"version {version} is no {kinds}, but change {number}: {change}"
        return change


def as_found(rows: pa.Table) -> list[tuple[Any, ...]]:
    return [(row["n"], row["a"], row["b"]) for row in rows.to_pylist()]


class Reads:
    """Reads by values, compared with the dictionary."""

    def __init__(self, lake: Instance, chance: random.Random) -> None:
        self.lake, self.chance = lake, chance
        self.done: Counter[str] = Counter()

    def compare(self, snapshot: Any, rows: Rows, count: int) -> None:
        """Compare some reads of a snapshot that has these rows: fewer by an index that is not in use."""
        reads: list[tuple[tuple[str, ...], dict[Any, list[tuple[Any, ...]]]]] = []
        for name, fields in INDEXES.items():
            names = tuple(fields)
            held: dict[Any, list[tuple[Any, ...]]] = defaultdict(list)
            for key in sorted(rows):
                a, b = rows[key]
                held[(a,) if names == ("a",) else (b, a)].append((key, a, b))
            view = self.lake.table(name).state().view
            assert view is not None
            in_use = answers(as_of(view, snapshot.version), snapshot.state)
            reads += [(names, held)] * (count // len(INDEXES) if in_use else SCANS)
        self.chance.shuffle(reads)
        for names, held in reads:
            values: tuple[Any, ...] = (self.chance.choice(VALUES_B), self.chance.randrange(VALUES_A))[-len(names) :]
            if held and self.chance.random() < 0.7:
                values = self.chance.choice(list(held))
            if None in values:
                continue
            wanted = held.get(values, [])
            by = dict(zip(names, values, strict=True))
            kind = self.chance.choices(["get", "scan", "count", "where"], [40, 1, 1, 1])[0]
            found = self._read(snapshot, kind, by)
            self.done[kind] += 1
            expected = [row for row in wanted if row[0] < KEYS // 2] if kind == "scan" else wanted
            assert found == (len(wanted) if kind == "count" else expected), (
                f"{kind} by {by} at version {snapshot.version}: found {found}, and the dictionary has {expected}"
            )

    def _read(self, snapshot: Any, kind: str, by: dict[str, Any]) -> Any:
        match kind:
            case "get":
                return as_found(snapshot.get(by=by))
            case "scan":
                return as_found(snapshot.scan(by=by, where=f"n < {KEYS // 2}").read_all())
            case "count":
                return snapshot.count(by=by).rows
        text = " AND ".join(f"{name} = {value!r}" for name, value in by.items())
        return as_found(snapshot.scan(where=text).read_all())

    def note_coverage(self, state: Any) -> None:
        """Count how the indexes stand."""
        for name in INDEXES:
            view = self.lake.table(name).state().view
            assert view is not None
            assert view.index is not None
            self.done["parts of a feed that died or goes on"] += bool(view.index.files)
            if answers(view, state):
                self.done["index up to date" if not uncovered(state, view) else "index late"] += 1
            else:
                self.done["index not in use"] += 1


# -- the coordinator ---------------------------------------------------------------------------------------------------


class Soak:
    """Workers that are killed one after another, and the dictionary beside them."""

    def __init__(self, config: Config, seed: int) -> None:
        self.config, self.chance = config, random.Random(seed)
        lake = lakebed.create(config.url)
        lake.create_table("t", SCHEMA, merge=Latest(), settings=SETTINGS)
        for name, fields in INDEXES.items():
            lake.create_index(name, table="t", on=fields, settings=SETTINGS)
        config.checked.write_text("1")
        self.dictionary = Dictionary(config, lakebed.open(config.url)["t"])
        self.reads = Reads(lake, self.chance)
        self.versions: dict[str, int] = dict.fromkeys(INDEXES, 1)
        self.kills: Counter[str] = Counter()
        self.gone = 0
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def operations(self) -> int:
        """The transactions and reads so far."""
        reads = sum(self.reads.done[kind] for kind in ("get", "scan", "count", "where"))
        return reads + sum(self.dictionary.seen.values()) + sum(self.versions.values())

    def start(self, name: str) -> None:
        command = [sys.executable, "-m", __spec__.name, "worker", WORKERS[name], name, json.dumps(asdict(self.config))]
        self.running[name] = subprocess.Popen(command, stderr=subprocess.PIPE, cwd=Path(__file__).parents[2])

    def kill(self) -> None:
        name = self.chance.choice(sorted(self.running))
        self.check_alive()
        self.running[name].send_signal(signal.SIGKILL)
        self.running[name].communicate()
        self.kills[WORKERS[name]] += 1
        self.start(name)

    def check_alive(self) -> None:
        for name, worker in self.running.items():
            if worker.poll() is not None:
                raise AssertionError(f"{name} ended by itself: {worker.communicate()[1].decode()[-3000:]}")

    def step(self) -> None:
        """Follow the log, and compare reads of the latest version, and of an older one now and then."""
        dictionary = self.dictionary
        dictionary.follow()
        self.config.checked.write_text(str(dictionary.version))
        if self.chance.random() < 0.02:
            self.reads.lake = lakebed.open(self.config.url)
        versions = [dictionary.version]
        if self.chance.random() < 0.2:
            versions.append(self.chance.choice(list(dictionary.rows)))
        for version in versions:
            try:
                snapshot = self.reads.lake.table("t").at(version=version)
                self.reads.compare(snapshot, dictionary.rows[version], READS)
            except NotRetainedError:
                self.gone += 1
        if self.chance.random() < 0.3:
            self.reads.note_coverage(self.reads.lake.table("t").state())
            self.versions = {name: self.reads.lake.table(name).version for name in INDEXES}
            self.compare_all()

    def compare_all(self) -> None:
        """Compare all rows: a fault that is none of an index is seen here."""
        wanted = [(key, *row) for key, row in sorted(self.dictionary.rows[self.dictionary.version].items())]
        with suppress(NotRetainedError):
            snapshot = self.dictionary.table.at(version=self.dictionary.version)
            assert as_found(snapshot.scan().read_all()) == wanted

    def run(self, operations: int, until_s: float) -> None:
        """Run until a number of operations were done, or until a time."""
        for name in WORKERS:
            self.start(name)
        next_kill, next_note_s = KILL_OPERATIONS, time.monotonic() + 60
        while self.operations < operations and time.monotonic() < until_s:
            self.step()
            if self.operations >= next_kill:
                self.kill()
                next_kill = self.operations + self.chance.randrange(2 * KILL_OPERATIONS)
            if time.monotonic() >= next_note_s:
                print(self.report(), flush=True)
                next_note_s += 60

    def end(self) -> None:
        """Let the workers stop, and compare everything."""
        self.check_alive()
        self.config.stop.touch()
        for name, worker in self.running.items():
            said = worker.communicate(timeout=600)[1].decode()
            assert worker.returncode == 0, f"{name}: {said[-3000:]}"
        self.step()
        for name in [name for name, role in WORKERS.items() if role == "write"]:
            begun, done = begun_and_done(self.config.ledger(name))
            assert set(begun) == done
            assert len(begun) == len(done)
        self.reads.lake = lakebed.open(self.config.url)
        table, rows = self.reads.lake["t"], self.dictionary.rows[self.dictionary.version]
        for _ in range(2):
            self.reads.compare(table.at(version=self.dictionary.version), rows, 20 * READS)
            self.compare_all()
            for name in INDEXES:
                feed_index(self.reads.lake.table(name), table)
        for name in ("t", *INDEXES):
            report = self.reads.lake.table(name).verify(files=True)
            assert report.sound, report

    def close(self) -> None:
        for worker in self.running.values():
            worker.kill()
            worker.communicate()

    def report(self) -> str:
        """What was done so far."""
        counts = self.dictionary.seen | self.reads.done | Counter({f"kill {name}": n for name, n in self.kills.items()})
        counts |= Counter({f"version of {name}": version for name, version in self.versions.items()})
        said = ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items()))
        return f"{self.operations:,} operations: {said}; {self.gone:,} versions were gone"

    @property
    def rare(self) -> list[str]:
        """Return the operations and kills that were too rare: the run proves little about them."""
        versions = sum(self.dictionary.seen.values())
        counts = self.dictionary.seen | self.reads.done
        often = {
            "AddFiles": 0.2, "RemoveRange": 0.005, "RestoreVersion": 0.002, "Replace": 0.01, "SplitPartitions": 0.0005,
            "JoinPartitions": 0.0002, "RetireFiles": 0.001, "get": 1, "scan": 0.02, "count": 0.02, "where": 0.02,
            "index late": 0.0002, "index not in use": 0.0001,
        }  # fmt: skip
        found = [name for name, share in often.items() if counts[name] < max(1, share * versions)]
        return found + [role for role in ROLES if not self.kills[role]]


def soaked(config: Config, *, operations: int, seconds: float, seed: int) -> Soak:
    """Run the soak; raises AssertionError for a wrong row, or for an operation that was too rare."""
    soak = Soak(config, seed)
    try:
        soak.run(operations, time.monotonic() + seconds)
        soak.end()
    except AssertionError as error:
        error.add_note("\n".join(soak.dictionary.events))
        raise
    finally:
        soak.close()
    assert not soak.rare, f"too rare: {soak.rare}; {soak.report()}"
    return soak


def main() -> None:
    if sys.argv[1:2] == ["worker"]:
        role, name, config = sys.argv[2:]
        given = Config(**json.loads(config))
        ROLES[role](name, given, lakebed.open(given.url))
        return
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--operations", type=int, default=1_000_000)
    parser.add_argument("--minutes", type=float, default=90)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**32)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    # Kept after a failure, as evidence.
    folder = Path(tempfile.mkdtemp(prefix=f"lakebed-soak-{options.seed}-", dir=options.folder))
    config = Config(str(folder / "lake"), str(folder))
    soak = soaked(config, operations=options.operations, seconds=60 * options.minutes, seed=options.seed)
    print(soak.report())
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
