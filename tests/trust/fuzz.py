"""Files of users, and footers of data files, changed at random: they are read, or refused with an error of Lakebed.

The *corpus*, ``corpus.jsonl``, keeps an input for each outcome that was seen: the kind of file, and the code and shape
of the message, or that it was read. Later runs change those, and a test holds that each still has its outcome. An error
of Python or of a library, or a read that takes too long, is a finding.
"""

from __future__ import annotations

import base64
import json
import random
import re
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import lakebed
from lakebed import Schema
from lakebed.clock import random_token
from lakebed.errors import Error
from lakebed.files.parquet.footer import read_footer
from lakebed.model.files import data_name
from lakebed.write.input_files import find_inputs, infer
from tests.trust.results import Slice

CORPUS = Path(__file__).with_name("corpus.jsonl")
KEPT_MAX, KEPT_BYTES_MAX = 14, 2_000
"""Inputs of each kind that are kept, and the size of the largest."""

SCHEMA = Schema({"k": "string"}, values={"n": "int64", "x": "double", "t": "timestamp[us]", "b": "binary"})
ROWS = pa.table(
    {
        "k": ["a", "b", "c"],
        "n": [1, None, -3],
        "x": [0.5, float("nan"), None],
        "t": pa.array([0, 1, None], pa.timestamp("us")),
        "b": [b"", b"x", None],
    }
)
CSV = b'k,n,x,t,b\na,1,0.5,1970-01-01T00:00:00,6869\n"b ""q""",,nan,,\n"c\nd",-3,,2020-02-20,\n'
JSON = b'{"k":"a","n":1,"x":0.5,"t":"1970-01-01T00:00:00"}\n{"k":"b","n":null,"b":"6869"}\n{"k":"\\u00e9","x":1e300}\n'
SLOW_S = 120.0
"""A read of a few hundred bytes that takes longer hangs, also on a busy machine."""

WORDS = (
    b'"', b"'", b",", b";", b"\t", b"\r\n", b"\n", b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"{", b"}", b"[", b"]", b":",
    b"null", b"NaN", b"-0", b"1e999", b"9" * 30, b"\\ud800", b"\\u0000", b"\xed\xa0\x80", b"true", b"0x",
    b"2020-13-45", b"\x7f\xff\xff\xff",
)  # fmt: skip
SUFFIX = {"CSV": "csv", "JSON": "ndjson", "Arrow": "arrow", "Parquet": "parquet"}


def seeds() -> Iterator[tuple[str, bytes]]:
    """Return a good input of each kind."""
    yield "CSV", CSV
    yield "JSON", JSON
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, ROWS.schema) as writer:
        writer.write_table(ROWS)
    yield "Arrow", sink.getvalue().to_pybytes()
    sink = pa.BufferOutputStream()
    pq.write_table(ROWS, sink, compression="none")
    yield "Parquet", sink.getvalue().to_pybytes()
    table = lakebed.create(f"memory://{random_token()}").create_table("t", SCHEMA)
    table.write(ROWS)
    (file,) = table.state().referenced().values()
    yield "footer", table.storage.get(data_name(table.id, file))[-file.footer_bytes :]


def mutated(data: bytes, others: list[bytes], chance: random.Random) -> bytes:
    """Return the input with one to four changes."""
    for _ in range(chance.randint(1, 4)):
        at, to = sorted(chance.choices(range(len(data) + 1), k=2))
        match chance.randrange(7):
            case 0:
                data = data[:at] + chance.choice(WORDS) + data[at:]
            case 1 if data:
                data = data[: at - 1] + bytes([chance.randrange(256)]) + data[at:]
            case 2:
                data = data[:at] + data[min(to, at + 60) :]
            case 3:
                data = data[:to] + data[at:to][:200] + data[to:]
            case 4:
                data = data[:at]
            case 5:
                data = data[:at] + chance.choice(others)[at:]
            case _ if data:
                changed = bytearray(data)
                changed[at - 1] ^= 1 << chance.randrange(8)
                data = bytes(changed)
    return data


@cache
def _table() -> lakebed.Table:
    return lakebed.create(f"memory://{random_token()}").create_table("t", SCHEMA)


def outcome_of(kind: str, data: bytes, folder: Path) -> str:
    """Return what became of an input: that it was read, or the code and the shape of the error."""
    try:
        if kind == "footer":
            read_footer(data, SCHEMA, "file", len(data) + 1_000)
            return "read"
        path = folder / f"input.{SUFFIX[kind]}"
        path.write_bytes(data)
        found = infer(find_inputs([str(path)])[0])
        _table().write(str(path), ignore_extra=True)
        return "read" if found.rows else "read, no rows"
    except Error as error:
        shape = re.sub(r"\S*/\S*|'[^']*'|\"[^\"]*\"|\d+|[^\x20-\x7e]+", "*", str(error))
        return f"{error.code}: {shape[:60]}"


@cache
def corpus() -> list[dict[str, str]]:
    """Return the kept inputs."""
    return [json.loads(line) for line in CORPUS.read_text("utf-8").splitlines()] if CORPUS.exists() else []


def fuzz(seed: int, count: int) -> Slice:
    """Change inputs of all kinds in turn."""
    done, chance = Slice(), random.Random(seed)
    known: dict[str, list[bytes]] = {}
    for kind, data in (*seeds(), *((one["kind"], base64.b64decode(one["data"])) for one in corpus())):
        known.setdefault(kind, []).append(data)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(count):
            kind = list(known)[number % len(known)]
            # The first of a kind is a good one; most kept ones are refused, and so is what they become.
            begin = known[kind][0] if chance.random() < 0.7 else chance.choice(known[kind])
            data = mutated(begin, known[kind], chance)
            begun = time.monotonic()
            try:
                outcome = outcome_of(kind, data, Path(folder))
            except BaseException as error:  # noqa: BLE001 - a panic of an engine is no Exception
                done.findings.append(
                    f"{kind}: {type(error).__name__}: {error}: {base64.b64encode(data[:900]).decode()}"
                )
                continue
            finally:
                done.units += 1
                done.events[f"input: {kind}"] += 1
            if time.monotonic() - begun > SLOW_S:
                done.findings.append(
                    f"{kind}: took {time.monotonic() - begun:.0f} s: {base64.b64encode(data).decode()}"
                )
            done.events["read" if outcome.startswith("read") else "refused"] += 1
    return done


def grow(seed: int, count: int) -> int:
    """Add inputs with outcomes that the corpus does not have yet; return how many."""
    kept, chance = list(corpus()), random.Random(seed)
    if not kept:
        kept = [{"kind": k, "outcome": "read", "data": base64.b64encode(data).decode()} for k, data in seeds()]
    seen, sizes = {(one["kind"], one["outcome"]) for one in kept}, Counter(one["kind"] for one in kept)
    known: dict[str, list[bytes]] = {}
    for kind, data in seeds():
        known.setdefault(kind, []).append(data)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(count):
            kind = list(known)[number % len(known)]
            data = mutated(chance.choice(known[kind]), known[kind], chance)
            if len(data) > KEPT_BYTES_MAX or sizes[kind] >= KEPT_MAX:
                continue
            outcome = outcome_of(kind, data, Path(folder))
            if (kind, outcome) not in seen:
                seen.add((kind, outcome))
                sizes[kind] += 1
                known[kind].append(data)
                kept.append({"kind": kind, "outcome": outcome, "data": base64.b64encode(data).decode()})
    kept.sort(key=lambda one: (one["kind"], one["outcome"]))
    CORPUS.write_text("".join(f"{json.dumps(one)}\n" for one in kept), "utf-8")
    return len(kept)
