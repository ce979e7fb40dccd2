"""A table beside a plain list of its rows at every version, and what a consumer does with a feed."""

import ast
import contextlib
import json
import random
from collections import Counter

import pyarrow as pa

import lakebed
from lakebed import Schema, clock
from lakebed.log.outcomes import Committed
from lakebed.log.queue import Ticket
from lakebed.model.state.transactions import ProposeSplit
from lakebed.upkeep.retention.run import collect_garbage
from lakebed.upkeep.splitting.run import join
from tests.tables.cases import compact_partition, rewritten

SCHEMA = Schema({"k": "string", "n": "int64"}, {"s": "int64"}, {"v": "string", "f": "float64"})
SMALL = {"page_rows": 100, "row_group_rows": 1000}
TEXTS = ["", "a", "a\0", "ab", "b", "ü", "😀"]
NUMBERS = range(-2, 6)


@contextlib.contextmanager
def one_entry(table):
    """All that is committed inside becomes one entry of the log, as if the callers had waited at the same time."""
    log, tickets = table.log, []

    def wait(proposal):
        tickets.append(Ticket(proposal))
        return Committed(log.head.version)

    log.commit = wait
    try:
        yield
    finally:
        del log.commit
    if tickets and (put := log.local._commit_group(tickets)) is not None:
        log.local._report_proven(put)


class Past:
    """A table, and its rows at each version."""

    def __init__(self, schema=SCHEMA, **settings):
        lake = lakebed.create(f"memory://{clock.random_token()}")
        self.table = lake.create_table("t", schema, settings=SMALL | settings)
        self.rows = {0: Counter(), self.table.version: Counter()}

    def do(self, *steps):
        """Do the steps, in one entry if they are several; a collection commits entries of its own."""
        before = self.table.version
        with one_entry(self.table) if len(steps) > 1 else contextlib.nullcontext():
            for what, *how in steps:
                getattr(self, what)(*how)
        version = self.table.state().version
        self.rows[version] = self.now()
        for between in range(before + 1, version):
            # A collection may delete what the versions of its own step need.
            with contextlib.suppress(lakebed.NotRetainedError):
                self.rows[between] = counted(self.table.at(version=between).to_arrow())

    def now(self):
        return counted(self.table.to_arrow())

    def write(self, seed, count):
        """Few different rows, so that many are the same."""
        chance = random.Random(seed)
        floats = [0.0, -0.0, 1.5, float("nan"), None]
        rows = [
            {
                "k": chance.choice(TEXTS),
                "n": chance.choice(NUMBERS),
                "s": chance.randrange(2),
                "v": chance.choice(["x", "y", None]),
                "f": chance.choice(floats),
            }
            for _ in range(count)
        ]
        self.table.write(pa.Table.from_pylist(rows, SCHEMA.arrow))

    def remove(self, *keys):
        self.table.remove(*keys)

    def split(self, key):
        partitions, encoded = self.table.state().partitions, SCHEMA.codec.encode(key)
        if encoded not in partitions.boundaries:
            self.table.commit(ProposeSplit({partitions.ids[partitions.position(encoded)]: (encoded,)}))

    def join(self):
        join(self.table)

    def compact(self, position):
        compact_partition(self.table, position)

    def rewrite(self, delete_where, text):
        rewritten(self.table, delete_where=delete_where, set={"v": text}, where="s = 1")

    def collect(self):
        collect_garbage(self.table)

    def restore(self, back):
        """To one of the last versions that are retained."""
        state = self.table.state()
        retained = [version for version in range(1, state.version + 1) if state.retains(version)]
        self.table.restore(version=retained[max(0, len(retained) - 1 - back)])


def counted(rows):
    """How often each row is there; floats by their bits."""
    names = rows.column_names
    return Counter(tuple((name, repr(row[name])) for name in names) for row in rows.select(names).to_pylist())


def applied(rows, feed, key=SCHEMA.row_key_names):
    """What a consumer of the feed makes of rows: those that are there after it."""
    rows = Counter(rows)
    for one in feed.to_pylist():
        kind, keys = one.pop("_change"), one.pop("_range")
        del one["_version"]
        row = tuple((name, repr(value)) for name, value in one.items())
        match kind:
            case "insert" | "update_after":
                rows[row] += 1
            case "delete" | "update_before":
                assert rows[row] > 0, f"{row} was not there"
                rows[row] -= 1
            case "remove_range":
                assert set(one.values()) == {None}
                rows = Counter({row: count for row, count in rows.items() if not lies_in(row, json.loads(keys), key)})
    return +rows


def lies_in(row, keys, key):
    """As a consumer reads the bounds: by the values of the first key fields."""
    values = [ast.literal_eval(text) for name, text in row if name in key]
    low, high = keys["min"], keys["max"]
    if low is not None and values[: len(low)] < low:
        return False
    if high is None:
        return True
    return values[: len(high)] <= high if keys["max_inclusive"] else values[: len(high)] < high
