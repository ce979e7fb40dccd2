"""What a cut through files has to know: how many of their rows lie below it, exactly.

A split and a removal move references, and a reference says how many rows it stands for. A summary has the ranks of the
partition boundaries that its writer knew, and bounds for those of other keys. So where partitions are cut, the rank of
the cut and of the ends of the partition is read in each file: a page a key, once, for a count that is right from then
on.

A file that cannot be read does not stop it: its counts stay estimates, and are marked as such. Whoever reads its rows
is told of the damage; a removal may be what mends it.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from lakebed.errors import Code, DamagedError, NotFoundError
from lakebed.model.checks import check_flag
from lakebed.read.summaries import load_summaries
from lakebed.state.transactions import ProposeRemoval
from lakebed.state.transactions.removals import bounds_of_removal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakebed.model.files import DataFile
    from lakebed.model.key_summaries import Summary
    from lakebed.model.keys import KeyRange
    from lakebed.model.schema import Schema
    from lakebed.read.reader import Reader
    from lakebed.state.table_state import TableState
    from lakebed.storage.contract import Storage

Bounds = dict[str, tuple["DataFile", list[bytes]]]
"""Files by their id, each with keys at which its rows are counted."""

FILES_AT_ONCE = 16
"""Files asked side by side on a store, where each page takes a round trip."""


def removal(
    state: TableState, reader: Reader, storage: Storage, ranges: Sequence[KeyRange], *, fence: bool = False
) -> ProposeRemoval:
    """What takes away the rows in the ranges, with summaries that are exact where it cuts.

    Raises UsageError for no range, or a fence that is neither True nor False; BadKeyError for a range that does not fit
    the key; DamagedError naming a summary.
    """
    check_flag("fence", fence)
    if not ranges:
        raise Code.ARGUMENT_MISSING("a removal needs a range; for all rows give KeyRange()")
    schema = state.created
    encoded = tuple(schema.codec.encode_range(one) for one in ranges)
    bounds = bounds_of_removal(encoded, state)
    files = [file for file, _ in bounds.values()]
    summaries = load_summaries(storage, state.table, files, schema, cuts=state.partitions.boundaries)
    return ProposeRemoval(encoded, fence, exact_at(bounds, summaries, reader, schema))


def exact_at(bounds: Bounds, summaries: Mapping[str, Summary], reader: Reader, schema: Schema) -> dict[str, Summary]:
    """The summaries with the exact ranks of these keys; of a file that cannot be read as they are.

    Raises DamagedError naming a file whose summary is not its own.
    """

    def asked(name: str) -> Summary:
        summary = summaries[name]
        if name not in bounds:
            return summary
        file, keys = bounds[name]
        try:
            ranks = {key: reader.rank(file, schema, key) for key in keys if not summary.rank(key)[1]}
        except (DamagedError, NotFoundError):
            return summary
        try:
            return summary.with_ranks(ranks)
        except DamagedError as error:
            raise Code.DATA_FILE_DAMAGED(f"file {name}: {error.message}", file=name) from error

    if len(summaries) < 2 or reader.is_local:
        return {name: asked(name) for name in summaries}
    with ThreadPoolExecutor(min(FILES_AT_ONCE, len(summaries)), "lakebed-rank") as threads:
        return dict(zip(summaries, threads.map(asked, summaries), strict=True))
