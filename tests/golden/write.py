"""Writes the golden table: ``python -m tests.golden.write``.

What is beside this module is a store as an earlier Lakebed left it: the log of one table, one entry a transaction, and
a checkpoint of the state before the last. The test reads it and writes it again. Where the format changes on purpose,
which version 0 may, this is run once more, and the difference is looked at line by line; a version that keeps its word
gets a folder of its own, and the older ones stay.
"""

import shutil
from pathlib import Path

from lakebed.log import entry as entries
from lakebed.log.checkpoint import CheckpointLocation, Checkpoints, Head
from lakebed.model.files import entry_name, table_prefix
from lakebed.state.codec import encode_transaction
from lakebed.state.machine import TABLE
from lakebed.storage import LocalStorage
from tests.golden.history import everything

FOLDER = Path(__file__).parent / "store"
TABLE_ID = "table-00"
PREFIX = table_prefix(TABLE_ID)


def encoded(version, documents, previous):
    """An entry's bytes; what is by chance or of the time in others is fixed here."""
    last_modified_us = None if version == 1 else 1_900_000_000_000_000 + version
    time = f"2030-03-17T17:46:{version:02d}+00:00"
    writer = "lakebed 0.0.1 on golden, pid 1"
    entry = entries.Entry(version, f"{version:032x}", time, writer, last_modified_us, "", previous, tuple(documents))
    return entries.encode(TABLE_ID, entry, b"".join(document + b"\n" for document in documents))


def write():
    """The store anew."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    storage = LocalStorage(FOLDER)
    transactions, states = everything()
    digest = ""
    for version, (transaction, state) in enumerate(zip(transactions, states, strict=True), 1):
        data = encoded(version, [encode_transaction(transaction).document], digest)
        digest = entries.digest_of(data)
        storage.create(entry_name(PREFIX, version), data)
        if version == len(states) - 1:
            Checkpoints(CheckpointLocation(storage, PREFIX), TABLE_ID, TABLE).write(Head(version, digest, state))


if __name__ == "__main__":
    write()
