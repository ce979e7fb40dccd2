"""What one version changed, from its transactions and the states around it; no table is read."""

import pytest

from lakebed.model.keys import ALL_KEYS, EncodedRange
from lakebed.model.state.transactions import RaiseWatermark, RemoveRange, Replace, SetTag, SplitPartitions, Watermark
from lakebed.read.changes.plan import cut_at, may_change_rows


def test_keys_are_cut_at_ranges_and_what_lies_between_is_not_lost():
    low, high = EncodedRange(b"b", b"d"), EncodedRange(b"d", b"f")
    assert list(cut_at([])) == [(ALL_KEYS, False)]
    assert list(cut_at([ALL_KEYS])) == [(ALL_KEYS, True)]
    assert list(cut_at([low, high])) == [
        (EncodedRange(b"", b"b"), False), (low, True), (high, True), (EncodedRange(b"f"), False),
    ]  # fmt: skip
    assert list(cut_at([EncodedRange(b"", b"b"), EncodedRange(b"x")])) == [
        (EncodedRange(b"", b"b"), True), (EncodedRange(b"b", b"x"), False), (EncodedRange(b"x"), True),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("transaction", "may"),
    [
        (Replace("job", (), (), ()), False),
        (Replace("job", (), (), (), changes_rows=True), True),
        (RaiseWatermark(Watermark.ORPHAN_CUTOFF, 1), False),
        (RaiseWatermark(Watermark.AGE_OFF_CUT, 1), True),
        (SetTag("monday", 1), False),
        (RemoveRange((), False, SplitPartitions((), ()), ()), True),
    ],
)
def test_a_compaction_and_most_marks_change_no_rows(transaction, may):
    """A stream skips versions whose transactions change none."""
    assert may_change_rows(transaction) is may
