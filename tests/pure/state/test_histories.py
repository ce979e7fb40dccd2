"""Random histories: whatever is added, split, joined, removed and compacted in any order, every row is read once."""

from bisect import bisect_left
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed.model.keys import EncodedRange
from lakebed.model.state import codec
from lakebed.model.state.invariants import check_invariants, violations_by
from lakebed.model.state.sums import table_rows
from lakebed.model.state.table_state import Fence, IngestRequest, Source
from lakebed.model.state.transactions import (
    CloseJob,
    ConcatenateRuns,
    OpenJob,
    ProposeFiles,
    ProposeJoin,
    ProposeOutput,
    ProposeRemoval,
    ProposeRestore,
    ProposeSchema,
    ProposeSplit,
    PurgeFiles,
    RaiseWatermark,
    Rejected,
    Repeated,
    RetireFiles,
    SubmitRequests,
    TooOld,
    Watermark,
    apply,
    resolve,
)
from lakebed.model.state.transactions.schema_changes import AddField, AllowNulls, DropField, RenameField, WidenField
from tests.pure.state.cases import job, key, new_file, table, through_an_image

LETTERS = "abcdefghijkl"
NAMES = st.sampled_from("kvw")
CHANGES = st.one_of(
    st.builds(AddField, NAMES, st.sampled_from(["int8", "string"])),
    st.builds(DropField, NAMES),
    st.builds(RenameField, NAMES, NAMES),
    st.builds(WidenField, NAMES, st.sampled_from(["int16", "int64"])),
    st.builds(AllowNulls, NAMES),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("add"),
            st.text(LETTERS, min_size=1, max_size=6),
            st.sets(st.sampled_from(LETTERS), max_size=3),
            st.integers(0, 5),
            st.integers(0, 3),
            st.integers(0, 2),
        ),
        st.tuples(st.just("alter"), CHANGES),
        st.tuples(st.just("submit"), st.sets(st.integers(0, 3), min_size=1)),
        st.tuples(st.just("raise_horizon"), st.integers(0, 30)),
        st.tuples(st.just("split"), st.integers(0, 20), st.sets(st.sampled_from(LETTERS), min_size=1, max_size=3)),
        st.tuples(st.just("join"), st.integers(0, 20), st.integers(2, 3)),
        st.tuples(
            st.just("remove"),
            st.lists(st.tuples(st.sampled_from(LETTERS), st.sampled_from(LETTERS)), min_size=1, max_size=2),
            st.booleans(),
            st.booleans(),
        ),
        st.tuples(st.just("chain"), st.integers(0, 20), st.sets(st.integers(0, 5), min_size=2)),
        st.tuples(st.just("drop"), st.integers(0, 5)),
        st.tuples(st.just("open"), st.integers(0, 20)),
        st.tuples(st.just("commit"), st.integers(0, 5), st.integers(0, 2)),
        st.tuples(st.just("close"), st.integers(0, 5)),
        st.tuples(st.just("collect")),
        st.tuples(st.just("restore"), st.integers(0, 12)),
    ),
    max_size=25,
)

FEW_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.text("abc", min_size=1, max_size=3), *map(st.just, (set("b"), 0, 9, 0))),
        st.tuples(st.just("split"), st.integers(0, 2), st.just({"b"})),
        st.tuples(st.just("join"), st.just(0), st.just(2)),
        st.tuples(st.just("remove"), st.just([("a", "b")]), st.just(value=False), st.booleans()),
    ),
    min_size=1,
    max_size=4,
)


