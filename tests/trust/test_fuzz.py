"""Changed files are read or refused; the corpus keeps an input for each outcome, and each input its outcome."""

from __future__ import annotations

import base64
import struct
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakebed.errors import Code
from lakebed.write.input_files import find_inputs, infer, open_files
from tests.raising import raises
from tests.trust.fuzz import SCHEMA, SUFFIX, corpus, fuzz, outcome_of


def test_the_corpus_has_refused_and_read_inputs_of_each_kind():
    counts = Counter((one["kind"], one["outcome"].startswith("read")) for one in corpus())
    assert all(counts[kind, read] for kind in (*SUFFIX, "footer") for read in (False, True))
    assert len(corpus()) > 40


@pytest.mark.parametrize("kind", [*SUFFIX, "footer"])
def test_each_kept_input_has_its_outcome(kind, tmp_path):
    """`tests.trust.fuzz.grow` finds more, if a message has changed."""
    kept = [one for one in corpus() if one["kind"] == kind]
    found = [outcome_of(kind, base64.b64decode(one["data"]), tmp_path).partition(":")[0] for one in kept]
    assert found == [one["outcome"].partition(":")[0] for one in kept]


def test_changed_inputs_raise_no_foreign_error():
    done = fuzz(0, 60)
    assert done.findings == []
    assert done.events["refused"] > 10


def test_a_file_of_arrow_with_offsets_outside_its_buffers_is_refused(tmp_path):
    """A look at such a value ended the process."""
    rows = pa.record_batch({"k": ["ab", "cd"]})
    for name, new in (("file.arrow", pa.ipc.new_file), ("stream.arrows", pa.ipc.new_stream)):
        path = tmp_path / name
        with pa.OSFile(str(path), "wb") as sink, new(sink, pa.schema({"k": pa.string()})) as writer:
            writer.write_batch(rows)
        content = path.read_bytes()
        path.write_bytes(content.replace(struct.pack("<3i", 0, 2, 4), struct.pack("<3i", 0, 1 << 30, 4)))
        assert path.read_bytes() != content
        with raises(Code.SOURCE_DAMAGED):
            infer(find_inputs([str(path)])[0])
        with raises(Code.SOURCE_DAMAGED):
            list(open_files([str(path)], SCHEMA).rows)


def test_a_file_of_parquet_with_a_name_that_is_not_utf8_is_refused(tmp_path):
    path = tmp_path / "file.parquet"
    pq.write_table(pa.table({"kkkk": ["a"]}), path, compression="none", store_schema=False)
    path.write_bytes(path.read_bytes().replace(b"kkkk", b"\x84kkk"))
    with raises(Code.SOURCE_DAMAGED):
        infer(find_inputs([str(path)])[0])
    with raises(Code.SOURCE_DAMAGED):
        list(open_files([str(path)], SCHEMA).rows)
