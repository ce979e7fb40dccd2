"""Small Arrow files that decode to much, sent through every way in: prints what each takes, and what is said of it.

    python arrow_bombs.py make FOLDER
    python arrow_bombs.py send FOLDER

The inputs are made by a process of their own. Memory is measured as in :mod:`tests.adversarial.bounded`.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

MIB = 1024 * 1024
LIMIT_MIB = 64
HEADROOM_MIB = 1100
"""A child that takes more fails in place of the machine."""

BIG = 400 * MIB


def shapes() -> dict[str, Callable[[], list[Any]]]:
    """The batches of each bomb; the columns are named as those of the table, as far as their types fit."""
    import numpy as np
    import pyarrow as pa

    def numbers() -> list[Any]:
        zeros = pa.array(np.zeros(BIG // 16, np.int64))
        return [pa.record_batch({"k": zeros, "n": zeros})]

    def texts(*ends: str, size: int) -> Any:
        """Texts of ``size`` characters before their ends; Python's own would be copied three times."""
        whole = [size + len(end) for end in ends]
        data = np.full(sum(whole), ord("x"), np.uint8)
        offsets = np.concatenate([[0], np.cumsum(whole)]).astype(np.int32)
        for stop, end in zip(offsets[1:], ends, strict=True):
            data[stop - len(end) : stop] = list(end.encode())
        return pa.Array.from_buffers(pa.string(), len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(data)])

    def long_text() -> list[Any]:
        return [pa.record_batch({"k": [1], "s": texts("", size=BIG)})]

    def keys() -> list[Any]:
        return [pa.record_batch({"k": pa.array(np.zeros(BIG // 8, np.int64))})]

    def columns() -> list[Any]:
        zeros = pa.array(np.zeros(BIG // 64 // 8, np.int64))
        return [pa.record_batch({"k": zeros, **{f"c{number}": zeros for number in range(64)}})]

    def dictionary() -> list[Any]:
        values = texts("", "", "", "", size=BIG // 4)
        return [pa.record_batch({"k": [1], "s": pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), values)})]

    def deltas() -> Iterator[Any]:
        # Each batch is written with all values so far, of which those before are found again.
        for number in range(3):
            values = texts(*map(str, range((number + 1) * (BIG // 3 // MIB))), size=MIB)
            indices = pa.array([number], pa.int32())
            yield pa.record_batch({"k": [number], "s": pa.DictionaryArray.from_arrays(indices, values)})

    def nulls() -> list[Any]:
        many = pa.NullArray.from_buffers(pa.null(), 2**40, [None])
        return [pa.record_batch({"k": many, "n": many})]

    def lists_of_nulls() -> list[Any]:
        items = pa.ListArray.from_arrays(pa.array([0, 2**30], pa.int32()), pa.nulls(2**30))
        return [pa.record_batch({"k": [1], "l": items})]

    def fixed_lists_of_nulls() -> list[Any]:
        return [pa.record_batch({"k": [1], "l": pa.FixedSizeListArray.from_arrays(pa.nulls(2**30), 2**30)})]

    def nulls_with_keys() -> list[Any]:
        """Growth of columns aside, ``n`` fits as it is; there are as many keys as bits."""
        count = 2**31
        keys = pa.Array.from_buffers(pa.bool_(), count, [None, pa.py_buffer(bytes(count // 8))])
        return [pa.record_batch({"k": keys, "n": pa.NullArray.from_buffers(pa.null(), count, [None])})]

    def runs() -> list[Any]:
        count = 2**31 - 1
        ends = pa.array([count], pa.int32())
        made = [pa.RunEndEncodedArray.from_arrays(ends, pa.array([value])) for value in (1, "x" * MIB)]
        return [pa.RecordBatch.from_arrays(made, names=["k", "s"])]

    def list_views() -> list[Any]:
        rows = 4096
        items = pa.array(np.zeros(MIB, np.int64))
        begins, sizes = pa.array(np.zeros(rows, np.int32)), pa.array(np.full(rows, MIB, np.int32))
        views = pa.ListViewArray.from_arrays(begins, sizes, items)
        return [pa.record_batch({"k": pa.array(np.arange(rows)), "l": views, "x": pa.array(["refused"] * rows)})]

    def nested() -> list[Any]:
        zeros = pa.array(np.zeros(BIG // 8, np.int64))
        inner = pa.ListArray.from_arrays(pa.array([0, len(zeros)], pa.int32()), zeros)
        return [pa.record_batch({"k": [1], "l": inner})]

    made = (numbers, long_text, keys, columns, dictionary, deltas, nulls, lists_of_nulls)
    return {one.__name__: one for one in (*made, fixed_lists_of_nulls, nulls_with_keys, runs, list_views, nested)}


FORMS = {"zstd": "arrows", "lz4": "arrow"}
"""A stream and a file, each with another codec."""

AS_FILES = ("numbers", "dictionary", "list_views")
"""The bombs that come as a file as well, which is read as a stream is but for its footer: one of each kind of message,
and one of few bytes for many values."""


def make(folder: Path) -> None:
    """Write every bomb as a stream, and some as a file."""
    import pyarrow as pa

    folder.mkdir(exist_ok=True)
    for name, batches in shapes().items():
        for codec, kind in FORMS.items():
            if kind == "arrow" and name not in AS_FILES:
                continue
            opened = pa.ipc.new_stream if kind == "arrows" else pa.ipc.new_file
            options = pa.ipc.IpcWriteOptions(compression=codec, allow_64bit=True, emit_dictionary_deltas=True)
            writer = None
            with pa.OSFile(str(folder / f"{name}.{kind}"), "wb") as sink:
                for batch in batches():
                    writer = writer or opened(sink, batch.schema, options=options)
                    writer.write_batch(batch)
                assert writer is not None
                writer.close()


def send(folder: Path) -> None:
    """Send every bomb through every way in; prints a line for each."""
    sys.path[0] = str(Path(__file__).resolve().parents[2])
    import pyarrow as pa
    from litestar.testing import TestClient

    import lakebed
    from lakebed.files.formats.input_file import input_file, spool
    from lakebed.server.service.service import Service
    from lakebed.server.web.app import make_app
    from lakebed.write.input_files import infer
    from tests.adversarial.bounded import status_mib

    lake = lakebed.create(str(folder / "lake"))
    schema = lakebed.Schema({"k": "int64"}, values={"n": "int64", "s": "string", "l": pa.list_(pa.int64())})
    table = lake.create_table("t", schema, merge=lakebed.Latest(), settings={"memory_limit_bytes": LIMIT_MIB * MIB})
    table.write(pa.table({"k": [1], "n": [1], "s": ["a"], "l": [[1]]}))
    table.scan(where="n > 0").read_all()
    arrow = {"content-type": "application/vnd.apache.arrow.stream"}
    with TestClient(make_app(Service(lake, maintain=False))) as client:

        def posted(where: str) -> Callable[[Path], str]:
            def post(path: Path) -> str:
                answer = client.post(f"/v1/tables/t/{where}", content=path.read_bytes(), headers=arrow)
                return f"{answer.status_code} {answer.text[:200]}"

            return post

        def spooled_rows(path: Path) -> str:
            """As the command line keeps standard input, of which it knows no name."""
            with path.open("rb") as stream:
                return spool(stream, folder, "standard input").path

        ways: dict[str, Callable[[Path], Any]] = {
            "write": lambda path: table.write(str(path)),
            "inferred": lambda path: infer(input_file(str(path))).columns,
            "http write": posted("rows"),
            "http keys": posted("get_many"),
            "stdin": lambda path: table.write(spooled_rows(path)),
        }
        client.post("/v1/tables/t/get_many", content=b"", headers=arrow)
        most = status_mib("VmData") * MIB + HEADROOM_MIB * MIB
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
        for path in sorted(folder.glob("*.arrow*")):
            for way, act in ways.items():
                if way.startswith("http") and path.suffix == ".arrow":
                    continue
                Path("/proc/self/clear_refs").write_text("5")
                before = status_mib("VmRSS")
                try:
                    said = f"ok {act(path)}"[:200]
                except lakebed.Error as error:
                    said = f"{error.code} {error}"[:200]
                except Exception as error:  # noqa: BLE001 - reported to the test
                    said = f"BUG {error!r}"[:300]
                took = status_mib("VmHWM") - before
                figures = {"bomb": path.name, "way": way, "bytes": path.stat().st_size, "mib": took, "said": said}
                print(json.dumps(figures), flush=True)
    os._exit(0)


if __name__ == "__main__":
    {"make": make, "send": send}[sys.argv[1]](Path(sys.argv[2]))