class History:
    """A table state beside the plain contents of its files."""

    def __init__(self):
        self.state = table("f")
        self.contents = {}
        self.written = Counter()
        self.merged = {}
        self.summaries = {}
        self.fences = []
        self.count = 0
        self.past = []

    @property
    def last_modified_us(self):
        """The store's clock, which every horizon was read off."""
        return max(self.count, self.state.orphan_cutoff_us)

    def proposal(self, proposal):
        resolved = resolve(proposal, self.state)
        if isinstance(resolved, Rejected | Repeated | TooOld):
            assert "schema version" not in getattr(resolved, "reason", ""), resolved
            return False
        read = codec.decode_transaction(codec.encode_transaction(resolved).document)
        assert read == resolved
        after = apply(self.state, resolved, self.state.version + 1)
        assert apply(through_an_image(self.state), read, self.state.version + 1) == after
        assert list(violations_by(self.state, after, (resolved,))) == []
        self.state = after
        return True

    def fresh(self, letters, samples, late):
        """A file by a writer that knows an older schema, by that number of changes."""
        self.count += 1
        name = f"f{self.count}"
        self.contents[name] = letters
        version = max(1, len(self.state.schemas) - late)
        new = new_file(name, letters, samples=samples, last_modified_us=self.last_modified_us, version=version)
        self.summaries[name] = new.summary
        return new

    def submit(self, requests):
        """A request that was carried out is never open again, unless it is forgotten."""
        base = self.state.version
        self.proposal(
            SubmitRequests(tuple(IngestRequest.new(f"r{r}", (Source("a", 1, "b"),), base) for r in sorted(requests)), 0)
        )

    def raise_horizon(self, last_modified_us):
        """No file younger than the horizon is refused, and no open job began before it."""
        self.proposal(RaiseWatermark(Watermark.ORPHAN_CUTOFF, last_modified_us))
        assert all(job.began_us >= self.state.orphan_cutoff_us for job in self.state.jobs.values())

    def alter(self, change):
        self.proposal(ProposeSchema((change,)))

    def add(self, letters, samples, age, request, late):
        """Refused only behind a fence that the writer began before and its letters reach over, or as too old."""
        base = max(0, self.state.version - age)
        stopped = [
            fence
            for fence in self.fences
            if base < fence.version and fence.keys.min <= key(max(letters)) and key(min(letters)) < fence.keys.max
        ]
        requests = (f"r{request}",) if f"r{request}" in self.state.open_requests else ()
        if self.proposal(ProposeFiles((self.fresh(letters, samples, late),), None, base, requests)):
            assert not stopped
            assert all(self.state.answered(name) == self.state.version for name in requests)
            self.written.update(letters)
        else:
            assert stopped or base < self.state.request_watermark

    def join(self, position, count):
        position %= len(self.state.partitions)
        self.proposal(ProposeJoin(self.state.partitions.ids[position : position + count]))

    def remove(self, spans, fence, known):
        """With the summaries of all files, or none of them."""
        ranges = tuple(EncodedRange(key(low), key(high)) for low, high in spans)
        summaries = self.summaries if known else {}
        if self.proposal(ProposeRemoval(ranges, fence, summaries)) and fence:
            self.fences += [Fence(keys, self.state.version) for keys in ranges if not keys.empty]
        for letter in list(self.written):
            if any(keys.contains(key(letter)) for keys in ranges):
                del self.written[letter]

    def drop(self, back):
        self.proposal(RaiseWatermark(Watermark.REQUEST_WATERMARK, self.state.version - back))

    def split(self, position, letters):
        partition = self.state.partitions.ids[position % len(self.state.partitions)]
        self.proposal(ProposeSplit({partition: tuple(sorted(map(key, letters)))}))

    def open(self, position):
        position %= len(self.state.partitions)
        keys = self.state.partitions.range_at(position)
        inputs = [r.file for r in self.state.references_of(self.state.partitions.ids[position])]
        name = f"j{self.count}-{self.state.version}"
        if self.proposal(OpenJob(job(name, *inputs, keys=keys, began_us=self.last_modified_us))):
            self.merged[name] = "".join(c for f in inputs for c in self.contents[f] if keys.contains(key(c)))

    def commit(self, index, late):
        """Behind a fence, or if it would lose a field of an input, it is refused."""
        if self.merged:
            name = sorted(self.merged)[index % len(self.merged)]
            letters = self.merged[name]
            job = self.state.jobs.get(name)
            stopped = job and any(f.version >= job.opened and not f.keys.intersect(job.keys).empty for f in self.fences)
            partitions = (
                [self.state.partitions.ids[n] for n in self.state.partitions.overlapping(job.keys)] if job else []
            )
            inputs = [
                f for partition in partitions for f in self.state.files_of(partition) if job and f.id in job.inputs
            ]
            made = (self.fresh(letters, LETTERS[::3], late),) if letters else ()
            if self.proposal(ProposeOutput(name, made)):
                assert not stopped
                assert all(old.schema_version <= new.file.schema_version for old in inputs for new in made)

    def chain(self, position, places):
        """Some files of a partition, if they do not overlap."""
        partition = self.state.partitions.ids[position % len(self.state.partitions)]
        held = [file.id for file in self.state.files_of(partition)]
        chosen = tuple(held[place] for place in sorted(places) if place < len(held))
        if self.proposal(ConcatenateRuns(partition, chosen, f"run-{self.state.version}")):
            assert {one.run for one in self.state.held_by(partition) if one.file.id in chosen} == {
                f"run-{self.state.version - 1}"
            }

    def close(self, index):
        if self.state.jobs:
            self.proposal(CloseJob(sorted(self.state.jobs)[index % len(self.state.jobs)], "given up"))

    def collect(self):
        """Every file that no partition refers to is deleted."""
        loose = tuple(name for name, committed in self.state.files.items() if not committed.references)
        if self.proposal(RetireFiles(loose)):
            self.proposal(PurgeFiles(loose))

    def restore(self, back):
        """To some version before, unless files of it are deleted. Closes the jobs over what changes, and no others."""
        state, written = self.past[max(0, len(self.past) - 1 - back)]
        before = self.state
        if self.proposal(ProposeRestore(state)):
            assert before.retains(state.version)
            partitions, after = before.partitions, self.state.partitions
            gone = [partitions.range_at(n) for n, id_ in enumerate(partitions.ids) if after.position_of(id_) is None]
            left = {name for name, job in before.jobs.items() if all(job.keys.intersect(keys).empty for keys in gone)}
            assert set(self.state.jobs) == left
            self.written = Counter(written)
        else:
            assert written == self.written or not before.retains(state.version)

    def read(self):
        """What queries see: partition by partition, each reference's file inside the partition."""
        seen = Counter()
        for position, partition in enumerate(self.state.partitions.ids):
            keys = self.state.partitions.range_at(position)
            for reference in self.state.references_of(partition):
                inside = [c for c in self.contents[reference.file] if keys.contains(key(c))]
                assert not reference.exact or reference.rows == len(inside), reference
                seen.update(inside)
        return seen


