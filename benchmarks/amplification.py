"""The cost of a day of steady ingest under each compaction strategy, simulated with the real planner and state.

    python -m benchmarks.amplification [--batches 1000] [--gigabytes 100]

No row is written: batches of random keys (or, last, of keys that grow with time) are added one after another, each as
one file that reaches all partitions of its keys. After each batch, the planned compactions are carried out, and
partitions above their limits are split. ``full`` runs only ten times a day. Printed for each strategy, with default
settings:

* write amplification: bytes written, by ingest and compaction, for each ingested byte;
* space amplification: the maximum of bytes on storage for each byte in the table, where files are deleted 15 minutes
  after their last reference (with a history of a day no file is deleted, and it equals the write amplification);
* runs that a query merges in a partition, mean and maximum over the day; files of a partition at the end.
"""

from __future__ import annotations

import argparse
import itertools
from dataclasses import dataclass, field
from statistics import mean

from lakebed import Schema
from lakebed.model.files import DataFile, NewFile
from lakebed.model.key_summaries import Summary
from lakebed.model.keys import EncodedRange
from lakebed.model.settings import Settings, Strategy
from lakebed.model.state.sums import partition_sums
from lakebed.model.state.table_state import Job, TableState
from lakebed.model.state.transactions import (
    ConcatenateRuns,
    CreateTable,
    OpenJob,
    Proposal,
    ProposeFiles,
    ProposeOutput,
    ProposeSplit,
    PurgeFiles,
    Rejected,
    Repeated,
    RetireFiles,
    TooOld,
    apply,
    resolve,
)
from lakebed.upkeep.compaction.plan import PartitionMerge, plan
from lakebed.upkeep.splitting.plan import due

ROW_BYTES = 80
KEYS = 2**62
"""Keys are uniform below this number."""
DAY_S, GC_DELAY_S = 86_400, 900
FULL_TIMES = 10


