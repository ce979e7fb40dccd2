"""Writes the golden table: ``python -m tests.golden.write``.

What is beside this module is a store as an earlier Lakebed left it: the log of one table, one entry a transaction, and
a snapshot of the state before the last. The test reads it and writes it again. Where the format changes on purpose,
which version 0 may, this is run once more, and the difference is looked at line by line; a version that keeps its word
gets a folder of its own, and the older ones stay.
"""

import shutil
from pathlib import Path

from lakebed.files import entry_name, table_prefix
from lakebed.log import entry as entries
from lakebed.log.snapshot import Head, SnapshotPlace, Snapshots
from lakebed.state.codec import encode_transaction
from lakebed.state.machine import TABLE
from lakebed.storage import LocalStorage
from tests.golden.history import everything

FOLDER = Path(__file__).parent / "store"
TABLE_ID = "table-00"
PREFIX = table_prefix(TABLE_ID)


def encoded(number, documents, previous):
    """An entry's bytes; what is by chance or of the time in others is fixed here."""
    stamp_us = None if number == 1 else 1_900_000_000_000_000 + number
    time = f"2030-03-17T17:46:{number:02d}+00:00"
    writer = "lakebed 0.0.1 on golden, pid 1"
    entry = entries.Entry(number, f"{number:032x}", time, writer, stamp_us, "", previous, tuple(documents))
    return entries.encode(TABLE_ID, entry, b"".join(map(entries.encode_line, documents)))


def write():
    """The store anew."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    storage = LocalStorage(FOLDER)
    transactions, states = everything()
    digest = ""
    for number, (transaction, state) in enumerate(zip(transactions, states, strict=True), 1):
        data = encoded(number, [encode_transaction(transaction).document], digest)
        digest = entries.digest_of(data)
        storage.create(entry_name(PREFIX, number), data)
        if number == len(states) - 1:
            Snapshots(SnapshotPlace(storage, PREFIX), TABLE_ID, TABLE).write(Head(number, digest, state))


if __name__ == "__main__":
    write()
