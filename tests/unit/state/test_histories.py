"""Random histories: whatever is added, split and compacted in any order, every row is read once and once only."""

from bisect import bisect_left
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed.state import codec
from lakebed.state.apply import apply
from lakebed.state.resolve import resolve
from lakebed.state.table import check_invariants
from lakebed.state.transactions import CloseJob, OfferFiles, OfferOutput, OfferSplit, OpenJob, Rejected
from tests.unit.state.cases import job, key, new_file, table, through_an_image

LETTERS = "abcdefghijkl"
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("add"), st.text(LETTERS, min_size=1, max_size=6), st.sets(st.sampled_from(LETTERS), max_size=3)
        ),
        st.tuples(st.just("split"), st.integers(0, 20), st.sets(st.sampled_from(LETTERS), min_size=1, max_size=3)),
        st.tuples(st.just("open"), st.integers(0, 20)),
        st.tuples(st.just("commit"), st.integers(0, 5)),
        st.tuples(st.just("close"), st.integers(0, 5)),
    ),
    max_size=25,
)


class History:
    """A table state beside the plain contents of its files."""

    def __init__(self):
        self.state = table("f")
        self.contents = {}
        self.written = Counter()
        self.merged = {}
        self.count = 0

    def offer(self, offer):
        resolved = resolve(offer, self.state)
        if isinstance(resolved, Rejected):
            return False
        assert codec.decode_transaction(codec.encode_transaction(resolved).document) == resolved
        self.state = apply(self.state, resolved, self.state.number + 1)
        return True

    def fresh(self, letters, samples):
        self.count += 1
        name = f"f{self.count}"
        self.contents[name] = letters
        return new_file(name, letters, samples=samples)

    def add(self, letters, samples):
        assert self.offer(OfferFiles((self.fresh(letters, samples),)))
        self.written.update(letters)

    def split(self, position, letters):
        leaf = self.state.leaves.ids[position % len(self.state.leaves)]
        self.offer(OfferSplit(leaf, tuple(sorted(map(key, letters)))))

    def open(self, position):
        position %= len(self.state.leaves)
        keys = self.state.leaves.range_at(position)
        inputs = [r.file for r in self.state.references_of(self.state.leaves.ids[position])]
        name = f"j{self.count}-{self.state.number}"
        if self.offer(OpenJob(job(name, *inputs, keys=keys))):
            self.merged[name] = "".join(c for f in inputs for c in self.contents[f] if keys.contains(key(c)))

    def commit(self, index):
        if self.merged:
            name = sorted(self.merged)[index % len(self.merged)]
            letters = self.merged[name]
            self.offer(OfferOutput(name, (self.fresh(letters, LETTERS[::3]),) if letters else ()))

    def close(self, index):
        if self.state.jobs:
            self.offer(CloseJob(sorted(self.state.jobs)[index % len(self.state.jobs)], "given up"))

    def read(self):
        """What queries see: leaf by leaf, each reference's file inside the leaf."""
        seen = Counter()
        for position, leaf in enumerate(self.state.leaves.ids):
            keys = self.state.leaves.range_at(position)
            for reference in self.state.references_of(leaf):
                inside = [c for c in self.contents[reference.file] if keys.contains(key(c))]
                assert not reference.exact or reference.rows == len(inside), reference
                seen.update(inside)
        return seen


@given(STEPS)
@settings(max_examples=300, deadline=None)
def test_every_row_is_read_once_after_any_history(steps):
    """And exact counts are exact, leaves tile the key space, states survive being written down."""
    history = History()
    for name, *arguments in steps:
        getattr(history, name)(*arguments)
        check_invariants(history.state)
        assert history.read() == history.written
        assert list(history.state.leaves.boundaries) == sorted(set(history.state.leaves.boundaries))
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
