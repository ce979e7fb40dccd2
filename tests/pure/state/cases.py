"""Small tables to reason about: files of letters, as if each row's key were one letter."""

import json

from lakebed import Schema
from lakebed.model.files import DataFile, NewFile
from lakebed.model.key_summaries import Summary
from lakebed.model.keys import ALL_KEYS
from lakebed.model.state.checkpoint_codec import of_table, to_table
from lakebed.model.state.columnar_codecs import CODECS
from lakebed.model.state.columns import Segment
from lakebed.model.state.invariants import check_invariants, violations_by
from lakebed.model.state.table_state import Job, TableState
from lakebed.model.state.transactions import CreateTable, Rejected, Repeated, apply, resolve

SCHEMA = Schema({"k": "string"}, values={"v": "int64"})


def key(text):
    """The encoded key of a letter."""
    return SCHEMA.codec.encode_key((text,))


def new_file(name, letters, run=None, samples=None, last_modified_us=0, *, version=1):
    """A file with one row for each letter; its summary notes the keys of ``samples`` (all letters by default)."""
    rows = sorted(letters)
    noted = sorted(set(rows) if samples is None else {rows[0], *samples})
    summary = Summary(tuple(map(key, noted)), tuple(sum(r < n for r in rows) for n in noted), len(rows), key(rows[-1]))
    size_bytes, bounds = 100 * len(rows), (key(rows[0]), key(rows[-1]))
    file = DataFile(
        name, "job-" + name, len(rows), size_bytes, *bounds, version, last_modified_us, "digest", 8, "footer"
    )
    return NewFile(file, summary, run or name)


def table(*boundaries):
    """An empty table cut at these letters."""
    return step(TableState(), CreateTable("table-00", SCHEMA, {}, tuple(map(key, boundaries))))


def step(state, proposal):
    """The state after a proposal that must be accepted; invariants checked."""
    resolved = resolve(proposal, state)
    assert not isinstance(resolved, Rejected | Repeated), resolved
    after = apply(state, resolved, state.version + 1)
    changes = resolved if isinstance(resolved, tuple) else (resolved,)
    assert list(violations_by(state, after, changes)) == []
    check_invariants(after)
    return after


def through_an_image(state):
    """The state as a reader of its checkpoint would have it."""
    image = of_table(state)
    assert image.state == state
    segments = {
        kind: [Segment.of(CODECS[kind], segment.rows().batch) for segment in held]
        for kind, held in image.segments.items()
    }
    return to_table(json.loads(json.dumps(image.document)), segments)


def job(name, *inputs, keys=ALL_KEYS, began_us=0):
    """A job value over files."""
    return Job(name, keys, inputs, "owner", 60, began_us)


def known_files(state):
    """Every file of the table, referenced or not yet forgotten."""
    return [*state.referenced().values(), *(known.file for known in state.files.values() if known.file)]


def drawn(state):
    """The table as text, a line a partition: ``file:rows`` in order, a ``~`` before estimates."""
    return [
        " ".join(f"{r.file}:{'' if r.exact else '~'}{r.rows}" for r in state.references_of(partition))
        for partition in state.partitions.ids
    ]