@given(STEPS)
@settings(max_examples=settings.default.max_examples * 3, deadline=None)
def test_every_row_is_read_once_after_any_history(steps):
    """And exact counts are exact, partitions tile the key space, states survive being written down."""
    check(steps)


@given(FEW_STEPS, FEW_STEPS, FEW_STEPS)
@settings(max_examples=settings.default.max_examples * 2, deadline=None)
def test_a_restore_gives_the_rows_of_its_version_and_no_job_brings_others_back(before, between, later):
    """The job is open over files of the version and of after it."""
    back = len(between) + 1 + len(later)
    check([*before, *between, ("open", 0), *later, ("restore", back), ("commit", 0, 0)])


def check(steps):
    history = History()
    for name, *arguments in steps:
        history.past.append((history.state, Counter(history.written)))
        getattr(history, name)(*arguments)
        check_invariants(history.state)
        assert history.read() == history.written
        rows, error_rows = table_rows(history.state)
        assert abs(rows - history.written.total()) <= error_rows
        assert list(history.state.partitions.boundaries) == sorted(set(history.state.partitions.boundaries))
    assert through_an_image(history.state) == history.state


@given(st.text(LETTERS, min_size=1), st.sets(st.sampled_from(LETTERS)), st.sets(st.sampled_from(LETTERS)))
def test_ranks_are_exact_where_they_say_so(letters, samples, asked):
    """And never further off than the rows between two noted keys."""
    summary = new_file("f1", letters, samples=samples).summary
    rows = sorted(map(key, letters))
    for letter in asked:
        rank, exact = summary.rank(key(letter))
        true = bisect_left(rows, key(letter))
        assert rank == true or not exact
        assert 0 <= rank <= len(rows)
