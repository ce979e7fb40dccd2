"""Every file has a summary here, however small: that it goes with its file is to be seen."""

import pytest

from lakebed.model import files


@pytest.fixture(autouse=True)
def _all_have_summaries(monkeypatch):
    monkeypatch.setattr(files, "SUMMARY_BYTES_MIN", 0)