@dataclass(slots=True)
class Day:
    """A table to which batches are added. A file has ``noted`` keys in its summary; ``merges`` were
    carried out.
    """

    strategy: Strategy
    settings: Settings = field(default_factory=Settings)
    state: TableState = field(default_factory=TableState)
    came_bytes: int = 0
    written_bytes: int = 0
    stored_bytes: int = 0
    most_space: float = 0.0
    runs: list[float] = field(default_factory=list)
    most_runs: int = 0
    summaries: dict[str, Summary] = field(default_factory=dict)
    gone: list[tuple[int, str, int]] = field(default_factory=list)
    ids: itertools.count[int] = field(default_factory=itertools.count)
    noted: int = 64
    merges: int = 0

    def proposal(self, proposal: Proposal) -> None:
        found = resolve(proposal, self.state)
        assert not isinstance(found, Rejected | Repeated | TooOld), found
        self.state = apply(self.state, found, self.state.version + 1)

    def file(self, low: int, high: int, size_bytes: int, run: str) -> NewFile:
        """Return a file whose keys are uniform between the two."""
        rows, name = max(2, size_bytes // ROW_BYTES), f"f{next(self.ids)}"
        size_bytes = max(1, size_bytes)
        count = min(rows, self.noted, high - low)
        noted = sorted({low + (high - low) * part // count for part in range(count)})
        keys = [CODEC.encode_key((key,)) for key in (*noted, high - 1)]
        ranks = tuple(rows * part // count for part in range(count))
        summary = Summary(tuple(keys[:-1]), ranks, rows, keys[-1])
        self.summaries[name] = summary
        self.written_bytes += size_bytes
        self.stored_bytes += size_bytes
        file = DataFile(name, "job-of-it", rows, size_bytes, keys[0], keys[-1], 1, 0, "digest", 8, "footer")
        return NewFile(file, summary, run)

    def ingest(self, batch: int, low: int, high: int, size_bytes: int) -> None:
        self.came_bytes += size_bytes
        self.proposal(ProposeFiles((self.file(low, high, size_bytes, f"batch-{batch}"),)))

    def compact(self) -> None:
        while (found := plan(self.state, self.settings, self.strategy)).merges or found.concatenations:
            for link in found.concatenations:
                self.proposal(ConcatenateRuns(link.partition, link.files, f"chain-{self.state.version}"))
            for merge in found.merges:
                self.merge(merge)

    def merge(self, merge: PartitionMerge) -> None:
        name = f"job-{self.state.version}"
        self.merges += 1
        self.proposal(OpenJob(Job(name, merge.keys, tuple(file.id for file in merge.inputs), "", 60, 0)))
        low, high = bounds(merge.keys, merge)
        # A slice may be estimated to have no byte.
        count = max(1, -(-merge.size_bytes // self.settings.file_bytes))
        edges = [low + (high - low) * part // count for part in range(count + 1)]
        parts = [self.file(a, b, merge.size_bytes // count, name) for a, b in itertools.pairwise(edges)]
        self.proposal(ProposeOutput(name, tuple(parts)))
        for file in merge.inputs:
            if not self.state.files[file.id].references:
                self.gone.append((len(self.runs), file.id, file.size_bytes))

    def split(self) -> None:
        for large in due(self.state, self.settings).large:
            low, high = span(large.keys)
            keys = [CODEC.encode_key((low + (high - low) * part // large.parts,)) for part in range(1, large.parts)]
            self.proposal(
                ProposeSplit({large.partition: tuple(keys)}, {f.id: self.summaries[f.id] for f in large.files})
            )

    def end_batch(self, delay_batches: float) -> None:
        """Record the current figures, then delete files that have been without a reference for long enough."""
        sums = partition_sums(self.state).values()
        self.runs.append(mean(one.runs for one in sums))
        self.most_runs = max(self.most_runs, *(one.runs for one in sums))
        self.most_space = max(self.most_space, self.stored_bytes / self.came_bytes)
        old = [one for one in self.gone if one[0] + delay_batches < len(self.runs)]
        if old:
            names = tuple(name for _, name, _ in old)
            self.proposal(RetireFiles(names))
            self.proposal(PurgeFiles(names))
            self.gone = self.gone[len(old) :]
            self.stored_bytes -= sum(size_bytes for _, _, size_bytes in old)
            for name in names:
                del self.summaries[name]


SCHEMA = Schema({"key": "int64"})
CODEC = SCHEMA.codec


def span(keys: EncodedRange) -> tuple[int, int]:
    """Return the numbers of a range."""
    low = CODEC.decode_bound(keys.min).values
    high = () if keys.max is None else CODEC.decode_bound(keys.max).values
    return (int(low[0]) if low else 0), (int(high[0]) if high else KEYS)


def bounds(keys: EncodedRange, merge: PartitionMerge) -> tuple[int, int]:
    """Return the range from the least to after the greatest key that the inputs have inside the partition."""
    low, high = span(keys)
    ends = [span(EncodedRange(file.min_key, file.max_key)) for file in merge.inputs]
    return max(low, min(a for a, _ in ends)), min(high, max(b for _, b in ends) + 1)


def simulated(strategy: Strategy, batches: int, total_bytes: int, *, growing: bool) -> Day:
    """Simulate a day under the strategy."""
    day = Day(strategy)
    day.proposal(CreateTable("simulated", SCHEMA, {}, ()))
    for batch in range(batches):
        low, high = (KEYS * batch // batches, KEYS * (batch + 1) // batches) if growing else (0, KEYS)
        day.ingest(batch, low, high, total_bytes // batches)
        if strategy is not Strategy.FULL or (batch + 1) % max(1, batches // FULL_TIMES) == 0:
            day.compact()
        day.split()
        day.end_batch(GC_DELAY_S * batches / DAY_S)
    return day


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=1000)
    parser.add_argument("--gigabytes", type=int, default=100)
    args = parser.parse_args()
    print(f"{args.batches} batches, {args.gigabytes} GB in a day")
    print(
        "keys     strategy    write amp.  space amp.  runs in a partition, mean / most  partitions  files in a "
        "partition"
    )
    kept = 0.0
    for growing, strategy in [*((False, one) for one in Strategy), (True, Strategy.SIZE_RATIO)]:
        day = simulated(strategy, args.batches, args.gigabytes * 10**9, growing=growing)
        write = day.written_bytes / day.came_bytes
        kept = write if (growing, strategy) == (False, Strategy.SIZE_RATIO) else kept
        files = mean(one.files for one in partition_sums(day.state).values())
        print(
            f"{'growing' if growing else 'random':<8} {strategy:<12} {write:9.2f} {day.most_space:11.2f} "
            f"{mean(day.runs):20.1f} / {day.most_runs:<4} {len(day.state.partitions):10} {files:16.1f}",
            flush=True,
        )
    print(f"write amplification of size-ratio: {kept:.2f} (under 6)")


if __name__ == "__main__":
    main()
