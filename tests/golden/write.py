"""Writes the golden table: ``python -m tests.golden.write``.

The files beside this module are a store written by an earlier Lakebed: the log of one table, one entry per transaction,
and a checkpoint of the state before the last. The test reads it and writes it again. After a deliberate change of the
format, which version 0 allows, run this again and review the difference line by line; a stable version gets a folder of
its own, and the older ones stay.
"""

import shutil
from pathlib import Path

from msgspec.structs import astuple

from lakebed.log import entry as entries
from lakebed.log.checkpoint import CheckpointLocation, Checkpoints, Head
from lakebed.model.files import entry_name, table_prefix
from lakebed.model.state.codec import encode_transaction
from lakebed.model.state.machine import TABLE
from lakebed.storage import LocalStorage
from tests.golden.history import everything

FOLDER = Path(__file__).parent / "store"
TABLE_ID = "table-00"
PREFIX = table_prefix(TABLE_ID)


def encoded(version, transaction, previous):
    """Return the bytes of its entry, with fixed values in place of random and time-dependent ones."""
    document, _, features = astuple(encode_transaction(transaction))
    last_modified_us = None if version == 1 else 1_900_000_000_000_000 + version
    time = f"2030-03-17T17:46:{version:02d}+00:00"
    writer = "lakebed 0.0.1 on golden, pid 1"
    facts = (version, f"{version:032x}", time, writer, last_modified_us, "", previous)
    return entries.encode(TABLE_ID, entries.Entry(*facts, (document,), features=features), document + b"\n")


def write():
    """Write the store again."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    storage = LocalStorage(FOLDER)
    transactions, states = everything()
    digest = ""
    for version, (transaction, state) in enumerate(zip(transactions, states, strict=True), 1):
        data = encoded(version, transaction, digest)
        digest = entries.digest_of(data)
        storage.create(entry_name(PREFIX, version), data)
        if version == len(states) - 1:
            Checkpoints(CheckpointLocation(storage, PREFIX), TABLE_ID, TABLE).write(Head(version, digest, state))


if __name__ == "__main__":
    write()
