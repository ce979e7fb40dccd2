"""A file is digested in reads of some 100 KiB, and its footer wherever it lies in them."""

import pytest

from lakebed.storage.digests import READ_BYTES, digest_bytes, digest_file


@pytest.mark.parametrize("metadata_bytes", [100, READ_BYTES - 8, READ_BYTES, 2 * READ_BYTES + 5])
@pytest.mark.parametrize("rows_bytes", [0, READ_BYTES - 12, READ_BYTES - 4, READ_BYTES, 3 * READ_BYTES - 50])
def test_a_footer_is_digested_across_reads(tmp_path, rows_bytes, metadata_bytes):
    """Magic, rows, [metadata, its length, magic], in several reads."""
    footer = bytes(i % 251 for i in range(metadata_bytes)) + metadata_bytes.to_bytes(4, "little") + b"PAR1"
    content = b"PAR1" + bytes(i % 241 for i in range(rows_bytes)) + footer
    path = tmp_path / "f.parquet"
    path.write_bytes(content)
    found = digest_file(path)
    assert (found.size_bytes, found.digest) == (len(content), digest_bytes(content))
    assert (found.footer_bytes, found.footer_digest) == (len(footer), digest_bytes(footer))
